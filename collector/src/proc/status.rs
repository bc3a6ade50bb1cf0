//! Processes, threads, processors, capabilities.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Field 22 of `/proc/PID/stat`: start time in clock ticks since boot.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    field_after_name(&text, 19)
}

/// Finds a field after the name in parentheses, which may contain anything, parentheses and blanks too: fields start
/// after the last one.
fn field_after_name(stat: &[u8], nth: usize) -> Option<u64> {
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let fields = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    fields.split_ascii_whitespace().nth(nth)?.parse().ok()
}

/// Field 28 of `/proc/PID/stat`: start of the first thread's stack, above which are arguments and environment.
/// `None` if access is denied.
pub(crate) fn start_stack(pid: u32) -> Option<u64> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    field_after_name(&text, 25).filter(|&start| start > 1)
}

/// The parent of a process, or the process that adopted it: field 4 of `/proc/PID/stat`. `None` if it is gone, or has
/// none.
pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    field_after_name(&text, 1).and_then(|parent| u32::try_from(parent).ok()).filter(|&parent| parent > 0)
}

/// Whether there is no process with this pid, not even one that nobody has waited for. Also known of those that `/proc` hides.
#[must_use]
pub fn is_gone(pid: u32) -> bool {
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH))
}

/// Whether a process has not ended: its parent need not have asked for its status yet.
pub(crate) fn runs_program(pid: u32) -> bool {
    !fs::read_link(format!("/proc/{pid}/exe")).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// The process of a thread; `None` if there is no such thread.
pub(crate) fn process_of(tid: u32) -> Option<u32> {
    status_of(tid, "Tgid:")?.trim().parse().ok()
}

/// A line of `/proc/PID/status`, without its name. Another line, the name of the thread, may have any bytes.
///
/// # Sources
/// `proc_task_name` in `fs/proc/array.c`: of these, only newlines and backslashes are escaped.
fn status_of(pid: u32, name: &str) -> Option<String> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()))?;
    String::from_utf8(line.to_vec()).ok()
}

/// The pid of a process as it sees it itself.
///
/// # Sources
/// proc(5), `/proc/PID/status`: `NSpid`, from the outermost to the innermost namespace.
pub(crate) fn inner_pid(pid: u32) -> Option<u32> {
    status_of(pid, "NSpid:")?.split_ascii_whitespace().next_back()?.parse().ok()
}

/// The effective user of a process: the owner of `/proc/PID`, even if the process is not dumpable, unlike the owner of
/// most files in there. Reading `status` takes five times as long.
///
/// # Sources
/// `task_dump_owner` in `fs/proc/base.c`: directories that everyone may read and search have the effective user.
pub(crate) fn effective_uid(pid: u32) -> Option<u32> {
    Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}

/// Whether a process has this user as its real, effective and saved one, as required for that user to trace it; `None`
/// if it is gone.
///
/// # Sources
/// `__ptrace_may_access` in `kernel/ptrace.c`.
pub(crate) fn is_of_user(pid: u32, user: u32) -> Option<bool> {
    let users = status_of(pid, "Uid:")?;
    Some(users.split_ascii_whitespace().take(3).all(|uid| uid.parse() == Ok(user)))
}

/// Whether a program was executed with other rights than its caller's: setuid, setgid, or with file capabilities.
///
/// # Sources
/// getauxval(3). Entries are pairs of words, which have 4 bytes in a 32-bit program; two of those make a number that no
/// key has.
pub(crate) fn is_secure_execution(pid: u32) -> Option<bool> {
    const AT_SECURE: u64 = 23;
    const BEYOND_ALL_KEYS: u64 = 1 << 16;
    let bytes = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let wide: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let is_wide = wide.iter().step_by(2).all(|&key| key < BEYOND_ALL_KEYS);
    let narrow = || bytes.as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_le_bytes(*word))).collect();
    let words = if is_wide { wide } else { narrow() };
    words.as_chunks::<2>().0.iter().find(|[key, _]| *key == AT_SECURE).map(|[_, value]| *value != 0)
}

