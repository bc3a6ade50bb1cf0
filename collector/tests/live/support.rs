//! Building programs, recording them, and reading recordings.

#[path = "../../../tests/support/ended.rs"]
mod ended;

pub(crate) use ended::Ended;

use fpprof_collector::{Error, Outcome, Progress, Request, StopFlag, Target, TargetStatus, Update, record};
use fpprof_recording::Recording;
use fpprof_recording::model::{CaptureMode, Gap, Meta, Sample, Sampling, Sideband};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A recording that was read.
pub(crate) struct Taken {
    pub(crate) outcome: Outcome,
    pub(crate) meta: Meta,
    pub(crate) sideband: Vec<Sideband>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) gaps: Vec<Gap>,
}

/// Creates a directory for a test.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory for the test")
}

/// Compiles `tests/programs/NAME.c` into `directory`.
pub(crate) fn build(name: &str, flags: &[&str], directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{name}.c"));
    let program = directory.join(name);
    let usual = ["-O1", "-Wall", "-fno-stack-clash-protection", "-pthread"];
    let status = Command::new("cc").args(usual).args(flags).arg(&source).arg("-o").arg(&program).status();
    assert!(status.expect("cc is needed to build test programs").success(), "building {name}");
    program
}

/// A request to run a program at 999 Hz.
pub(crate) fn run(program: &Path, arguments: &[&str], mode: CaptureMode) -> Request {
    let mut argv = vec![OsString::from(program)];
    argv.extend(arguments.iter().map(OsString::from));
    Request { mode, sampling: Sampling::FrequencyHz(999), ..Request::new(Target::Command { argv }) }
}

/// Records into a file and reads it.
pub(crate) fn take(request: &Request) -> Taken {
    take_with(request, &StopFlag::new().expect("a flag"), &mut |_| {})
}

/// Likewise, with a flag and progress reports.
pub(crate) fn take_with(request: &Request, stop: &StopFlag, progress: &mut dyn FnMut(&Progress)) -> Taken {
    let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).expect("a file for the recording");
    let outcome = record(request, &file, stop, &mut |update| {
        if let Update::Progress(now) = update {
            progress(now);
        }
    });
    let outcome = outcome.expect("recording works here");
    let crashed = Some(TargetStatus::Killed(libc::SIGSEGV));
    assert_ne!(
        outcome.target_status, crashed,
        "the program is called wrongly, or what was recorded is not what is meant"
    );
    assert_balanced(&outcome);
    let mut recording = Recording::open(&file).expect("the recording can be read");
    assert_eq!(recording.end(), Some(&outcome.end));
    let (mut sideband, mut samples, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
    recording.gaps(|gap| gaps.push(*gap)).expect("gaps");
    assert_gaps_add_up(&outcome, &gaps);
    recording.sideband(|event| sideband.push(event.clone())).expect("process events");
    recording.samples(|sample| samples.push(sample.clone())).expect("samples");
    assert_eq!(samples.len() as u64, outcome.samples);
    assert_eq!(outcome.bytes_written, recording.file_bytes());
    Taken { outcome, meta: recording.meta().clone(), sideband, samples, gaps }
}

/// Records until there are some samples, however busy the machine is.
pub(crate) fn take_some(request: &Request) -> Taken {
    take_until(request, |progress| progress.samples >= 100)
}

/// Records until `is_enough`, however busy the machine is.
pub(crate) fn take_until(request: &Request, mut is_enough: impl FnMut(&Progress) -> bool) -> Taken {
    let stop = StopFlag::new().expect("a flag");
    let request = Request { duration: Some(Duration::from_secs(120)), ..request.clone() };
    take_with(&request, &stop, &mut |progress| {
        if is_enough(progress) {
            stop.stop(libc::SIGINT);
        }
    })
}

/// CPU time that a process has used, in hundredths of a second: fields 14 and 15 of its `stat`.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let fields = stat.rsplit_once(") ").expect("a name").1.split(' ').skip(11).take(2);
    Duration::from_millis(fields.map(|ticks| ticks.parse::<u64>().expect("ticks") * 10).sum())
}

/// Number of ticks in something that is not profiled.
pub(crate) fn skipped(taken: &Taken) -> u64 {
    taken.outcome.end.cpus.iter().map(|cpu| cpu.skipped).sum()
}

