//! What can be asked for, and what comes back.

use crate::event::EventWish;
use fpprof_recording::model::{CaptureMode, End, Event, Sampling};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What to record, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Whom.
    pub target: Target,
    /// By what.
    pub event: EventWish,
    /// How often; [`EventWish::usual_sampling`] of the event, unless asked for.
    pub sampling: Sampling,
    /// Beside that: waits of at least so long, each a sample with the stacks that blocked. Needs eBPF.
    pub off_cpu: Option<Duration>,
    /// What of the user stack. Chunks of 1 byte to 16 MiB.
    pub mode: CaptureMode,
    /// Whether to record kernel stacks.
    pub kernel_stacks: bool,
    /// When to end; `None` for the end of the target or a signal.
    pub duration: Option<Duration>,
    /// Room of one CPU's ring, rounded up to a power of two, at most 256 MiB. `None`: room for 160 of the largest samples, but
    /// 8 to 64 MiB; less on machines where all rings together would take more than 512 MiB.
    pub ring_bytes: Option<usize>,
    /// With [`Target::System`] and [`Target::Cgroup`]: leave this process out. Its ticks are counted as skipped.
    pub exclude_self: bool,
    /// Write stacks as they are, rather than with all words zeroed that point into no mapping.
    pub keep_raw_stacks: bool,
    /// How samples are to be taken.
    pub collector: CollectorWish,
}

impl Request {
    /// perf's habits: 999 Hz, frame pointers with kernel stacks, until the target ends.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            event: EventWish::default(),
            sampling: Sampling::FrequencyHz(999),
            off_cpu: None,
            mode: CaptureMode::Fp,
            kernel_stacks: true,
            duration: None,
            ring_bytes: None,
            exclude_self: true,
            keep_raw_stacks: false,
            collector: CollectorWish::Auto,
        }
    }
}

/// How samples are to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CollectorWish {
    /// With eBPF where this user and kernel allow it, else by perf events; see [`crate::choose`].
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
    /// What the recording says of its end.
    pub end: End,
    /// How the command ended; `None` for other targets, and when it still runs after SIGTERM.
    pub target_status: Option<TargetStatus>,
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

/// A fact about a recording that is not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// So many samples in the kernel have no kernel stack, though asked for: the kernel gave none.
    KernelStacksMissing(u64),
    /// The end of so many stacks could not be found out; as many bytes were copied as could be read.
    StackEndUnknown(u64),
    /// So many ticks of the timer never reached the sampling program: it came late, or other BPF programs ran. They count
    /// nowhere in the balance; the number is an estimate from time and rate.
    TicksMissing(u64),
    /// So many occurrences of the event that the kernel counted did not run the sampling program: it runs none while the
    /// CPU is in another program, or in a map's system call. They count nowhere in the balance; the number is exact.
    OccurrencesMissing(u64),
    /// So many CPUs came online during the recording, and were not sampled.
    CpusNotSampled(u64),
    /// The kernel did not say what became of CPUs: those that came online, or went offline and came back, were not
    /// sampled from then on.
    CpusNotWatched,
    /// So many CPUs came online during the recording, and were sampled from then on. What processes did on them in the
    /// moment before may be missing.
    CpusJoined(u64),
    /// So many processes were not followed, because the table of profiled processes was full.
    ProcessesNotFollowed(u64),
    /// So many processes could not be read from `/proc`, because they were gone or not ours to read.
    ProcessesUnreadable(u64),
    /// So many files would be needed by their bytes, because they were deleted or replaced, but could not be kept.
    FilesNotKept(u64),
    /// The command did not end on SIGTERM and was left running.
    TargetStillRuns,
    /// The recording could not be written to the end (errno).
    EndNotWritten(i32),
    /// So many stacks were copied in part only, because the ring was filling up.
    StacksShed(u64),
    /// So many threads were still blocked when the recording ended: the time up to then is in it.
    StillBlocked(u64),
    /// So many threads that were blocked when the recording began were not followed: the table of blocked threads was full.
    WaitsNotFollowed(u64),
    /// So many times of losses could not be written; the losses are counted.
    GapsDropped(u64),
    /// Ticks in the kernel were neither sampled nor counted, as this user may not see them.
    KernelNotSampled,
    /// The rings of the CPUs are smaller than wanted, so many bytes each: this user may lock no more memory.
    SmallRings(usize),
    /// So many processes left the recording when they executed a program with other rights (setuid): the kernel took their
    /// events away.
    EventsRemovedByExec(u64),
    /// So many tables of compiled code were there and were not taken: no regular file, too large, or neither their
    /// process's user's nor root's.
    TablesRefused(u64),
    /// Process events were given up because the recording could not be written.
    ProcessEventsDropped(u64),
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::KernelStacksMissing(n) => write!(f, "{n} samples in the kernel have no kernel stack"),
            Self::StackEndUnknown(n) => write!(f, "the end of {n} stacks could not be found out"),
            Self::TicksMissing(n) => write!(f, "some {n} ticks of the timer came late and were left out"),
            Self::OccurrencesMissing(n) => {
                write!(f, "{n} occurrences did not run the sampling program, and are not in the balance")
            }
            Self::CpusNotSampled(n) => write!(f, "{n} CPUs came online later and were not sampled"),
            Self::CpusNotWatched => {
                write!(
                    f,
                    "CPUs that came online meanwhile were not sampled: the kernel's device events cannot be heard here"
                )
            }
            Self::CpusJoined(n) => write!(f, "{n} CPUs came online meanwhile and were sampled from then on"),
            Self::ProcessesNotFollowed(n) => {
                write!(f, "{n} processes were not followed: the table of processes was full")
            }
            Self::ProcessesUnreadable(n) => {
                write!(f, "{n} processes were gone or unreadable when their mappings were read")
            }
            Self::FilesNotKept(n) => write!(f, "{n} deleted or replaced files could not be kept"),
            Self::TargetStillRuns => write!(f, "the command did not end on SIGTERM and was left running"),
            Self::EndNotWritten(errno) => {
                write!(
                    f,
                    "the end of the recording could not be written: {}",
                    std::io::Error::from_raw_os_error(*errno)
                )
            }
            Self::StacksShed(n) => {
                write!(f, "{n} stacks were cut short because the ring buffer was filling up; a larger -m avoids that")
            }
            Self::StillBlocked(n) => {
                write!(f, "{n} threads were still blocked when the recording ended; the time up to then counts")
            }
            Self::WaitsNotFollowed(n) => {
                write!(
                    f,
                    "{n} threads that were blocked from the beginning were not followed: there was no room for them"
                )
            }
            Self::GapsDropped(n) => write!(f, "the times of {n} losses could not be written"),
            Self::KernelNotSampled => write!(
                f,
                "ticks in the kernel were neither sampled nor counted: that needs CAP_PERFMON \
                 (or: sysctl kernel.perf_event_paranoid=1)"
            ),
            Self::SmallRings(bytes) => write!(
                f,
                "rings of only {bytes} bytes for each CPU: this user may lock no more (ulimit -l, \
                 kernel.perf_event_mlock_kb)"
            ),
            Self::EventsRemovedByExec(n) => write!(
                f,
                "events removed by setuid exec: {n} processes were not sampled from where they executed a program that \
                 gives them other rights; as root, with eBPF or -a, they are"
            ),
            Self::TablesRefused(n) => write!(
                f,
                "{n} tables of compiled code (/tmp/perf-PID.map) were not taken: no regular file of their process's user \
                 or of root, or too large"
            ),
            Self::ProcessEventsDropped(n) => write!(f, "{n} process events could not be written"),
        }
    }
}
