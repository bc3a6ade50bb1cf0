//! What can be asked for, and what comes back.

use crate::bpf::types;
use crate::error::Error;
use crate::event::EventSpec;
use crate::note::Note;
use crate::parse::{FileParser, ParseHere};
use fpprof_recording::model::{CaptureMode, Collector, End, Event, Sampling};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of stack that can be copied for one sample without BPF. A whole sample is below 64 KiB, so that of so many
/// bytes the kernel leaves away as many as head, registers and chain take (some 300).
///
/// # Sources
/// `kernel/events/core.c`: `perf_copy_attr` (below `USHRT_MAX`, a multiple of 8) and `perf_sample_ustack_size`.
pub const MAX_PERF_EVENT_STACK_BYTES: u32 = 65_528;

/// Processes that can be left out.
pub(crate) const MAX_EXCLUDED: usize = types::limit::MAX_EXCLUDED.0 as usize;

/// What to record, and how.
#[derive(Debug, Clone)]
pub struct Request {
    /// Whom.
    pub target: Target,
    /// By what.
    pub event: EventSpec,
    /// How often; [`EventSpec::usual_sampling`] of the event, unless asked for.
    pub sampling: Sampling,
    /// Beside that: waits of at least so long, each a sample with the stacks that blocked. Needs eBPF.
    pub off_cpu: Option<Duration>,
    /// What of the user stack. Chunks of 1 byte to 16 MiB.
    pub mode: CaptureMode,
    /// The same where `mode` is not possible here, see [`Update::Mode`]. `None`: nothing is recorded there.
    pub else_mode: Option<CaptureMode>,
    /// Whether to record kernel stacks.
    pub kernel_stacks: bool,
    /// When to end; `None` for the end of the target or a signal.
    pub duration: Option<Duration>,
    /// End when the recording has so many bytes; what is read by then comes on top.
    pub max_bytes: Option<u64>,
    /// Room of one CPU's ring, rounded up to a power of two, at most 256 MiB. `None`: room for 160 of the largest samples, but
    /// 8 to 64 MiB; less on machines where all rings together would take more than 256 MB of memory.
    pub ring_bytes: Option<usize>,
    /// The rings are read at least so often, and the more often the faster they fill. 100 ms, unless asked for.
    pub poll: Duration,
    /// Threads that encode samples. `None`: none but the reader itself, and up to a quarter of the CPUs when it cannot keep up.
    pub encoder_threads: Option<usize>,
    /// With [`Target::System`] and [`Target::Cgroup`]: leave this process out. Its ticks are counted as skipped.
    pub exclude_self: bool,
    /// Another process to leave out with it: one that works for it.
    pub worker_pid: Option<u32>,
    /// Who parses the files of the profiled programs.
    pub parser: Arc<dyn FileParser>,
    /// Write stacks as they are, rather than with all words zeroed that point into no mapping.
    pub keep_raw_stacks: bool,
    /// Copy stacks also of processes that may not be dumped (see `PR_SET_DUMPABLE` in prctl(2)): setuid programs, and those
    /// that changed their user or asked for it.
    pub include_privileged: bool,
    /// The only user whose processes may be looked into, see [`crate::user_of_file_capabilities`]: processes and threads of
    /// others are refused, and in a recording of everything or of a cgroup their stacks are not copied.
    pub only_user: Option<u32>,
    /// Measure the time in our BPF programs, which eBPF only has. The kernel then measures it of every BPF program of the
    /// machine, which slows all of them down a little, until the recording ends.
    pub statistics: bool,
    /// How samples are to be taken.
    pub collector: CollectorKind,
    /// Before sampling begins, the calling thread drops for good all capabilities that sampling does not need. A command keeps
    /// them.
    pub drop_privileges: bool,
    /// Real-time priority (`SCHED_FIFO`, 1 to 99) of the calling thread and of those that encode, from when the command was
    /// forked. `None`: that of the caller.
    pub realtime: Option<u8>,
}

