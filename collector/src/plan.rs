//! Checks of what can be known to fail before anything runs.

use crate::bpf::{Filter, Layout, LayoutError, ProgramConfig, WaitSpec};
use crate::cgroup::Cgroup;
use crate::error::Error;
use crate::event::Event;
use crate::host::kernel_release;
use crate::proc::{Capabilities, is_gone, is_of_user, n_possible_cpus, online_cpus, process_of, read_number};
use crate::request::{Request, Target};
use crate::rules::n_sets;
use crate::sys::PerfEvent;
use fpprof_recording::model::{CaptureMode, Sampling};
use libbpf_rs::btf::{Btf, types};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A request that is possible as far as can be known beforehand.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) config: ProgramConfig,
    pub(crate) cpus: Vec<u32>,
    pub(crate) event: Event,
    pub(crate) command: Option<Command>,
    pub(crate) cgroup: Option<Cgroup>,
}

/// A command that was found.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<CString>,
}

impl Plan {
    /// Checks a request. The request itself is checked before the machine, whose errors ask for rights or another kernel.
    pub(crate) fn new(request: &Request) -> Result<Self, Error> {
        check_aggregation(request)?;
        let command = check_target(request)?;
        check_rate(request.sampling)?;
        let cpus = online_cpus();
        let n_ring_cpus = cpus.iter().max().map_or(1, |&last| last + 1);
        let asked = request.ring_bytes.map(|bytes| bytes as u64);
        let requested = Event::find(&request.event, &*request.parser)?;
        requested.iter().try_for_each(|event| event.check_sampling(request.sampling))?;
        let n_rings = u64::from(n_ring_cpus) * (1 + u64::from(request.off_cpu.is_some()));
        let layout = Layout::new(request.mode, asked, n_rings).map_err(Error::from)?;
        check_machine()?;
        check_walk(request.mode)?;
        let cgroup = match &request.target {
            Target::Cgroup { path, .. } => Some(Cgroup::find(path)?),
            _ => None,
        };
        let filter = match &request.target {
            Target::System | Target::SystemWhile { .. } => Filter::System,
            Target::Command { .. } | Target::Pids(_) => Filter::Tracked,
            Target::Threads(_) => Filter::Threads,
            Target::Cgroup { .. } => {
                let (id, subsystem) = cgroup.as_ref().map_or((0, None), |cgroup| (cgroup.id, cgroup.subsystem));
                Filter::Cgroup { id, subsystem }
            }
        };
        let event = choose_event(requested, cpus.first().copied().unwrap_or(0), request.sampling)?;
        let tick_hits = match request.sampling {
            Sampling::Period(hits) => hits,
            Sampling::FrequencyHz(_) => 1,
        };
        let config = ProgramConfig {
            mode: request.mode,
            kernel_stacks: request.kernel_stacks,
            filter,
            layout,
            n_ring_cpus,
            n_possible_cpus: n_possible_cpus().max(n_ring_cpus),
            opened: event.opened(),
            tick_hits,
            includes_privileged: request.include_privileged,
            only_user: request.only_user,
            excluded_parent: request.exclude_children.then(std::process::id),
            waits: request.off_cpu.map(|least| wait_spec(u64::try_from(least.as_nanos()).unwrap_or(u64::MAX))),
            n_rule_sets: n_sets(request.small_rule_table),
        };
        Ok(Self { config, cpus, event, command, cgroup })
    }
}

impl From<LayoutError> for Error {
    fn from(error: LayoutError) -> Self {
        match error {
            LayoutError::ChunkBytes { asked, max } => Self::StackBytes { asked, max },
            LayoutError::RingTooSmall { asked, needed } => Self::RingTooSmall { asked, needed },
            LayoutError::RingTooLarge { asked, max } => Self::RingTooLarge { asked, max },
        }
    }
}

pub(crate) fn check_aggregation(request: &Request) -> Result<(), Error> {
    if request.aggregate.is_some() && request.mode.copies_each() { Err(Error::AggregatesCopies) } else { Ok(()) }
}

pub(crate) fn check_target(request: &Request) -> Result<Option<Command>, Error> {
    if let Some(user) = request.only_user {
        check_user(request, user)?;
    }
    match &request.target {
        Target::System | Target::Cgroup { argv: None, .. } => Ok(None),
        Target::Threads(tids) if tids.is_empty() => Err(Error::NoProcess),
        Target::Threads(tids) => {
            let gone = tids.iter().find(|&&tid| process_of(tid).is_none());
            gone.map_or(Ok(None), |&tid| Err(Error::NoSuchThread(tid)))
        }
        Target::Pids(pids) if pids.is_empty() => Err(Error::NoProcess),
        Target::Pids(pids) => {
            let gone = pids.iter().find(|pid| !Path::new(&format!("/proc/{pid}")).exists());
            gone.map_or(Ok(None), |&pid| Err(Error::NoSuchProcess(pid)))
        }
        Target::Command { argv } | Target::SystemWhile { argv } | Target::Cgroup { argv: Some(argv), .. } => {
            let name = argv.first().filter(|name| !name.is_empty()).ok_or(Error::BadCommand)?;
            let arguments = argv.iter().map(|argument| CString::new(argument.as_bytes()));
            let arguments = arguments.collect::<Result<_, _>>().map_err(|_| Error::BadCommand)?;
            Ok(Some(Command { program: find_program(name)?, arguments }))
        }
    }
}

