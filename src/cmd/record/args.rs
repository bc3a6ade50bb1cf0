//! The arguments of `fpprof record`.

use crate::exit::Usage;
use crate::values;
use clap::ArgAction;
use fpprof_collector::{CollectorKind, EventSpec, Request, Target};
use fpprof_recording::model::{CaptureMode, Sampling};
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default for the shortest wait that is sampled. With it a context switch costs 0.2 µs; if every wait is sampled,
/// 0.5 to 1 µs (`off_cpu_cost`, an example of the collector).
const DEFAULT_WAIT: &str = "50us";

/// Default for how far equal samples may be apart: most of what there is to save, and little to lose with a recorder that
/// is killed.
const DEFAULT_AGGREGATE: &str = "10s";

/// Default for the time that a file of a store covers.
const DEFAULT_LIVE: &str = "10s";

/// Headings of the options in the help.
const TARGET: &str = "Target";
const SAMPLING: &str = "Sampling";
const STACKS: &str = "Stacks";
const OUTPUT: &str = "Output";
const OTHER: &str = "Other";
/// clap's description of `--help`, repeated because the option is in a group here.
const HELP: &str = "Print help (see more with '--help')";
const HELP_LONG: &str = "Print help (see a summary with '-h')";

/// Record a command, processes, threads, a cgroup or the whole machine
///
/// Exits with the status of the command: 127 if it was not found, 126 if it could not be run, 128+N if signal N killed
/// it. Exits with 1 if the command succeeded and not a single sample was taken.
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
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
  fpprof record -a --duration 5 --call-graph fp
  fpprof record --live -F 99 --call-graph auto -a --duration 1h; fpprof serve fpprof.store"
)]
pub(crate) struct Args {
    /// Record all processes; with a command, for as long as it runs
    #[arg(short = 'a', long, conflicts_with = "pid", help_heading = TARGET)]
    all_cpus: bool,
    /// Record running processes and the children they start
    #[arg(short, long, value_name = "PID", value_delimiter = ',', help_heading = TARGET)]
    pid: Vec<u32>,
    /// Record running threads (numbers as in `ps -L`), without the threads they start
    #[arg(
        short, long, value_name = "TID", value_delimiter = ',', conflicts_with_all = ["pid", "all_cpus", "cgroup"],
        help_heading = TARGET
    )]
    tid: Vec<u32>,
    /// Record the processes of a cgroup and the cgroups below it; with a command, for as long as it runs
    ///
    /// CGROUP is a directory, or a name below a cgroup mount (version 1 or 2). The command is not moved into the cgroup.
    #[arg(short = 'G', long, value_name = "CGROUP", conflicts_with_all = ["pid", "all_cpus"], help_heading = TARGET)]
    cgroup: Option<PathBuf>,
    /// With -a and -G: do not record fpprof itself (the default)
    #[arg(long, conflicts_with = "include_self", help_heading = TARGET)]
    exclude_self: bool,
    /// With -a and -G: also record fpprof itself
    #[arg(long, help_heading = TARGET)]
    include_self: bool,
    /// Event to sample [default: cycles if the processor counts them, else cpu-clock]
    ///
    /// A timer (cpu-clock, task-clock), a hardware counter (cycles, instructions, cache-misses, ...), a software counter
    /// (page-faults, minor-faults, major-faults, context-switches, cpu-migrations, ...), a tracepoint (GROUP:NAME), or a
    /// user-space probe (uprobe:/PATH:SYMBOL, uprobe:/PATH:SYMBOL@VERSION, uprobe:/PATH:SYMBOL+OFFSET, or
    /// uprobe:/PATH:0xADDRESS as nm prints it).
    /// With perf events, the default is cpu-clock where the kernel is sampled too.
    #[expect(clippy::doc_markdown, reason = "the help shows it as it is to be typed")]
    #[arg(short = 'e', long, value_name = "EVENT", help_heading = SAMPLING)]
    event: Option<EventSpec>,
    /// Samples per second on each CPU [default: 999 for timers and hardware counters]
    #[arg(
        short = 'F', long = "freq", value_name = "HZ", value_parser = values::rate, conflicts_with = "count",
        help_heading = SAMPLING
    )]
    freq: Option<u64>,
    /// Sample one in N events on each CPU; for timers, N is in nanoseconds [default: 1 for software counters,
    /// tracepoints and probes]
    #[arg(short = 'c', long, value_name = "N", value_parser = values::period, help_heading = SAMPLING)]
    count: Option<u64>,
    /// Also sample waits: how long threads block, and their stacks; only waits of TIME or longer (50us, 1ms, 0 for all)
    ///
    /// Show waits with `--event off-cpu` (report, flamegraph, export). Shorter waits and preemptions are only counted. The
    /// default TIME is 50us; it includes the wait for a CPU after the wake-up, as in perf and bcc. Needs eBPF. Costs more
    /// before Linux 6.15: there the stacks of short waits are copied, too.
    #[arg(
        long, value_name = "TIME", num_args = 0..=1, default_missing_value = DEFAULT_WAIT, value_parser = values::wait_option,
        help_heading = SAMPLING
    )]
    off_cpu: Option<Duration>,
    /// How to take stacks: fp, dwarf[,BYTES], both[,BYTES][,1/N], cfi[,BYTES][,verify=N][,fp] or auto; BYTES may end in K or
    /// M and exceed 64K
    ///
    /// fp: frame pointers. dwarf: copies BYTES of stack, unwound later. both: both in every sample, or
    /// with 1/N frame pointers in all and copied stacks in one of N, to compare cheaply (needs eBPF). cfi: walks the stack in the
    /// kernel using call frame information; if a rule is missing, it copies the stack as dwarf does. verify=N also copies the
    /// stack of one walk in N (default 100, 0 for none), and `report` compares the two; `,fp` adds frame pointers. cfi needs
    /// eBPF, x86-64 and Linux 6.1 or newer. auto: cfi if possible, else both; takes the options of cfi.
    #[arg(
        long, value_name = "MODE", default_value = "both", value_parser = values::sized_call_graph,
        help_heading = STACKS
    )]
    call_graph: values::CallGraph,
    /// How to sample: with eBPF, or with perf events
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = CollectorChoice::Auto, help_heading = SAMPLING)]
    collector: CollectorChoice,
    /// Same as --call-graph fp (as in perf)
    #[arg(short = 'g', conflicts_with = "call_graph", help_heading = STACKS)]
    frame_pointers: bool,
    /// Do not record kernel stacks
    #[arg(long, help_heading = STACKS)]
    no_kernel_stacks: bool,
    /// Output file, `-` for stdout; an existing FILE is renamed to FILE.old [default: fpprof.fpprof]
    #[arg(short, long, value_name = "FILE", help_heading = OUTPUT)]
    output: Option<PathBuf>,
    /// Unwind while recording: -o is a directory, the store of `fpprof serve`, with a file each TIME [default: 10s]
    ///
    /// For recordings of hours: the store has the stacks by function, with their numbers, and no copied stacks. It is what
    /// `fpprof agent` writes, and Parquet for any other engine. Files that are in it already stay. What cannot be unwound in
    /// time is counted. The default directory is fpprof.store.
    #[arg(
        long, value_name = "TIME", num_args = 0..=1, default_missing_value = DEFAULT_LIVE,
        value_parser = values::aggregated, conflicts_with_all = ["max_size", "switch_output", "aggregate", "keep_raw_stacks"],
        help_heading = OUTPUT
    )]
    pub(super) live: Option<Duration>,
    /// Stop after TIME, seconds or with a unit (10min, 1h); a command that still runs gets SIGTERM
    #[arg(long, value_name = "TIME", value_parser = values::duration, help_heading = SAMPLING)]
    pub(super) duration: Option<Duration>,
    /// Stop when the recording has BYTES; a command that still runs gets SIGTERM
    ///
    /// The file can exceed BYTES by the samples of about a second, and by the file and symbol names that are written at the
    /// end.
    #[arg(long, value_name = "BYTES", value_parser = values::size, help_heading = OUTPUT)]
    max_size: Option<u64>,
    /// Continue in a new file each TIME (30s, 10min, 1h, 1d) or SIZE (100M): FILE.20261125T103000Z, with the time in UTC
    ///
    /// Only with -a or -G; not with --stats or probes. Each file is a complete recording. Sampling pauses for a few tenths
    /// of a second between files.
    #[arg(
        long, value_name = "TIME|SIZE", value_parser = values::switch,
        conflicts_with_all = ["max_size", "pid", "tid", "command", "stats"], help_heading = OUTPUT
    )]
    pub(super) switch_output: Option<values::Switch>,
    /// With --switch-output: keep the newest N complete files of this recording, and remove the others
    #[arg(long, value_name = "N", help_heading = OUTPUT)]
    pub(super) switch_max_files: Option<NonZeroUsize>,
    /// Write equal samples within TIME (1s to 1h) once, with their count: smaller recordings, coarser times [default: 10s]
    ///
    /// Samples are equal if event, CPU, thread and stacks are the same, and the process has mapped nothing, executed no
    /// program and changed no name or cgroup between them. All of them then have the time of the first, at most TIME early;
    /// `report` and `export` say so. Counts, shares and the balance stay exact. The file is written each TIME: a recorder
    /// that is killed loses up to TIME, and the file can exceed --max-size by as much. Not with dwarf or both (without
    /// 1/N), where no two stacks are equal; other copied stacks and waits (--off-cpu) are written one by one.
    #[arg(
        long, value_name = "TIME", num_args = 0..=1, default_missing_value = DEFAULT_AGGREGATE,
        value_parser = values::aggregated, help_heading = OUTPUT
    )]
    aggregate: Option<Duration>,
    /// Size of each CPU's ring buffer [default: 8M to 64M by the size of chunks, less on machines with many CPUs]
    #[arg(short = 'm', long, value_name = "BYTES", value_parser = values::size, help_heading = SAMPLING)]
    ring_size: Option<u64>,
    /// Record all stack words; by default, words that are not addresses are zeroed, as they can hold secrets
    #[arg(long, help_heading = STACKS)]
    keep_raw_stacks: bool,
    /// Also copy the stacks of setuid and other undumpable programs, which may hold secrets
    ///
    /// By default, only their frame-pointer chains are recorded. These are programs that run with other rights than their
    /// caller's, changed their user, or made themselves undumpable (PR_SET_DUMPABLE in prctl(2)).
    #[expect(clippy::doc_markdown, reason = "the help shows it as it is to be typed")]
    #[arg(long, help_heading = STACKS)]
    include_privileged: bool,
    /// Measure the run time of the BPF programs, for the cost in the report
    ///
    /// The kernel then measures every BPF program of the machine until the recording ends, which slows them down a little.
    #[arg(long, help_heading = SAMPLING)]
    stats: bool,
    /// Fail if more than PERCENT of the samples were lost, dropped or missed
    #[arg(long, value_name = "PERCENT", value_parser = crate::gate::percent, help_heading = OUTPUT)]
    pub(super) max_lost: Option<f64>,
    /// Run fpprof with real-time priority PRIO (SCHED_FIFO), so that it can read samples in time
    ///
    /// Without it, samples are lost (and counted) when other programs keep all CPUs busy. Does not apply to the command.
    #[expect(clippy::doc_markdown, reason = "the help shows it as it is to be typed")]
    #[arg(
        short = 'r', long, value_name = "PRIO", value_parser = clap::value_parser!(u8).range(1..=99),
        help_heading = SAMPLING
    )]
    realtime: Option<u8>,
    /// Print errors only
    #[arg(short, long, help_heading = OTHER)]
    pub(super) quiet: bool,
    /// Print libbpf's messages, and the verifier's log if the kernel rejects the BPF programs
    #[arg(short, long, help_heading = OTHER)]
    pub(super) verbose: bool,
    /// Print what would be recorded, and exit
    #[arg(long, help_heading = OTHER)]
    pub(super) dry_run: bool,
    #[arg(short, long, action = ArgAction::Help, help_heading = OTHER, help = HELP, long_help = HELP_LONG)]
    help: Option<bool>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How samples are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CollectorChoice {
    /// eBPF; if it is not available, say why and use perf events
    Auto,
    /// eBPF only
    Ebpf,
    /// Perf events only: needs no privileges for your own processes; at most 65528 bytes of stack
    PerfEvent,
}

