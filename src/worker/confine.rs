//! Drops, permanently, all rights that reading and computing do not need.
//!
//! # Sources
//! capabilities(7), seccomp(2), landlock(7), prctl(2) `PR_SET_NO_NEW_PRIVS`.

use anyhow::Context as _;
use fpprof_collector::unmap_code;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, Scope,
    path_beneath_rules,
};
use nix::libc;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// System calls for reading, computing, writing to open files, and threads. All others fail with EPERM, but for those that
/// [`filter`] allows with some arguments.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fadvise64,
    libc::SYS_fstat,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getcwd,
    libc::SYS_geteuid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Allowed system calls that exist only on x86-64.
#[cfg(target_arch = "x86_64")]
const ALLOWED_OLD: &[libc::c_long] =
    &[libc::SYS_arch_prctl, libc::SYS_lstat, libc::SYS_poll, libc::SYS_readlink, libc::SYS_stat, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLD: &[libc::c_long] = &[];

/// Whether this process has more rights than an ordinary user's.
pub(crate) fn is_privileged() -> bool {
    rustix::process::geteuid().is_root() || capabilities(None).is_ok_and(|sets| !sets.effective.is_empty())
}

/// Maximum CPU time of a worker with one task: far more than the largest recordings take.
pub(super) const MAX_CPU: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum address space of a worker in bytes: three quarters of the machine's memory, so that the machine does not run
/// out, plus 256 MiB for each CPU, since a thread's allocator reserves far more than it uses; at least 2 GiB.
pub(super) fn max_address_space() -> u64 {
    let machine = rustix::system::sysinfo();
    let memory = machine.totalram.saturating_mul(machine.mem_unit.into());
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    (memory / 4).saturating_mul(3).saturating_add(threads.saturating_mul(256 << 20)).max(2 << 30)
}

/// Limits the memory of this process permanently to [`max_address_space`].
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn limit_memory() -> anyhow::Result<()> {
    limit(Resource::As, max_address_space())
}

/// Limits a resource of this process permanently, unless its limit is already lower.
///
/// # Errors
/// If the kernel refuses.
pub(super) fn limit(resource: Resource, most: u64) -> anyhow::Result<()> {
    set_limit(resource, most, most)
}

/// Limits the CPU time of this process permanently to [`MAX_CPU`].
///
/// # Errors
/// If the kernel refuses.
pub(super) fn limit_cpu() -> anyhow::Result<()> {
    // At the soft limit, SIGXCPU tells the cause; SIGKILL follows at the hard limit.
    set_limit(Resource::Cpu, MAX_CPU.as_secs(), MAX_CPU.as_secs() + 1)
}

fn set_limit(resource: Resource, current: u64, maximum: u64) -> anyhow::Result<()> {
    let now = getrlimit(resource);
    let lower = |now: Option<u64>, most: u64| Some(now.map_or(most, |now| now.min(most)));
    let limit = Rlimit { current: lower(now.current, current), maximum: lower(now.maximum, maximum) };
    setrlimit(resource, limit).context("cannot limit resources")
}

/// Drops all capabilities, the right to run programs, and every system call but those of [`ALLOWED`]. Files can be
/// opened only if `reads`, and then only for reading. Also unmaps the code that only the start needed. Must be called before
/// threads are started.
///
/// # Errors
/// If the kernel refuses. Then nothing may be parsed.
pub(crate) fn confine(reads: bool) -> anyhow::Result<()> {
    if super::client().is_none() {
        return Ok(());
    }
    // Displayed by ps and top, which would otherwise display `exe`.
    rustix::thread::set_name(c"fpprof-worker").context("cannot name the process")?;
    // The worker dies with the first process, which passes the files and waits for the result.
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot set the parent-death signal")?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .context("cannot drop capabilities")?;
    // It opens /proc/self/pagemap: with the capabilities that would show physical addresses, and after the filter it is refused.
    unmap_code();
    rustix::thread::set_no_new_privs(true).context("cannot set no_new_privs")?;
    limit(Resource::Core, 0)?;
    restrict(reads).context("cannot set Landlock rules")?;
    for filter in [without_clone3(), filter(reads)] {
        apply_filter(&filter.context("cannot make the seccomp filter")?).context("cannot set the seccomp filter")?;
    }
    Ok(())
}

/// A second barrier in addition to the system call filter: no file access except, if `reads`, for reading; no network,
/// no signals to others. Kernels before 5.13 do not support it; later ones support more of it, those from 6.12 on all.
fn restrict(reads: bool) -> anyhow::Result<()> {
    let known = ABI::V6;
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(known))?
        .handle_access(AccessNet::from_all(known))?
        .scope(Scope::from_all(known))?
        .create()?;
    let readable = if reads { &["/"][..] } else { &[] };
    rules.add_rules(path_beneath_rules(readable, AccessFs::ReadFile | AccessFs::ReadDir))?.restrict_self()?;
    Ok(())
}

