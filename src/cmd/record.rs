//! `fpprof record`: runs or attaches, samples, and closes with what was lost and what it cost.

use crate::exit::{DONE, FAILED, Usage, told};
use crate::output::{Patient, RecordingFile, say};
use crate::values;
use anyhow::Context as _;
use fpprof_collector::{CollectorWish, Error, EventSpec, Outcome, Request, StopFlag, Target, TargetStatus};
use fpprof_recording::model::{CaptureMode, CpuCounters, EndReason, Sampling};
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Shortest wait that is sampled when nothing is said: a switch of threads then costs 0.2 µs, and with every wait a
/// sample 0.5 to 1 µs (`off_cpu_cost`, an example of the collector).
const DEFAULT_WAIT: &str = "50us";

/// Record a command, running processes or threads, a control group, or the whole machine
///
/// The command's own exit status is passed on: 127 means it was not found, 126 that it could not be run, 128+N that
/// signal N ended it. A recording without a single sample is a failure (1).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof record -- nbdkit -U - null 1G --run 'export uri; fio nbd.fio'
  fpprof record -F 4999 --call-graph dwarf,16384 -o run.fpprof -- ./program
  fpprof record -e page-faults -- ./program
  fpprof record -e syscalls:sys_enter_openat -a --duration 10
  fpprof record -e uprobe:/usr/lib/x86_64-linux-gnu/libc.so.6:malloc -c 100 -- ./program
  fpprof record --off-cpu -- ./program; fpprof flamegraph --event off-cpu
  fpprof record --off-cpu 1ms -p 1234 --duration 10
  fpprof record -p 1234 --duration 10
  fpprof record -t 1235,1236 --duration 10
  fpprof record -G system.slice/nginx.service --duration 10
  fpprof record -a --duration 5 --call-graph fp")]
pub(crate) struct Args {
    /// What fires samples [default: cycles where the processor counts them, else cpu-clock]: a timer (cpu-clock,
    /// task-clock), a counter of the processor (cycles, instructions, cache-misses, ...) or of the kernel (page-faults,
    /// minor-faults, major-faults, context-switches, cpu-migrations, ...), a tracepoint (GROUP:NAME), or a probe in a
    /// program (uprobe:/PATH:SYMBOL, uprobe:/PATH:SYMBOL+OFFSET, or uprobe:/PATH:0xADDRESS as nm prints it)
    #[expect(clippy::doc_markdown, reason = "the help shows it as it is to be typed")]
    #[arg(short = 'e', long, value_name = "EVENT")]
    event: Option<EventSpec>,
    /// Samples a second and CPU [default: 999 for timers and counters of the processor]
    #[arg(short = 'F', long = "freq", value_name = "HZ", value_parser = values::rate, conflicts_with = "count")]
    freq: Option<u64>,
    /// One sample for every N events of a CPU, nanoseconds for timers [default: 1 for what happens rather than takes
    /// time: page faults, context switches, tracepoints, probes]
    #[arg(short = 'c', long, value_name = "N", value_parser = values::period)]
    count: Option<u64>,
    /// Record every process of the machine; with a command, for as long as it runs
    #[arg(short = 'a', long, conflicts_with = "pid")]
    all_cpus: bool,
    /// Record these running processes and their future children
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Record these running threads, and none they will make; as with perf, they are numbered as by ps -L
    #[arg(short, long, value_name = "TID", value_delimiter = ',', conflicts_with_all = ["pid", "all_cpus", "cgroup"])]
    tid: Vec<u32>,
    /// Record the processes of this control group and of those below it: its directory, or its name below a mount of
    /// control groups, of version 2 or 1; with a command, for as long as that runs (it is not moved into the group)
    #[arg(short = 'G', long, value_name = "CGROUP", conflicts_with_all = ["pid", "all_cpus"])]
    cgroup: Option<PathBuf>,
    /// With -a and -G: leave fpprof itself out, which is what happens unless --include-self says otherwise
    #[arg(long, conflicts_with = "include_self")]
    exclude_self: bool,
    /// With -a and -G: record fpprof itself too
    #[arg(long)]
    include_self: bool,
    /// Beside the event: sample the time that threads are blocked, off their CPUs, with the stacks that blocked; shown by
    /// --event off-cpu of report, flamegraph and export. Waits shorter than TIME (50us, 1ms, 0 for any) are counted only;
    /// those of threads that had to make way for others too. The time includes the wait for a CPU after the wake-up, as in
    /// perf and bcc. Needs eBPF; before Linux 6.15 it costs more, since the stacks of short waits are copied too
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = DEFAULT_WAIT, value_parser = values::wait)]
    off_cpu: Option<Duration>,
    /// How stacks are taken: fp, dwarf[,BYTES] or both[,BYTES]; BYTES may carry K or M and exceed 64K
    #[arg(long, value_name = "MODE", default_value = "both", value_parser = values::sized_call_graph)]
    call_graph: values::CallGraph,
    /// How samples are taken: with eBPF, by perf events alone (own processes need no privilege; at most 65528 BYTES), or
    /// with eBPF unless it is refused
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = CollectorChoice::Auto)]
    collector: CollectorChoice,
    /// Frame pointers, as perf's -g: the same as --call-graph fp
    #[arg(short = 'g', conflicts_with = "call_graph")]
    frame_pointers: bool,
    /// Leave out kernel stacks
    #[arg(long)]
    no_kernel_stacks: bool,
    /// Where the recording goes; `-` is stdout. An older file of that name is kept as FILE.old
    #[arg(short, long, value_name = "FILE", default_value = "fpprof.fpprof")]
    output: PathBuf,
    /// End after so many seconds; a command that still runs gets SIGTERM, as with perf
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    duration: Option<Duration>,
    /// Bytes of ring buffer for each CPU
    #[arg(short = 'm', long, value_name = "BYTES", value_parser = values::size)]
    ring_size: Option<u64>,
    /// Keep stack words that point nowhere; without this they are zeroed, since they can hold secrets
    #[arg(long)]
    keep_raw_stacks: bool,
    /// Measure the time in the BPF programs too, for the cost in the report. The kernel then measures it of every BPF program
    /// of the machine, which slows all of them down a little, until the recording ends
    #[arg(long)]
    stats: bool,
    /// Fail if more than so many per cent of the samples were lost or dropped
    #[arg(long, value_name = "PERCENT", value_parser = crate::gate::percent)]
    max_lost: Option<f64>,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// Print libbpf's messages, with the verifier's log if the kernel refuses the BPF programs
    #[arg(short, long)]
    verbose: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How samples are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CollectorChoice {
    /// eBPF, or perf events if that is refused, with the reason
    Auto,
    /// eBPF or nothing
    Ebpf,
    /// Perf events alone
    PerfEvent,
}