impl From<CollectorChoice> for CollectorKind {
    fn from(choice: CollectorChoice) -> Self {
        match choice {
            CollectorChoice::Auto => Self::Auto,
            CollectorChoice::Ebpf => Self::Ebpf,
            CollectorChoice::PerfEvent => Self::PerfEvent,
        }
    }
}

impl Args {
    /// The request that these arguments describe.
    pub(super) fn request(&self) -> anyhow::Result<Request> {
        let usage = |text: &str| anyhow::Error::new(Usage(text.to_owned()));
        let command = (!self.command.is_empty()).then(|| self.command.clone());
        let target = match (command, self.all_cpus) {
            (Some(_), _) if !self.pid.is_empty() => return Err(usage("a command cannot be used with -p PID")),
            (Some(_), _) if !self.tid.is_empty() => return Err(usage("a command cannot be used with -t TID")),
            (argv, _) if self.cgroup.is_some() => {
                Target::Cgroup { path: self.cgroup.clone().unwrap_or_default(), argv }
            }
            (Some(argv), true) => Target::SystemWhile { argv },
            (Some(argv), false) => Target::Command { argv },
            (None, true) => Target::System,
            (None, false) if !self.pid.is_empty() => Target::Pids(self.pid.clone()),
            (None, false) if !self.tid.is_empty() => Target::Threads(self.tid.clone()),
            (None, false) => {
                return Err(usage("nothing to record: give a command after `--`, or -p PID, -t TID, -G CGROUP, or -a"));
            }
        };
        self.refuse_combinations()?;
        let ring_bytes = self.ring_size.map(usize::try_from).transpose();
        let collector = CollectorKind::from(self.collector);
        let by_perf_events = collector == CollectorKind::PerfEvent;
        let largest = if by_perf_events { fpprof_collector::MAX_PERF_EVENT_STACK_BYTES } else { u32::MAX };
        let mode = if self.frame_pointers { CaptureMode::Fp } else { self.call_graph.up_to(largest) };
        if self.aggregate.is_some() && mode.copies_each() {
            return Err(usage(
                "--aggregate writes equal samples once, but no two copied stacks are equal: record with --call-graph cfi, \
                 auto or fp, or without --aggregate",
            ));
        }
        let request = Request {
            sampling: self.sampling(),
            event: self.event.clone().unwrap_or_default(),
            off_cpu: self.off_cpu,
            mode,
            else_mode: self.call_graph.else_mode(),
            kernel_stacks: !self.no_kernel_stacks,
            duration: self.duration,
            max_bytes: self.max_size,
            ring_bytes: ring_bytes.map_err(|_error| usage("-m is too large for this machine"))?,
            aggregate: self.aggregate,
            keep_raw_stacks: self.keep_raw_stacks,
            include_privileged: self.include_privileged,
            only_user: fpprof_collector::user_of_file_capabilities(),
            statistics: self.stats,
            exclude_self: self.exclude_self || !self.include_self,
            collector,
            drop_privileges: true,
            realtime: self.realtime,
            ..Request::new(target)
        };
        Ok(request)
    }