/// The error of a request that cannot be fulfilled.
pub(crate) fn refuse(request: &Request) -> Error {
    let stop = StopFlag::new().expect("a flag");
    record(request, Vec::new(), &stop, &mut |_| {}).expect_err("the request must be refused")
}

/// Checks the balance: fired = recorded + Σ lost + skipped + dropped, on every CPU.
pub(crate) fn assert_balanced(outcome: &Outcome) {
    for cpu in &outcome.end.cpus {
        let lost: u64 = cpu.lost.values().sum();
        assert_eq!(cpu.fired, cpu.recorded + lost + cpu.skipped + cpu.dropped, "{cpu:?}");
    }
}

/// Checks that gaps cover all losses, by CPU and cause, and that no two of them overlap.
pub(crate) fn assert_gaps_add_up(outcome: &Outcome, gaps: &[Gap]) {
    for cpu in &outcome.end.cpus {
        let of_cpu = gaps.iter().filter(|gap| gap.cpu == cpu.cpu);
        let causes: BTreeSet<_> = of_cpu.clone().map(|gap| gap.cause).chain(cpu.lost.keys().copied()).collect();
        for cause in causes {
            let gaps: Vec<_> = of_cpu.clone().filter(|gap| gap.cause == cause).collect();
            let lost: u64 = gaps.iter().map(|gap| gap.lost).sum();
            assert_eq!(lost, cpu.lost.get(&cause).copied().unwrap_or(0), "{cause:?} {gaps:?}");
            assert!(gaps.iter().all(|gap| gap.start_ns <= gap.end_ns), "{gaps:?}");
            assert!(gaps.is_sorted_by(|a, b| a.end_ns < b.start_ns), "{gaps:?}");
        }
    }
}

/// Checks that nearly all of something is good: what runs before and after `main` is not.
pub(crate) fn assert_most(good: usize, all: usize, what: &str) {
    assert!(all >= 20, "too few samples to tell: {all}");
    assert!(good * 10 >= all * 8, "only {good} of {all} {what}");
}

/// Hexadecimal numbers in a file.
pub(crate) fn hex_numbers(path: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(path).expect("the program wrote its file");
    text.split_whitespace().map(|word| u64::from_str_radix(word, 16).expect("a number")).collect()
}

/// A request to run a script, with 16 KiB of stack in every sample.
pub(crate) fn shell(script: &str) -> Request {
    let argv = ["sh", "-c", script].map(Into::into).to_vec();
    Request { mode: CaptureMode::Dwarf { stack_bytes: 16_384 }, ..Request::new(Target::Command { argv }) }
}

/// Number of samples in user mode whose instruction is in code that their process has mapped from a file of this name.
pub(crate) fn n_in<'a>(taken: &'a Taken, name: &str, is_meant: impl Fn(&Sample) -> bool + 'a) -> usize {
    let mut code: BTreeMap<u32, Vec<(u64, u64, u64)>> = BTreeMap::new();
    for event in &taken.sideband {
        if let Sideband::Mmap(mmap) = event
            && mmap.prot & 4 != 0
            && mmap.path.ends_with(name.as_bytes())
        {
            code.entry(mmap.pid).or_default().push((mmap.time_ns, mmap.start, mmap.start + mmap.len));
        }
    }
    let is_in = |sample: &&Sample| {
        let ip = sample.user_regs.map_or(0, |regs| regs.ip());
        let mapped = code.get(&sample.pid).into_iter().flatten();
        mapped.into_iter().any(|&(since, start, end)| since <= sample.time_ns && (start..end).contains(&ip))
    };
    taken.samples.iter().filter(|sample| !sample.in_kernel && is_meant(sample)).filter(is_in).count()
}

/// Whether these are the bytes of a file without its data, which is replaced by zeros, and with code that is not all
/// zeros.
pub(crate) fn is_without_data(kept: &[u8], whole: &[u8]) -> bool {
    kept.len() == whole.len()
        && kept.starts_with(b"\x7fELF")
        && kept.iter().zip(whole).all(|(&ours, &theirs)| ours == theirs || ours == 0)
        && kept.iter().filter(|&&byte| byte != 0).count() >= 500
}