/// The most attempts to list threads while they come and go.
const MAX_LISTINGS: usize = 8;

/// Threads of a process, including all that existed throughout this call.
///
/// # Sources
/// `next_tid` in `fs/proc/base.c`: a listing ends early if the thread it has reached exits. So listing is repeated
/// until it finds as many threads as the process has according to field 20 of `/proc/PID/stat`.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    let mut found = BTreeSet::new();
    for _ in 0..MAX_LISTINGS {
        let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        let n = field_after_name(&stat, 17).unwrap_or(0);
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { break };
        let listed: Vec<u32> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        found.extend(&listed);
        if listed.len() as u64 >= n {
            break;
        }
    }
    found.into_iter().collect()
}

/// Whether a thread is alive: it exists and has not begun to exit. An exited thread is shown until somebody has waited
/// for it, and the first one of a process until the others have exited.
///
/// # Sources
/// proc(5), `/proc/PID/stat`: the state after the name, and field 9, the flags. `PF_EXITING` in
/// `include/linux/sched.h`, which `do_exit` sets before it reports the exit to perf.
pub(crate) fn thread_runs(pid: u32, tid: u32) -> bool {
    const PF_EXITING: u64 = 4;
    let text = fs::read(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    let name_end = text.iter().rposition(|&byte| byte == b')');
    let is_shown = name_end.and_then(|end| text.get(end + 2)).is_some_and(|state| !matches!(state, b'Z' | b'X'));
    is_shown && field_after_name(&text, 6).is_some_and(|flags| flags & PF_EXITING == 0)
}

/// Whether a process is a kernel thread.
///
/// # Sources
/// proc(5), `/proc/PID/stat`: field 9, the flags. `PF_KTHREAD` in `include/linux/sched.h`.
pub(crate) fn is_kernel_thread(pid: u32) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let text = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    field_after_name(&text, 6).is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// Name of a thread.
pub(crate) fn thread_comm(pid: u32, tid: u32) -> Option<Vec<u8>> {
    let mut comm = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    if comm.last() == Some(&b'\n') {
        comm.pop();
    }
    Some(comm)
}

/// PIDs of all existing processes.
pub(crate) fn processes() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The online CPUs.
pub(crate) fn online_cpus() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = cpu_list(&text);
    if !cpus.is_empty() {
        return cpus;
    }
    let n = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
    (0..n).collect()
}

/// One more than the highest CPU number possible on this machine.
pub(crate) fn n_possible_cpus() -> u32 {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    cpu_list(&text).into_iter().max().map_or(1, |last| last + 1)
}

/// Idle time of each CPU since boot, including I/O wait, in nanoseconds by CPU number. The kernel reports it in
/// hundredths of a second.
///
/// # Sources
/// proc(5), `/proc/stat`: the fourth and fifth number of `cpuN`.
pub(crate) fn idle_times_ns() -> BTreeMap<u32, u64> {
    parse_idle_times(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

fn parse_idle_times(stat: &str) -> BTreeMap<u32, u64> {
    /// `USER_HZ` is the same on all architectures but alpha and ia64.
    const CLOCK_TICK_NS: u64 = 10_000_000;
    let idle = |line: &str| {
        let (name, numbers) = line.strip_prefix("cpu")?.split_once(' ')?;
        let mut numbers = numbers.split_ascii_whitespace().skip(3).map_while(|number| number.parse::<u64>().ok());
        let ticks = numbers.next()?.saturating_add(numbers.next()?);
        Some((name.parse().ok()?, ticks.saturating_mul(CLOCK_TICK_NS)))
    };
    stat.lines().filter_map(idle).collect()
}

/// Parses a list such as `0-3,8`.
pub(crate) fn cpu_list(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            cpus.extend((first..=last).take(1 << 16));
        }
    }
    cpus
}

/// Reads a file that holds one number.
pub(crate) fn read_number(path: impl AsRef<Path>) -> Option<i64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Effective capabilities of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities(u64);