    /// Refuses options that make no sense together.
    fn refuse_combinations(&self) -> anyhow::Result<()> {
        let usage = |text: &str| anyhow::Error::new(Usage(text.to_owned()));
        // clap ignores `requires` if the required option conflicts with one that is given.
        if self.switch_max_files.is_some() && self.switch_output.is_none() {
            return Err(usage("--switch-max-files needs --switch-output, which is for -a and -G"));
        }
        if self.include_self && !self.all_cpus && self.cgroup.is_none() {
            return Err(usage("--include-self applies to -a and -G only"));
        }
        if self.max_size == Some(0) {
            return Err(usage("--max-size must be above 0"));
        }
        if self.switch_output.is_some() && self.event.as_ref().is_some_and(EventSpec::is_probe) {
            // The second file would need the privilege that is dropped when the first one begins.
            return Err(usage("--switch-output cannot be used with probes, which need CAP_SYS_ADMIN for each file"));
        }
        if self.switch_output.is_some() && self.output() == Path::new("-") {
            return Err(usage("--switch-output writes files: pass their name with -o"));
        }
        if self.live.is_some() && self.output() == Path::new("-") {
            return Err(usage("--live writes a directory: pass its name with -o"));
        }
        Ok(())
    }

    /// Where the recording or the store is written.
    pub(super) fn output(&self) -> &Path {
        let usual = if self.live.is_some() { "fpprof.store" } else { "fpprof.fpprof" };
        self.output.as_deref().unwrap_or(Path::new(usual))
    }

    /// The sampling rate or period as given, else the event's default.
    fn sampling(&self) -> Sampling {
        let usual = || self.event.clone().unwrap_or_default().usual_sampling();
        let typed = self.freq.map(Sampling::FrequencyHz).or(self.count.map(Sampling::Period));
        typed.unwrap_or_else(usual)
    }

    /// Whether the event counts occurrences, and not time.
    pub(super) fn counts_occurrences(&self) -> bool {
        self.event.as_ref().is_some_and(EventSpec::counts_occurrences)
    }

    /// The time that a tick represents, for events that count time, in seconds.
    pub(super) fn tick_s(&self) -> Option<f64> {
        match self.sampling() {
            Sampling::FrequencyHz(hz) if !self.counts_occurrences() => Some(1.0 / as_f64(hz)),
            _ => None,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates are below 2^53")]
fn as_f64(value: u64) -> f64 {
    value as f64
}
