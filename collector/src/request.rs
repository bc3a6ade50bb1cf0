//! Requests and outcomes of recordings.

use crate::bpf::types;
use crate::error::Error;
use crate::event::EventSpec;
use crate::note::Note;
use crate::parse::{FileParser, ParseHere};
use crate::parts_control::PartsControl;
use fpprof_recording::model::{CaptureMode, Collector, End, Event, Sampling};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The most bytes of stack that can be copied for one sample without BPF. A whole sample is less than 64 KiB, so at
/// this size the kernel leaves out as many bytes as header, registers and chain take (some 300).
///
/// # Sources
/// `kernel/events/core.c`: `perf_copy_attr` (below `USHRT_MAX`, a multiple of 8) and `perf_sample_ustack_size`.
pub const MAX_PERF_EVENT_STACK_BYTES: u32 = 65_528;

/// The most processes that can be left out.
pub(crate) const MAX_EXCLUDED: usize = types::limit::MAX_EXCLUDED.0 as usize;

/// What to record, and how.
#[derive(Debug, Clone)]
pub struct Request {
    /// What to profile.
    pub target: Target,
    /// The event that fires samples.
    pub event: EventSpec,
    /// How often to sample; by default the event's [`EventSpec::usual_sampling`].
    pub sampling: Sampling,
    /// Also record waits of at least this length, each as a sample with the stacks that blocked. Needs eBPF.
    pub off_cpu: Option<Duration>,
    /// What to capture of the user stack. Chunks of 1 byte to 16 MiB.
    pub mode: CaptureMode,
    /// The mode to use if `mode` is not possible here, see [`Update::Mode`]. `None`: recording then fails.
    pub else_mode: Option<CaptureMode>,
    /// Whether to record kernel stacks.
    pub kernel_stacks: bool,
    /// How long to record; `None`: until the target ends or a signal arrives.
    pub duration: Option<Duration>,
    /// End when the recording has this many bytes; what has been read by then is added.
    pub max_bytes: Option<u64>,
    /// Bytes of one CPU's ring, rounded up to a power of two, at most 256 MiB. `None`: room for 160 of the largest
    /// samples, but 8 to 64 MiB; less on machines where all rings together would take more than 256 MB of memory.
    pub ring_bytes: Option<usize>,
    /// Whether walks by call frame information get a table of rules of 4 MB instead of 34: room for 17 MB of code. If that is
    /// not enough, [`Progress::rules_do_not_fit`] becomes true.
    pub small_rule_table: bool,
    /// Longest time between reads of the rings, which are read more often the faster they fill. Default: 100 ms.
    pub poll: Duration,
    /// Threads that encode samples. `None`: only the reader itself, plus up to a quarter of the CPUs when it cannot
    /// keep up.
    pub encoder_threads: Option<usize>,
    /// Write equal samples once with their number, if they are not further apart than this; the recording is also
    /// flushed no more often. Only modes that do not copy each stack have equal samples.
    pub aggregate: Option<Duration>,
    /// For a recording that is taken in parts: it is flushed on request, by itself only each ten seconds, and as it may
    /// never end, what it may have of deleted files and compiled code is for ten minutes each. `None`: flushed each second.
    pub parts_control: Option<Arc<PartsControl>>,
    /// How long files that are gone are still copied into the recording after sampling has ended; those left are
    /// counted ([`Note::FilesNotSaved`](crate::Note::FilesNotSaved)). `None`: until all are.
    pub save_limit: Option<Duration>,
    /// With [`Target::System`] and [`Target::Cgroup`]: leave this process out. Its ticks are counted as skipped.
    pub exclude_self: bool,
    /// Leave out the children of this process likewise, from their first instruction on: for a caller whose children all
    /// work for it. eBPF only.
    pub exclude_children: bool,
    /// Another process to leave out likewise: one that works for this one.
    pub worker_pid: Option<u32>,
    /// Parses the files of the profiled programs.
    pub parser: Arc<dyn FileParser>,
    /// Write stacks as they are, instead of zeroing all words that do not point into a mapping.
    pub keep_raw_stacks: bool,
    /// Also copy stacks of non-dumpable processes (see `PR_SET_DUMPABLE` in prctl(2)): setuid programs, and processes
    /// that changed their user or asked for it.
    pub include_privileged: bool,
    /// Names of the environment variables whose values are recorded with the control group of a process, as of when it
    /// executed its program. Nothing else of an environment is kept.
    pub environment: Vec<String>,
    /// The only user whose processes may be looked into, see [`crate::user_of_file_capabilities`]: other users'
    /// processes and threads are refused as targets, and in a recording of everything or of a cgroup, their stacks are
    /// not copied.
    pub only_user: Option<u32>,
    /// Measure the time spent in our BPF programs; eBPF only. Until the recording ends, the kernel then measures every
    /// BPF program on the machine, which slows all of them down a little.
    pub statistics: bool,
    /// How to take samples.
    pub collector: CollectorKind,
    /// Before sampling begins, the calling thread drops for good all capabilities that sampling does not need. A
    /// command keeps them.
    pub drop_privileges: bool,
    /// Real-time priority (`SCHED_FIFO`, 1 to 99) of the calling thread and of the encoding threads, set after the
    /// command was forked. `None`: the caller's priority.
    pub realtime: Option<u8>,
}