impl Capabilities {
    pub(crate) const SYS_PTRACE: u32 = 19;
    pub(crate) const SYS_ADMIN: u32 = 21;
    pub(crate) const SYS_RESOURCE: u32 = 24;
    pub(crate) const PERFMON: u32 = 38;
    pub(crate) const BPF: u32 = 39;
    pub(crate) const CHECKPOINT_RESTORE: u32 = 40;

    /// Reads them from `/proc/self/status`.
    pub(crate) fn effective() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        Self(line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
    }

    /// Whether a capability is effective; `CAP_SYS_ADMIN` implies those that were once part of it.
    pub(crate) fn has(self, capability: u32) -> bool {
        let has = |number: u32| self.0 >> number & 1 != 0;
        let was_sys_admin = [Self::PERFMON, Self::BPF, Self::CHECKPOINT_RESTORE].contains(&capability);
        has(capability) || (was_sys_admin && has(Self::SYS_ADMIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    /// Check that a name with parentheses and blanks does not shift the fields.
    #[test]
    fn start_ticks_survive_hostile_names() {
        let stat = b"7 (a) 1 2 (b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3\n";
        assert_eq!(field_after_name(stat, 19), Some(987_654));
        assert_eq!(field_after_name(b"7 (a", 19), None);
        assert_eq!(field_after_name(b"", 19), None);
    }

    /// Check that the lines of a process are read whatever it is called: a name may be cut within a character.
    #[test]
    fn names_hide_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(std::ffi::OsStr::from_bytes(b"m\xc3"));
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("600").spawn().unwrap();
        let (pid, user) = (child.id(), effective_uid(std::process::id()).unwrap());
        while thread_comm(pid, pid).unwrap() != b"m\xc3" {
            std::thread::yield_now();
        }
        assert_eq!((process_of(pid), inner_pid(pid)), (Some(pid), Some(pid)));
        assert_eq!([user, user + 1].map(|user| is_of_user(pid, user)), [Some(true), Some(false)]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((process_of(pid), is_of_user(pid, user)), (None, None));
    }

    /// The thread ID of this thread.
    fn own_tid() -> u32 {
        let link = fs::read_link("/proc/thread-self").unwrap();
        link.file_name().unwrap().to_str().unwrap().parse().unwrap()
    }

    /// Check that live threads are listed while others end, and are reported alive.
    #[test]
    fn threads_are_listed_while_others_end() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..20 {
                let sender = sender.clone();
                scope.spawn(|| {
                    sender.send(own_tid()).unwrap();
                    drop(sender);
                    while !is_over.load(Ordering::Relaxed) {
                        std::thread::park_timeout(Duration::from_millis(10));
                    }
                });
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::thread::spawn(|| ()).join().unwrap();
                    }
                });
            }
            let long_lived: Vec<u32> = receiver.iter().take(20).collect();
            for _ in 0..500 {
                let listed = threads(std::process::id());
                let missing: Vec<_> = long_lived.iter().filter(|tid| !listed.contains(tid)).collect();
                if !missing.is_empty() {
                    is_over.store(true, Ordering::Relaxed);
                }
                assert!(missing.is_empty(), "{missing:?} of {listed:?}");
            }
            assert!(long_lived.iter().all(|&tid| thread_runs(std::process::id(), tid)));
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(!thread_runs(std::process::id(), u32::MAX));
    }

    /// Check that the idle time of each CPU is read, and neither their sum nor rubbish.
    #[test]
    fn idle_times() {
        let stat = "cpu  1 2 3 11 7 0\ncpu0 1 2 3 4 5 0\ncpu12 0 0 0 7 2 0\ncpu3 1 2\ncpux 0 0 0 1 1\nintr 1 2 3 4 5\n";
        assert_eq!(parse_idle_times(stat), BTreeMap::from([(0, 90_000_000), (12, 90_000_000)]));
        assert!(!idle_times_ns().is_empty());
    }

    /// Check that lists of CPUs are read, and that rubbish gives none.
    #[test]
    fn cpu_lists() {
        assert_eq!(cpu_list("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(cpu_list("0"), [0]);
        assert!(cpu_list("x-y,").is_empty());
        assert!(cpu_list("0-4294967295").len() <= 1 << 16);
    }
}