/// A filter cannot see the flags of clone3(2). Programs use clone(2) where it does not exist.
fn without_clone3() -> anyhow::Result<BpfProgram> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, missing, std::env::consts::ARCH.try_into()?)?;
    Ok(filter.try_into()?)
}

fn filter(reads: bool) -> anyhow::Result<BpfProgram> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().chain(ALLOWED_OLD).map(|&call| (call, Vec::new())).collect();
    let one_of = |argument, values: &[u64]| {
        let condition = |&value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
        values.iter().map(|value| SeccompRule::new(vec![condition(value)?])).collect::<Result<Vec<_>, _>>()
    };
    // Programs ask whether there is a terminal, and how wide it is.
    rules.insert(libc::SYS_ioctl, one_of(1, &[libc::TCGETS, libc::TIOCGWINSZ])?);
    rules.insert(libc::SYS_prctl, one_of(0, &[libc::PR_SET_NAME as u64, libc::PR_SET_VMA as u64])?);
    // Only to itself, as abort(3) does: a process without capabilities may signal all others of its user, root's too.
    rules.insert(libc::SYS_tgkill, one_of(0, &[std::process::id().into()])?);
    // Files can send signals as well (F_SETOWN, F_SETSIG).
    let commands =
        [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL].map(i32::cast_unsigned).map(u64::from);
    rules.insert(libc::SYS_fcntl, one_of(1, &commands)?);
    // Threads only: a process would outlive this one.
    let thread = libc::CLONE_THREAD as u64;
    let is_thread = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(thread), thread)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![is_thread])?]);
    // Allow only reading a limit: the pointer to a new one is null.
    let reads_limit = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![reads_limit])?]);
    if reads {
        let changes = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_TMPFILE & !libc::O_DIRECTORY) as u64;
        let is_reading =
            SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(changes), libc::O_RDONLY as u64)?;
        rules.insert(libc::SYS_openat, vec![SeccompRule::new(vec![is_reading])?]);
        rules.insert(libc::SYS_getdents64, Vec::new());
    }
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, std::env::consts::ARCH.try_into()?)?;
    Ok(filter.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::{apply_filter, filter, restrict};
    use nix::sys::pthread::{pthread_kill, pthread_self};
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use std::fs::File;
    use std::io;

    /// Check that a process can still end itself, but not change who gets signals of a file, which kernels before 6.12 would let
    /// be anybody of its user. The filter applies to one thread.
    #[test]
    fn files_send_no_signals() {
        let tried = || {
            apply_filter(&filter(false).unwrap()).unwrap();
            let changed = fcntl_setfl(io::stdin(), OFlags::NONBLOCK);
            (fcntl_getfl(io::stdin()).is_ok(), changed, pthread_kill(pthread_self(), None))
        };
        let expected = (true, Err(rustix::io::Errno::PERM), Ok(()));
        assert_eq!(std::thread::spawn(tried).join().unwrap(), expected);
    }

    /// Check that Landlock alone refuses to write, create and remove files, and to read them unless requested. It
    /// applies to one thread.
    #[test]
    fn landlock_is_a_second_wall() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        let tried = |reads| {
            let (file, new) = (file.clone(), dir.path().join("new"));
            let tries = move || {
                restrict(reads).unwrap();
                let writes = File::options().write(true).open(&file).is_ok();
                (File::open(&file).is_ok(), writes, File::create(new).is_ok(), std::fs::remove_file(file).is_ok())
            };
            std::thread::spawn(tries).join().unwrap()
        };
        assert_eq!([true, false].map(tried), [(true, false, false, false), (false, false, false, false)]);
    }
}