impl From<CollectorChoice> for CollectorWish {
    fn from(choice: CollectorChoice) -> Self {
        match choice {
            CollectorChoice::Auto => Self::Auto,
            CollectorChoice::Ebpf => Self::Ebpf,
            CollectorChoice::PerfEvent => Self::PerfEvent,
        }
    }
}

/// Runs the subcommand; gives the exit status.
///
/// # Errors
/// If nothing could be recorded.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let request = request(args)?;
    if args.verbose {
        fpprof_collector::print_libbpf_messages();
    }
    if args.dry_run {
        say(&format!("{request:#?}"));
        return Ok(DONE);
    }
    let stop = StopFlag::on_signals().context("watching for signals")?;
    let mut line = crate::progress::Line::new(!args.quiet && std::io::stderr().is_terminal());
    let file = RecordingFile::until(&args.output, stop);
    let undo = file.undo();
    let recorded = if args.output == Path::new("-") {
        let stdout = Patient::stdout(stop).context("writing to stdout")?;
        fpprof_collector::record(&request, stdout, stop, &mut |update| line.hear(update))
    } else {
        fpprof_collector::record(&request, file, stop, &mut |update| line.hear(update))
    };
    line.clear();
    match recorded {
        Ok(outcome) => closed(args, &outcome),
        Err(error) => {
            undo.undo();
            Ok(refused(error))
        }
    }
}

