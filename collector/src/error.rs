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
    #[error("the command is empty or has an argument with a zero byte in it")]
    BadCommand,
    /// There is no such process.
    #[error("there is no process {0}; check the number with ps")]
    NoSuchProcess(u32),
    /// There is no such thread.
    #[error("there is no thread {0}; check the number with ps -L")]
    NoSuchThread(u32),
    /// There is no such control group.
    #[error(
        "there is no control group {}; give its directory, or its name below one of these mounts: {mounts}", .asked.display()
    )]
    NoSuchCgroup {
        /// What was asked for.
        asked: PathBuf,
        /// Where hierarchies are mounted.
        mounts: String,
    },
    /// A hierarchy of version 1 that only groups processes: the kernel does not say of a task where it is in it.
    #[error(
        "the hierarchy of control group {} has no controller, and a task's place in such a hierarchy cannot be seen \
         while sampling; give the group of another hierarchy, such as cpu or the unified one", .0.display()
    )]
    CgroupWithoutController(PathBuf),
    /// An empty list of processes or threads.
    #[error("no process was named; give at least one number")]
    NoProcess,
    /// A chunk size that cannot be.
    #[error("cannot copy {asked} bytes of stack for each sample; choose from 1 to {max}")]
    StackBytes {
        /// What was asked for.
        asked: u64,
        /// The limit.
        max: u64,
    },
    /// The ring must hold two samples.
    #[error("a ring of {asked} bytes cannot hold two samples; at least {needed} bytes for each CPU are needed")]
    RingTooSmall {
        /// What was asked for.
        asked: u64,
        /// The smallest that will do.
        needed: u64,
    },
    /// The ring is beyond reason.
    #[error("a ring of {asked} bytes for each CPU is more than the limit of {max}")]
    RingTooLarge {
        /// What was asked for.
        asked: u64,
        /// The limit.
        max: u64,
    },
    /// A rate or period of zero.
    #[error("the sampling rate and period must not be zero")]
    ZeroRate,
    /// The kernel does not allow this rate.
    #[error(
        "sampling at {asked} Hz is more than the kernel allows; \
         choose at most {max} Hz, or raise it: sysctl kernel.perf_event_max_sample_rate={asked}"
    )]
    RateTooHigh {
        /// What was asked for.
        asked: u64,
        /// `kernel.perf_event_max_sample_rate`.
        max: u64,
    },
    /// Capabilities are missing.
    #[error("eBPF needs {missing}; run as root, or see `fpprof doctor` for how to allow it")]
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
    /// Process ids would not be those the kernel samples.
    #[error(
        "fpprof runs in a pid namespace of its own, where process ids differ from the kernel's; \
         run it on the host, or in a container with --pid=host"
    )]
    PidNamespace,
    /// The BPF programs were refused.
    #[error(
        "the kernel refused the BPF programs: {reason} (fpprof doctor shows what is missing; -v prints libbpf's log)"
    )]
    Bpf {
        /// What libbpf and the kernel's verifier said last.
        reason: String,
        /// The error they ended with.
        source: libbpf_rs::Error,
    },
    /// The BPF programs were loaded, but cannot be used.
    #[error("the kernel refused the BPF programs: {what}: {source}")]
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
        "{event} cannot be sampled: the processor's counters (PMU) do not count it on this machine; virtual machines often \
         have none. Sample by cpu-clock, a timer, or use hardware or a virtual machine with a PMU"
    )]
    NoHardwareEvent {
        /// perf's name of it.
        event: String,
    },
    /// The kernel's list of tracepoints is not there.
    #[error(
        "{event} is looked up in the kernel's tracefs, which is not mounted: mount -t tracefs tracefs /sys/kernel/tracing"
    )]
    TracefsNotMounted {
        /// What was asked for.
        event: String,
    },
    /// It may not be read.
    #[error(
        "tracepoints are looked up in {}, which this user may not read ({source}); run as root, or as root: \
         mount -o remount,mode=755 {}", .path.display(), .path.display()
    )]
    TracefsRefused {
        /// Where it is mounted.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// There is no such tracepoint.
    #[error("this kernel has no tracepoint {event}; those it has: cat {}/available_events", .mount.display())]
    NoTracepoint {
        /// What was asked for.
        event: String,
        /// Where tracefs is mounted.
        mount: PathBuf,
    },
    /// The kernel has no probes in programs.
    #[error("probes in programs need a kernel with CONFIG_UPROBE_EVENTS (this is {kernel})")]
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
        "{} has no code at {place}; its functions: nm {} (or nm -D; a stripped program has few names, so give the address \
         as 0xADDRESS)", .file.display(), .file.display()
    )]
    NoSuchPlace {
        /// The file.
        file: PathBuf,
        /// Symbol and offset, or address.
        place: String,
    },
    /// A rate of an event that has none.
    #[error(
        "{event} happens when it happens, and has no rate: give a count instead (-c N samples one in N; -c 1 each)"
    )]
    RateOfOccurrences {
        /// What was asked for.
        event: String,
    },
    /// The collector without BPF may not do this.
    #[error("the perf_event collector cannot {action}: that needs {missing}")]
    PerfEventRefused {
        /// What was wanted.
        action: &'static str,
        /// What would allow it.
        missing: &'static str,
    },
    /// The kernel does not copy that much.
    #[error(
        "perf events cannot copy {asked} bytes of stack: give a multiple of 8 up to {max}, \
         or record with eBPF, which has no such limit and needs CAP_BPF and CAP_PERFMON"
    )]
    PerfEventStackBytes {
        /// What was asked for.
        asked: u32,
        /// The kernel's limit.
        max: u32,
    },
    /// Even the smallest rings are more than this user may lock.
    #[error(
        "the kernel does not let this user lock {ring_bytes} bytes for each CPU's ring; take fewer bytes of stack or \
         a smaller ring (-m), raise the limit (ulimit -l), or: sysctl kernel.perf_event_mlock_kb=4096"
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
