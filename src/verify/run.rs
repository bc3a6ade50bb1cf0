//! The whole run: start, step, rebuild the checker when mappings change, symbolize.

use super::launch::launch;
use super::pace::Choice;
use super::samples::Samples;
use super::stepper::{Pause, Stepper};
use anyhow::Context as _;
use fpprof_analysis::modules::{FileModules, ModuleTable};
use fpprof_analysis::oracle::{Checker, History, Tally, Verification, VerifiedRun, Wanted, summarise};
use fpprof_analysis::strategy::Strategy;
use fpprof_collector::StopFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// What to verify, and how.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Program and arguments.
    pub(crate) command: Vec<OsString>,
    /// Whether the program's standard output goes to our standard error.
    pub(crate) is_stdout_ours: bool,
    /// Strategies to compare with the true stack.
    pub(crate) strategies: Vec<Strategy>,
    /// The instructions to check.
    pub(crate) choice: Choice,
    /// The disagreements to keep.
    pub(crate) wanted: Wanted,
    /// The file for a recording of the checked samples.
    pub(crate) recording: Option<PathBuf>,
}

/// Runs the command to its end, or to the last requested instruction.
///
/// # Errors
/// If it cannot be started, traced or read, or the recording cannot be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<Verification> {
    let stop = StopFlag::on_signals().context("watching for signals")?;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).context("reading the clock")?;
    let Choice { every, skip, leaps, seed, .. } = options.choice;
    let pid = launch(&options.command, options.is_stdout_ours)?;
    kill_on_signal(pid, stop);
    let start_unix_ns = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
    let history = History::new(pid.as_raw().unsigned_abs(), start_unix_ns);
    let begin = |path: &PathBuf| Samples::new(path, &history, &options.command, every);
    let samples = options.recording.as_ref().map(begin).transpose()?;
    let mut stepper = Stepper::new(pid, &options.choice, history, samples, stop)?;
    let mut tally = Tally::new(&options.strategies, options.wanted);
    let resolver = FileModules::new();
    loop {
        // The checker is built from a snapshot of the mappings, and again whenever executable ones change.
        let (timeline, meta) = (stepper.history.timeline(), stepper.history.meta());
        let modules = ModuleTable::new(&timeline, &meta, &resolver);
        let mut checker = Checker::new(&timeline, &modules, stepper.history.pid(), &options.strategies);
        let pause = stepper.run(&mut checker, &mut tally)?;
        tally.add_walks(checker.take_kernel_walks());
        match pause {
            Pause::Mappings => {}
            Pause::Ended(ended) => {
                stepper.finish_samples()?;
                let run = VerifiedRun {
                    command: options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
                    ended,
                    instructions: stepper.counts.instructions,
                    every,
                    skipped: skip,
                    window: leaps.map(|leaps| leaps.window),
                    leap: leaps.map(|leaps| leaps.transfers),
                    seed: (every > 1 || leaps.is_some()).then_some(seed),
                    events: stepper.counts.events(),
                };
                let n_threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
                return Ok(summarise(run, &tally, &modules, n_threads));
            }
        }
    }
}

/// Kills the program when we receive a signal: it may be in a system call that does not end by itself.
fn kill_on_signal(pid: Pid, stop: &'static StopFlag) {
    std::thread::spawn(move || {
        let mut fds = [PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        // The thread ends with our process. If polling fails, the flag remains, which stepping checks.
        while poll(&mut fds, PollTimeout::NONE).is_err_and(|error| error == nix::errno::Errno::EINTR) {}
        if stop.signal().is_some() {
            let _ = kill(pid, Signal::SIGKILL);
        }
    });
}