/// What was asked for.
fn request(args: &Args) -> anyhow::Result<Request> {
    let usage = |text: &str| anyhow::Error::new(Usage(text.to_owned()));
    let command = (!args.command.is_empty()).then(|| args.command.clone());
    let target = match (command, args.all_cpus) {
        (Some(_), _) if !args.pid.is_empty() => return Err(usage("give a command or -p PID, not both")),
        (Some(_), _) if !args.tid.is_empty() => return Err(usage("give a command or -t TID, not both")),
        (argv, _) if args.cgroup.is_some() => Target::Cgroup { path: args.cgroup.clone().unwrap_or_default(), argv },
        (Some(argv), true) => Target::SystemWhile { argv },
        (Some(argv), false) => Target::Command { argv },
        (None, true) => Target::System,
        (None, false) if !args.pid.is_empty() => Target::Pids(args.pid.clone()),
        (None, false) if !args.tid.is_empty() => Target::Threads(args.tid.clone()),
        (None, false) => {
            return Err(usage("nothing to record: give a command after `--`, or -p PID, -t TID, -G CGROUP, or -a"));
        }
    };
    let ring_bytes = args.ring_size.map(usize::try_from).transpose();
    let collector = CollectorWish::from(args.collector);
    let by_perf_events = collector == CollectorWish::PerfEvent;
    let largest = if by_perf_events { fpprof_collector::MAX_PERF_EVENT_STACK_BYTES } else { u32::MAX };
    let request = Request {
        sampling: sampling(args),
        event: args.event.clone().unwrap_or_default(),
        off_cpu: args.off_cpu,
        mode: if args.frame_pointers { CaptureMode::Fp } else { args.call_graph.up_to(largest) },
        kernel_stacks: !args.no_kernel_stacks,
        duration: args.duration,
        ring_bytes: ring_bytes.map_err(|_error| usage("-m is larger than the memory of any machine"))?,
        keep_raw_stacks: args.keep_raw_stacks,
        statistics: args.stats,
        exclude_self: args.exclude_self || !args.include_self,
        collector,
        ..Request::new(target)
    };
    Ok(request)
}

/// How often: as typed, else as is usual of the event.
fn sampling(args: &Args) -> Sampling {
    let usual = || args.event.clone().unwrap_or_default().usual_sampling();
    let typed = args.freq.map(Sampling::FrequencyHz).or(args.count.map(Sampling::Period));
    typed.unwrap_or_else(usual)
}

/// The time that a tick stands for, of events that count time.
fn tick_s(args: &Args) -> Option<f64> {
    let counts_time = !args.event.as_ref().is_some_and(EventSpec::counts_occurrences);
    match sampling(args) {
        Sampling::FrequencyHz(hz) if counts_time => Some(1.0 / as_f64(hz)),
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates are below 2^53")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

/// Nothing was recorded: the shell's exit statuses for commands that do not start.
fn refused(error: Error) -> u8 {
    let status = error.exit_status();
    say(&format!("fpprof: {}", told(&error.into())));
    status
}

/// Says how it went, and gives the exit status.
fn closed(args: &Args, outcome: &Outcome) -> anyhow::Result<u8> {
    if !args.quiet {
        crate::closing::say_outcome(outcome, tick_s(args), &args.output)?;
    }
    if let EndReason::WriteFailed(errno) = outcome.end.reason {
        let error = std::io::Error::from_raw_os_error(errno);
        let dropped: u64 = outcome.end.cpus.iter().map(|cpu| cpu.dropped).sum();
        say(&format!(
            "fpprof: {}: {error}; {dropped} samples were dropped, the rest can be read",
            args.output.display()
        ));
        return Ok(FAILED);
    }
    let status = match outcome.target_status {
        Some(TargetStatus::Exited(status)) => u8::try_from(status & 0xff).unwrap_or(FAILED),
        Some(TargetStatus::Killed(signal)) => {
            u8::try_from(signal).map_or(FAILED, |signal| 128_u8.saturating_add(signal))
        }
        None => DONE,
    };
    if outcome.samples == 0 {
        // An empty profile must not look like a good one.
        say(match args.event.as_ref().filter(|event| event.counts_occurrences()) {
            Some(_) => {
                "fpprof: no sample was taken: the event did not happen in the target, or less often than -c says"
            }
            None => {
                "fpprof: no sample was taken: the target used no CPU time, or ended within the first tick; try a higher -F"
            }
        });
        return Ok(status.max(FAILED));
    }
    if let Some(failure) = args.max_lost.and_then(|max| lost_failure(outcome, max)) {
        say(&format!("fpprof: {failure}"));
        return Ok(status.max(FAILED));
    }
    Ok(status)
}

fn lost_failure(outcome: &Outcome, most_percent: f64) -> Option<String> {
    let lost = |cpu: &CpuCounters| cpu.lost.values().fold(cpu.dropped, |sum, &n| sum.saturating_add(n));
    let cpus = &outcome.end.cpus;
    // Each event by itself: many of one must not hide what was lost of another.
    let mut events: Vec<u16> = cpus.iter().map(|cpu| cpu.event).collect();
    events.sort_unstable();
    events.dedup();
    let failure = |event| {
        let of_event = || cpus.iter().filter(|cpu| cpu.event == event);
        let recorded = of_event().map(|cpu| cpu.recorded).fold(0, u64::saturating_add);
        crate::gate::lost_failure(of_event().map(lost).fold(0, u64::saturating_add), recorded, most_percent)
    };
    events.into_iter().find_map(failure)
}
