//! What can go wrong. Every message says what was wanted, what failed, and what to do.

use std::io;
use std::path::PathBuf;

/// Why nothing was, or could be, recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The command is in no directory of `PATH`, or its path does not exist. Shells exit with 127.
    #[error("command not found: {}", .0.display())]
    CommandNotFound(PathBuf),
    /// The command is there but cannot be executed. Shells exit with 126.
    #[error("cannot execute {}: {source}", .path.display())]
    CommandNotExecutable {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The command has no name, or an argument holds a zero byte.
    #[error("the command is empty or has an argument with a NUL byte")]
    BadCommand,
    /// There is no such process.
    #[error("no process with PID {0}; see `ps -e`")]
    NoSuchProcess(u32),
    /// There is no such thread.
    #[error("no thread with TID {0}; see `ps -eL`")]
    NoSuchThread(u32),
    /// The process is another user's, and the program has its rights from its file.
    #[error(
        "{0} belongs to another user: with file capabilities (setcap), fpprof records only your own processes by PID or \
         TID; run it as root, or record with -a, which copies no stacks of other users' processes"
    )]
    ProcessOfOtherUser(u32),
    /// Stacks that must not be dumped, and the program has its rights from its file.
    #[error("with file capabilities (setcap), --include-privileged is not allowed; run fpprof as root")]
    NotOfFileCapabilities,
    /// There is no such control group.
    #[error(
        "no such cgroup: {}; pass its directory, or its name below one of these mounts: {mounts}", .asked.display()
    )]
    NoSuchCgroup {
        /// What was asked for.
        asked: PathBuf,
        /// Where hierarchies are mounted.
        mounts: String,
    },
    /// A hierarchy of version 1 that only groups processes: the kernel does not say of a task where it is in it.
    #[error(
        "cgroup {} is in a hierarchy without a controller, which cannot be sampled; pass a cgroup of another \
         hierarchy, such as cpu or the unified one", .0.display()
    )]
    CgroupWithoutController(PathBuf),
    /// The kernel gives no real-time priority.
    #[error(
        "cannot run with real-time priority {priority}: {source}; that needs root, or `ulimit -r {priority}`, and a cgroup \
         that may have real-time threads"
    )]
    Realtime {
        /// What was asked for.
        priority: u8,
        /// What the kernel said.
        source: io::Error,
    },
    /// An empty list of processes or threads.
    #[error("no process to record; pass at least one PID")]
    NoProcess,
    /// A chunk size that cannot be.
    #[error("cannot copy {asked} bytes of stack per sample; choose 1 to {max}")]
    StackBytes {
        /// What was asked for.
        asked: u64,
        /// The limit.
        max: u64,
    },
    /// The ring must hold two samples.
    #[error("a ring buffer of {asked} bytes cannot hold two samples; pass -m {needed} or more")]
    RingTooSmall {
        /// What was asked for.
        asked: u64,
        /// The smallest that will do.
        needed: u64,
    },
    /// The ring is beyond reason.
    #[error("a ring buffer of {asked} bytes per CPU is too large; pass -m {max} or less")]
    RingTooLarge {
        /// What was asked for.
        asked: u64,
        /// The limit.
        max: u64,
    },
    /// A rate or period of zero.
    #[error("the sampling rate and period must not be 0")]
    ZeroRate,
    /// The kernel does not allow this rate.
    #[error(
        "the kernel does not allow sampling at {asked} Hz; choose at most {max} Hz, or raise the limit: sysctl \
         kernel.perf_event_max_sample_rate={asked}"
    )]
    RateTooHigh {
        /// What was asked for.
        asked: u64,
        /// `kernel.perf_event_max_sample_rate`.
        max: u64,
    },
    /// Capabilities are missing.
    #[error("eBPF needs {missing}; run as root, or run `fpprof doctor` to see how to allow it")]
    MissingCapability {
        /// Names, such as `CAP_BPF and CAP_PERFMON`.
        missing: &'static str,
    },
    /// The kernel lacks something.
    #[error("eBPF needs a kernel with {missing} (this is {kernel})")]
    MissingKernelFeature {
        /// What, such as an option of its configuration.
        missing: &'static str,
        /// `uname -r`.
        kernel: String,
    },
    /// Stacks cannot be walked in the kernel here.
    #[error("--call-graph cfi needs {needed} (this is {kernel}); use --call-graph dwarf or both")]
    NoCfiWalk {
        /// What is missing.
        needed: &'static str,
        /// `uname -r`.
        kernel: String,
    },
    /// Process ids would not be those the kernel samples.
    #[error(
        "fpprof runs in a PID namespace, where it cannot see the kernel's process ids; run it on the host, or in a \
         container with --pid=host"
    )]
    PidNamespace,
    /// The BPF programs were refused.
    #[error(
        "the kernel rejected the BPF programs: {reason} (`fpprof doctor` shows what is missing, -v prints libbpf's \
         log)"
    )]
    Bpf {
        /// What libbpf and the kernel's verifier said last.
        reason: String,
        /// The error they ended with.
        source: libbpf_rs::Error,
    },
    /// The BPF programs were loaded, but cannot be used.
    #[error("the kernel rejected the BPF programs: {what}: {source}")]
    BpfSetup {
        /// What was wanted.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// What is asked for needs eBPF, which was refused.
    #[error("cannot {action} without eBPF: {reason}")]
    NeedsEbpf {
        /// What was asked for.
        action: &'static str,
        /// Why eBPF was refused.
        reason: Box<Self>,
    },
    /// A perf event was refused.
    #[error("cannot open perf event {event} on CPU {cpu}: {source}; `fpprof doctor` shows what is missing")]
    PerfEvent {
        /// perf's name of it.
        event: String,
        /// The CPU.
        cpu: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// The processor counts no such thing, or not here.
    #[error(
        "cannot sample {event}: this machine has no hardware counter (PMU) for it, as is common in virtual machines; \
         sample by the timer (-e cpu-clock), or use a machine with a PMU"
    )]
    NoHardwareEvent {
        /// perf's name of it.
        event: String,
    },
    /// The kernel's list of tracepoints is not there.
    #[error("cannot look up {event}: tracefs is not mounted; mount it: mount -t tracefs tracefs /sys/kernel/tracing")]
    TracefsNotMounted {
        /// What was asked for.
        event: String,
    },
    /// It may not be read.
    #[error(
        "cannot read tracepoints in {}: {source}; run as root, or let this user read them: mount -o remount,mode=755 \
         {}", .path.display(), .path.display()
    )]
    TracefsRefused {
        /// Where it is mounted.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// There is no such tracepoint.
    #[error("no tracepoint {event} in this kernel; list them with: cat {}/available_events", .mount.display())]
    NoTracepoint {
        /// What was asked for.
        event: String,
        /// Where tracefs is mounted.
        mount: PathBuf,
    },
    /// The kernel has no probes in programs.
    #[error("probes need a kernel with CONFIG_UPROBE_EVENTS (this is {kernel})")]
    MissingProbes {
        /// `uname -r`.
        kernel: String,
    },
    /// The file of a probe cannot be read.
    #[error("cannot probe {}: {source}", .file.display())]
    ProbeFile {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// The file has no such place.
    #[error(
        "{} has no {place}; list its functions with `nm {}` or `nm -D`, or pass an address as \
         0xADDRESS", .file.display(), .file.display()
    )]
    NoSuchPlace {
        /// The file.
        file: PathBuf,
        /// In words: a function, or code at a symbol and offset or at an address.
        place: String,
    },
    /// A rate of an event that has none.
    #[error("cannot sample {event} at a rate; use -c N to sample one in N")]
    RateOfOccurrences {
        /// What was asked for.
        event: String,
    },
    /// The collector without BPF may not do this.
    #[error("perf events cannot {action}: that needs {missing}")]
    PerfEventRefused {
        /// What was wanted.
        action: &'static str,
        /// What would allow it.
        missing: &'static str,
    },
    /// The kernel does not copy that much.
    #[error(
        "perf events cannot copy {asked} bytes of stack; choose a multiple of 8 up to {max}, or record with eBPF, \
         which needs CAP_BPF and CAP_PERFMON"
    )]
    PerfEventStackBytes {
        /// What was asked for.
        asked: u32,
        /// The kernel's limit.
        max: u32,
    },
    /// Even the smallest rings are more than this user may lock.
    #[error(
        "cannot lock {ring_bytes} bytes for each CPU's ring buffer; use fewer bytes of stack or a smaller buffer \
         (-m), or raise the limit: ulimit -l, or sysctl kernel.perf_event_mlock_kb=4096"
    )]
    LockedMemory {
        /// The smallest that was tried.
        ring_bytes: usize,
    },
    /// Another system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The recording could not be started.
    #[error(transparent)]
    Recording(#[from] fpprof_recording::Error),
}

impl Error {
    /// For `map_err`: a failed system call, and what it was for.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// For `map_err`: a failed system call that the BPF programs need, and what it was for.
    pub(crate) fn bpf_setup(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::BpfSetup { what, source }
    }

    /// For `map_err`: a failure of libbpf, with what it logged.
    pub(crate) fn bpf(source: libbpf_rs::Error) -> Self {
        Self::Bpf { reason: crate::bpf::refusal().unwrap_or_else(|| source.to_string()), source }
    }

    /// Whether eBPF was refused, so that perf events may do.
    #[must_use]
    pub fn is_about_ebpf(&self) -> bool {
        matches!(
            self,
            Self::MissingCapability { .. }
                | Self::MissingKernelFeature { .. }
                | Self::PidNamespace
                | Self::Bpf { .. }
                | Self::BpfSetup { .. }
        )
    }

    /// The status a shell would exit with: 127 and 126 for commands that cannot be started, else 1.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::CommandNotFound(_) => 127,
            Self::CommandNotExecutable { .. } => 126,
            _ => 1,
        }
    }
}