impl Request {
    /// perf's defaults: 999 Hz, frame pointers with kernel stacks, until the target ends.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            event: EventSpec::default(),
            sampling: Sampling::FrequencyHz(999),
            off_cpu: None,
            mode: CaptureMode::Fp,
            else_mode: None,
            kernel_stacks: true,
            duration: None,
            max_bytes: None,
            ring_bytes: None,
            small_rule_table: false,
            poll: Duration::from_millis(100),
            encoder_threads: None,
            aggregate: None,
            parts_control: None,
            save_limit: None,
            exclude_self: true,
            exclude_children: false,
            worker_pid: None,
            parser: Arc::new(ParseHere),
            keep_raw_stacks: false,
            include_privileged: false,
            environment: Vec::new(),
            only_user: None,
            statistics: false,
            collector: CollectorKind::Auto,
            drop_privileges: false,
            realtime: None,
        }
    }

    /// Processes to leave out, by PID; 0 is none.
    pub(crate) fn excluded_pids(&self) -> [u32; MAX_EXCLUDED] {
        let mut excluded = [0; MAX_EXCLUDED];
        if self.exclude_self {
            let pids = [std::process::id()].into_iter().chain(self.worker_pid).chain(self.parser.pids());
            excluded.iter_mut().zip(pids).for_each(|(slot, pid)| *slot = pid);
        }
        excluded
    }
}

/// How to take samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CollectorKind {
    /// With eBPF if this user and kernel allow it, else with perf events; see [`Update::Fallback`].
    #[default]
    Auto,
    /// With eBPF, or not at all.
    Ebpf,
    /// With perf events alone.
    PerfEvent,
}

/// What to profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A command, which is started, and all its descendants, until it ends. As in perf, it gets SIGTERM if the
    /// recording ends first.
    Command {
        /// Program and arguments. The program is looked up in `PATH`, as a shell does.
        argv: Vec<OsString>,
    },
    /// Running processes, all their threads, and their future descendants, until all of them have ended.
    Pids(Vec<u32>),
    /// Running threads, without those they will start, until all of them have ended. Thread IDs as in `ps -L`.
    Threads(Vec<u32>),
    /// The processes in a control group of either version and in its descendants, while they are in it: until the
    /// group is removed or, with a command, for as long as the command runs.
    Cgroup {
        /// Its directory, or its name below a mount of control groups.
        path: PathBuf,
        /// Program and arguments, as in [`Target::Command`]. It is not moved into the group.
        argv: Option<Vec<OsString>>,
    },
    /// Everything. A timer does not tick on an idle CPU; other events there are counted as skipped.
    System,
    /// Everything, for as long as a command runs.
    SystemWhile {
        /// Program and arguments, as in [`Target::Command`].
        argv: Vec<OsString>,
    },
}

/// A report about a running recording.
#[derive(Debug)]
pub enum Update<'a> {
    /// Before it starts: perf events are used because eBPF was refused.
    Fallback(&'a Fallback),
    /// Before it starts, if there was a choice ([`Request::else_mode`]): what is captured of the user stack.
    Mode(&'a ModeChoice),
    /// Several times a second.
    Progress(&'a Progress),
}

/// Why eBPF is not used, and how that changes the request.
#[derive(Debug)]
pub struct Fallback {
    /// Why eBPF was refused.
    pub reason: Error,
    /// The requested bytes of stack, if perf events copy fewer: [`MAX_PERF_EVENT_STACK_BYTES`].
    pub clamped_from: Option<u32>,
}

impl std::fmt::Display for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sampling with perf events instead of eBPF")?;
        if let Some(asked) = self.clamped_from {
            write!(f, ", at most {} bytes of stack instead of {asked}", MAX_PERF_EVENT_STACK_BYTES)?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// The capture of the user stack, if there was a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeChoice {
    /// The chosen mode.
    pub mode: CaptureMode,
    /// The reason, as text.
    pub why: String,
}

/// Progress of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Time since sampling began.
    pub elapsed: Duration,
    /// Samples passed to the recording.
    pub samples: u64,
    /// Samples lost on the kernel's side.
    pub lost: u64,
    /// Samples that could not be written.
    pub dropped: u64,
    /// Bytes of the recording.
    pub bytes_written: u64,
    /// Rules of walks by call frame information are missing soon after they were loaded, since others took their place.
    pub rules_do_not_fit: bool,
    /// A CPU has come online that has no ring, as its number is higher than any at the start: all its samples are lost until
    /// another recording begins.
    pub lacks_rings: bool,
}

/// Outcome of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Which collector recorded.
    pub collector: Collector,
    /// The recording's end record.
    pub end: End,
    /// How the command ended; `None` for other targets, and if it still runs after SIGTERM.
    pub target_status: Option<TargetStatus>,
    /// From the start of the recording to the end of sampling, as in reports.
    pub duration: Duration,
    /// How long samples were taken.
    pub sampled_for: Duration,
    /// Bytes of the recording.
    pub bytes_written: u64,
    /// Samples in the recording, of all events.
    pub samples: u64,
    /// The events, as the recording describes them.
    pub events: Vec<Event>,
    /// Time of all waits among the samples, nanoseconds.
    pub blocked_ns: u64,
    /// Further facts to report, each once.
    pub notes: Vec<Note>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetStatus {
    /// It exited with this status.
    Exited(i32),
    /// It was ended by this signal.
    Killed(i32),
}
