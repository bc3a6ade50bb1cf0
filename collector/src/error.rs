//! What can go wrong. Every message says what was wanted, what failed, and what to do.

use std::io;
use std::path::PathBuf;

/// Why nothing was or could be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The command is in no directory of `PATH`, or its path does not exist. Shells exit with 127.
    #[error("command not found: {}", .0.display())]
    CommandNotFound(PathBuf),
    /// The command is there, but what runs it is not. Shells exit with 127.
    #[error("cannot execute {}: its interpreter is not there; a script names it in its first line, for an ELF file \
             `readelf -l` shows it", .0.display())]
    InterpreterNotFound(PathBuf),
    /// The command is there but cannot be executed. Shells exit with 126.
    #[error("cannot execute {}: {source}", .path.display())]
    CommandNotExecutable {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The command has no name, or an argument contains a zero byte.
    #[error("the command is empty or has an argument with a NUL byte")]
    BadCommand,
    /// No such process.
    #[error("no process with PID {0}; see `ps -e`")]
    NoSuchProcess(u32),
    /// A thread was given for a process.
    #[error("{0} is a thread of a process; record it with -t {0}")]
    Thread(u32),
    /// No such thread.
    #[error("no thread with TID {0}; see `ps -eL`")]
    NoSuchThread(u32),
    /// The process belongs to another user, and the program got its capabilities from its file.
    #[error(
        "{0} belongs to another user: with file capabilities (setcap), fpprof records only your own processes by PID or \
         TID; run it as root, or record with -a, which copies no stacks of other users' processes"
    )]
    ProcessOfOtherUser(u32),
    /// Stacks of non-dumpable processes were requested, and the program got its capabilities from its file.
    #[error("with file capabilities (setcap), --include-privileged is not allowed; run fpprof as root")]
    NotOfFileCapabilities,
    /// No such control group.
    #[error(
        "no such cgroup: {}; pass its directory, or its name below one of these mounts: {mounts}", .asked.display()
    )]
    NoSuchCgroup {
        /// The requested control group.
        asked: PathBuf,
        /// Where hierarchies are mounted.
        mounts: String,
    },
    /// A hierarchy of version 1 without a controller: the kernel does not expose a task's group in it.
    #[error(
        "cgroup {} is in a hierarchy without a controller, which cannot be sampled; pass a cgroup of another \
         hierarchy, such as cpu or the unified one", .0.display()
    )]
    CgroupWithoutController(PathBuf),
    /// The kernel refuses the real-time priority.
    #[error(
        "cannot run with real-time priority {priority}: {source}; that needs root, or `ulimit -r {priority}`, and a cgroup \
         that may have real-time threads"
    )]
    Realtime {
        /// The requested priority.
        priority: u8,
        /// The kernel's error.
        source: io::Error,
    },
    /// An empty list of processes or threads.
    #[error("no process to record; pass at least one PID")]
    NoProcess,
    /// An invalid chunk size.
    #[error("cannot copy {asked} bytes of stack per sample; choose 1 to {max}")]
    StackBytes {
        /// The requested size, bytes.
        asked: u64,
        /// The limit, bytes.
        max: u64,
    },
    /// The ring buffer is too small for two samples.
    #[error("a ring buffer of {asked} bytes cannot hold two samples; pass -m {needed} or more")]
    RingTooSmall {
        /// The requested size, bytes.
        asked: u64,
        /// The smallest possible size, bytes.
        needed: u64,
    },
    /// The ring buffer is unreasonably large.
    #[error("a ring buffer of {asked} bytes per CPU is too large; pass -m {max} or less")]
    RingTooLarge {
        /// The requested size, bytes.
        asked: u64,
        /// The limit, bytes.
        max: u64,
    },
    /// Equal samples cannot be summed up in this mode.
    #[error(
        "cannot aggregate samples with copied stacks, since no two are equal; record with --call-graph cfi or fp, or \
         without --aggregate"
    )]
    AggregatesCopies,
    /// A rate or period of zero.
    #[error("the sampling rate and period must not be 0")]
    ZeroRate,
    /// The kernel does not allow this sampling rate.
    #[error(
        "the kernel does not allow sampling at {asked} Hz; choose at most {max} Hz, or raise the limit: sysctl \
         kernel.perf_event_max_sample_rate={asked}"
    )]
    RateTooHigh {
        /// The requested rate, Hz.
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
    /// The kernel lacks a feature.
    #[error("eBPF needs a kernel with {missing} (this is {kernel})")]
    MissingKernelFeature {
        /// The feature, such as a kernel configuration option.
        missing: &'static str,
        /// `uname -r`.
        kernel: String,
    },
    /// Stacks cannot be walked by call frame information in the kernel here.
    #[error("--call-graph cfi needs {needed} (this is {kernel}); use --call-graph dwarf or both")]
    NoCfiWalk {
        /// What is missing.
        needed: &'static str,
        /// `uname -r`.
        kernel: String,
    },
    /// In this PID namespace, process IDs differ from those the kernel samples.
    #[error(
        "fpprof runs in a PID namespace, where it cannot see the kernel's process ids; run it on the host, or in a \
         container with --pid=host"
    )]
    PidNamespace,
    /// The kernel refused the BPF programs.
    #[error(
        "the kernel rejected the BPF programs: {reason} (`fpprof doctor` shows what is missing, -v prints libbpf's \
         log)"
    )]
    Bpf {
        /// The last message of libbpf or the verifier.
        reason: String,
        /// The final error.
        source: libbpf_rs::Error,
    },
    /// The BPF programs were loaded, but could not be set up.
    #[error("the kernel rejected the BPF programs: {what}: {source}")]
    BpfSetup {
        /// The failed action.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The request needs eBPF, which was refused.
    #[error("cannot {action} without eBPF: {reason}")]
    NeedsEbpf {
        /// The requested action.
        action: &'static str,
        /// Why eBPF was refused.
        reason: Box<Self>,
    },
    /// The kernel refused a perf event.
    #[error("cannot open perf event {event} on CPU {cpu}: {source}; `fpprof doctor` shows what is missing")]
    PerfEvent {
        /// perf's name of the event.
        event: String,
        /// The CPU.
        cpu: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel lets this user place no probes.
    #[error("cannot place the probe {event}: {source}; this kernel wants CAP_SYS_ADMIN for probes: run as root")]
    ProbeRefused {
        /// perf's name of the event.
        event: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The processor has no such counter, or none that is usable here.
    #[error(
        "cannot sample {event}: this machine has no hardware counter (PMU) for it, as is common in virtual machines; \
         sample by the timer (-e cpu-clock), or use a machine with a PMU"
    )]
    NoHardwareEvent {
        /// perf's name of the event.
        event: String,
    },
    /// tracefs, the kernel's list of tracepoints, is not mounted.
    #[error("cannot look up {event}: tracefs is not mounted; mount it: mount -t tracefs tracefs /sys/kernel/tracing")]
    TracefsNotMounted {
        /// The requested event.
        event: String,
    },
    /// tracefs may not be read.
    #[error(
        "cannot read tracepoints in {}: {source}; run as root, who alone may read them", .path.display()
    )]
    TracefsRefused {
        /// Its mount point.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// No such tracepoint.
    #[error("no tracepoint {event} in this kernel; list them with: cat {}/available_events", .mount.display())]
    NoTracepoint {
        /// The requested event.
        event: String,
        /// Where tracefs is mounted.
        mount: PathBuf,
    },
    /// The kernel does not support uprobes.
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
        /// The error.
        source: io::Error,
    },
    /// The file does not contain the place to probe.
    #[error(
        "{} has no {place}; list its functions with `nm {}` or `nm -D`, or pass an address as \
         0xADDRESS", .file.display(), .file.display()
    )]
    NoSuchPlace {
        /// The file.
        file: PathBuf,
        /// The place as text: a function, or code at a symbol and offset or at an address.
        place: String,
    },
    /// Several functions of the file have the name of the one to probe.
    #[error(
        "{} has several functions `{function}`; list them with `nm {} | grep {function}`, and pass the address of one as \
         0xADDRESS", .file.display(), .file.display()
    )]
    SeveralPlaces {
        /// The file.
        file: PathBuf,
        /// The name.
        function: String,
    },
    /// The function to probe is an indirect one.
    #[error(
        "the code of `{function}` in {} is chosen when a program starts (an indirect function, `i` in nm); pass the \
         address of the chosen function in the file as 0xADDRESS (that in a process, less where the file is mapped)", .file.display()
    )]
    IndirectFunction {
        /// The file.
        file: PathBuf,
        /// The name.
        function: String,
    },
    /// A sampling rate was requested for an event that cannot have one.
    #[error("cannot sample {event} at a rate; use -c N to sample one in N")]
    RateOfOccurrences {
        /// The requested event.
        event: String,
    },
    /// A timer was requested that would fire more often than the kernel lets it.
    #[error("-c of {event} is a time in nanoseconds, at least {least_ns}")]
    PeriodTooShort {
        /// The requested event.
        event: String,
        /// The shortest period, nanoseconds.
        least_ns: u64,
    },
    /// The collector without BPF may not do this.
    #[error("perf events cannot {action}: that needs {missing}")]
    PerfEventRefused {
        /// The refused action.
        action: &'static str,
        /// What would allow it.
        missing: &'static str,
    },
    /// The kernel cannot copy that many bytes of stack.
    #[error(
        "perf events cannot copy {asked} bytes of stack; choose a multiple of 8 up to {max}, or record with eBPF, \
         which needs CAP_BPF and CAP_PERFMON"
    )]
    PerfEventStackBytes {
        /// The requested bytes.
        asked: u32,
        /// The kernel's limit.
        max: u32,
    },
    /// Even the smallest rings exceed what this user may lock.
    #[error(
        "cannot lock {ring_bytes} bytes for each CPU's ring buffer; use fewer bytes of stack or a smaller buffer \
         (-m), or raise the limit: ulimit -l, or sysctl kernel.perf_event_mlock_kb={mlock_kb}"
    )]
    LockedMemory {
        /// Bytes of the smallest ring that was tried.
        ring_bytes: usize,
        /// What would be enough, kilobytes per CPU.
        mlock_kb: usize,
    },
    /// Another system call failed.
    #[error("{what}: {source}")]
    System {
        /// The failed action.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The recording could not be started.
    #[error(transparent)]
    Recording(#[from] fpprof_recording::Error),
}

impl Error {
    /// For `map_err`: a failed system call and its purpose.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// For `map_err`: a failed system call that the BPF programs need, and its purpose.
    pub(crate) fn bpf_setup(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::BpfSetup { what, source }
    }

    /// A libbpf failure, with what libbpf logged.
    pub(crate) fn bpf(source: libbpf_rs::Error) -> Self {
        Self::Bpf { reason: crate::bpf::refusal().unwrap_or_else(|| source.to_string()), source }
    }

    /// Whether eBPF was refused, so that perf events may work instead.
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
            Self::CommandNotFound(_) | Self::InterpreterNotFound(_) => 127,
            Self::CommandNotExecutable { .. } => 126,
            _ => 1,
        }
    }
}