/// Fails if the request needs more than its caller may do without the capabilities of the program's file.
fn check_user(request: &Request, user: u32) -> Result<(), Error> {
    let (Target::Pids(ids) | Target::Threads(ids)) = &request.target else {
        return if request.include_privileged { Err(Error::NotOfFileCapabilities) } else { Ok(()) };
    };
    // A process that is gone is refused as such.
    let of_others = ids.iter().find(|&&id| !is_gone(id) && is_of_user(id, user) != Some(true));
    match of_others {
        Some(&id) => Err(Error::ProcessOfOtherUser(id)),
        None if request.include_privileged => Err(Error::NotOfFileCapabilities),
        None => Ok(()),
    }
}

/// Finds a program as `execvp` does: a name with a slash is a path, any other is looked up in `PATH`.
fn find_program(name: &OsStr) -> Result<PathBuf, Error> {
    let refused =
        |path: PathBuf, errno| Error::CommandNotExecutable { path, source: io::Error::from_raw_os_error(errno) };
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match executable(&path) {
            Ok(()) => Ok(path),
            Err(libc::ENOENT | libc::ENOTDIR) => Err(Error::CommandNotFound(path)),
            Err(errno) => Err(refused(path, errno)),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut error = None;
    for directory in std::env::split_paths(&path) {
        let candidate = directory.join(name);
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(libc::ENOENT | libc::ENOTDIR) => {}
            Err(errno) => error = error.or(Some(refused(candidate, errno))),
        }
    }
    Err(error.unwrap_or_else(|| Error::CommandNotFound(name.into())))
}

fn executable(path: &Path) -> Result<(), i32> {
    let metadata = std::fs::metadata(path).map_err(|error| error.raw_os_error().unwrap_or(libc::EACCES))?;
    if metadata.is_dir() {
        return Err(libc::EISDIR);
    }
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(libc::EACCES);
    }
    Ok(())
}

pub(crate) fn check_rate(sampling: Sampling) -> Result<(), Error> {
    match sampling {
        Sampling::FrequencyHz(0) | Sampling::Period(0) => Err(Error::ZeroRate),
        Sampling::Period(_) => Ok(()),
        Sampling::FrequencyHz(asked) => {
            let max = read_number("/proc/sys/kernel/perf_event_max_sample_rate");
            match max.and_then(|max| u64::try_from(max).ok()) {
                Some(max) if asked > max => Err(Error::RateTooHigh { asked, max }),
                _ => Ok(()),
            }
        }
    }
}

fn check_walk(mode: CaptureMode) -> Result<(), Error> {
    match missing_for_walk(mode) {
        Some(needed) => Err(Error::NoCfiWalk { needed, kernel: kernel_release() }),
        None => Ok(()),
    }
}

/// What the kernel or the processor lacks for walks by call frame information, if requested: rules are for x86-64 only,
/// and the tree that is used to look up code came with Linux 6.1.
pub(crate) fn missing_for_walk(mode: CaptureMode) -> Option<&'static str> {
    match mode {
        CaptureMode::Cfi { .. } if cfg!(not(target_arch = "x86_64")) => Some("an x86-64 processor"),
        CaptureMode::Cfi { .. } if !has_kernel_struct("maple_tree") => Some("Linux 6.1 or later"),
        _ => None,
    }
}

/// How waits are sampled on this kernel: `sched_exit` came with Linux 6.15.
pub(crate) fn wait_spec(least_ns: u64) -> WaitSpec {
    WaitSpec { least_ns, stacks_at_block: !has_kernel_type("btf_trace_sched_exit_tp") }
}

/// Whether the running kernel has a typedef of this name; also `false` if its BTF cannot be read.
fn has_kernel_type(name: &str) -> bool {
    Btf::from_vmlinux().is_ok_and(|btf| btf.type_by_name::<types::Typedef<'_>>(name).is_some())
}

/// Like [`has_kernel_type`], for a structure.
fn has_kernel_struct(name: &str) -> bool {
    Btf::from_vmlinux().is_ok_and(|btf| btf.type_by_name::<types::Struct<'_>>(name).is_some())
}

/// Inode of the initial pid namespace.
///
/// # Sources
/// `PROC_PID_INIT_INO` in `include/linux/proc_ns.h`.
const INITIAL_PID_NAMESPACE: u64 = 0xeffffffc;

/// Fails if anything is missing that the BPF programs depend on. Whether the kernel accepts them is only known when
/// they are loaded.
pub(crate) fn check_machine() -> Result<(), Error> {
    let capabilities = Capabilities::effective();
    let missing = match (capabilities.has(Capabilities::BPF), capabilities.has(Capabilities::PERFMON)) {
        (true, true) => None,
        (false, true) => Some("CAP_BPF"),
        (true, false) => Some("CAP_PERFMON"),
        (false, false) => Some("CAP_BPF and CAP_PERFMON"),
    };
    if let Some(missing) = missing {
        return Err(Error::MissingCapability { missing });
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Error::MissingKernelFeature { missing: "CONFIG_DEBUG_INFO_BTF", kernel: kernel_release() });
    }
    match is_initial_pid_namespace() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::PidNamespace),
        Err(source) => Err(Error::System { what: "looking at the pid namespace", source }),
    }
}

/// Whether this process sees the pids that the kernel samples.
pub(crate) fn is_initial_pid_namespace() -> io::Result<bool> {
    Ok(std::fs::metadata("/proc/self/ns/pid")?.ino() == INITIAL_PID_NAMESPACE)
}

/// The requested event; else cycles if the processor counts them, else a timer.
fn choose_event(requested: Option<Event>, cpu: u32, sampling: Sampling) -> Result<Event, Error> {
    let event = requested.clone().unwrap_or_else(Event::cycles);
    match PerfEvent::sampling(cpu, &event, sampling) {
        Ok(_) => Ok(event),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL) if requested.is_none() => {
                Ok(Event::cpu_clock())
            }
            _ => Err(event.refused(cpu, error)),
        },
    }
}