impl Request {
    /// perf's habits: 999 Hz, frame pointers with kernel stacks, until the target ends.
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
            poll: Duration::from_millis(100),
            encoder_threads: None,
            exclude_self: true,
            worker_pid: None,
            parser: Arc::new(ParseHere),
            keep_raw_stacks: false,
            include_privileged: false,
            only_user: None,
            statistics: false,
            collector: CollectorKind::Auto,
            drop_privileges: false,
            realtime: None,
        }
    }

    /// Processes to leave out, by number; 0 is none.
    pub(crate) fn excluded_pids(&self) -> [u32; MAX_EXCLUDED] {
        let mut excluded = [0; MAX_EXCLUDED];
        if self.exclude_self {
            let pids = [std::process::id()].into_iter().chain(self.worker_pid).chain(self.parser.pids());
            excluded.iter_mut().zip(pids).for_each(|(slot, pid)| *slot = pid);
        }
        excluded
    }
}

/// How samples are to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CollectorKind {
    /// With eBPF where this user and kernel allow it, else by perf events, see [`Update::Fallback`].
    #[default]
    Auto,
    /// With eBPF, or not at all.
    Ebpf,
    /// By perf events alone.
    PerfEvent,
}

/// Whom to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A command, which is started, and all its descendants, until it ends. As with perf it gets SIGTERM when the
    /// recording ends before it does.
    Command {
        /// Program and arguments. The program is looked up in `PATH`, as a shell does.
        argv: Vec<OsString>,
    },
    /// Running processes, all their threads, and the descendants they will have, until all of them have ended.
    Pids(Vec<u32>),
    /// Running threads, and none they will make, until all of them have ended. Their numbers are those of `ps -L`.
    Threads(Vec<u32>),
    /// The processes of a control group and of those below it, of either version, whenever they are in it: until the
    /// group is removed or, with a command, for as long as that runs.
    Cgroup {
        /// Its directory, or its name below a mount of control groups.
        path: PathBuf,
        /// Program and arguments, as in [`Target::Command`]. It is not moved into the group.
        argv: Option<Vec<OsString>>,
    },
    /// Everything. A timer does not tick on an idle CPU; what other events are there is counted as skipped.
    System,
    /// Everything, for as long as a command runs.
    SystemWhile {
        /// Program and arguments, as in [`Target::Command`].
        argv: Vec<OsString>,
    },
}

/// What is heard of a recording under way.
#[derive(Debug)]
pub enum Update<'a> {
    /// Before it starts: samples come from perf events, since eBPF was refused.
    Fallback(&'a Fallback),
    /// Before it starts, where there was a choice ([`Request::else_mode`]): what is recorded of the user stack.
    Mode(&'a ModeChoice),
    /// Some times a second.
    Progress(&'a Progress),
}

/// Why eBPF does not record, and what of the request changes with that.
#[derive(Debug)]
pub struct Fallback {
    /// Why not.
    pub reason: Error,
    /// Bytes of stack that were asked for, if perf events copy fewer: [`MAX_PERF_EVENT_STACK_BYTES`].
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

/// What is recorded of the user stack where there was a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeChoice {
    /// What.
    pub mode: CaptureMode,
    /// Why.
    pub why: String,
}

/// How a recording is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Time since sampling began.
    pub elapsed: Duration,
    /// Samples handed to the recording.
    pub samples: u64,
    /// Samples lost on the kernel's side.
    pub lost: u64,
    /// Samples that could not be written.
    pub dropped: u64,
    /// Bytes of the recording.
    pub bytes_written: u64,
}

/// How a recording went.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Which collector recorded.
    pub collector: Collector,
    /// What the recording says of its end.
    pub end: End,
    /// How the command ended; `None` for other targets, and when it still runs after SIGTERM.
    pub target_status: Option<TargetStatus>,
    /// From the start of the recording to the end of sampling, as reports say.
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
    /// What else must be said, each once.
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
