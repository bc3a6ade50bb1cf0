//! `/proc/PID/environ`: some variables of the environment of a process, as it was when it executed its program.

use super::memory::MemoryReads;
use super::status::thread_runs;
use fpprof_recording::MAX_ENVIRONMENT_BYTES;
use std::fs::File;
use std::io::{self, Read as _};

/// The most bytes read of an environment: many times what processes usually have.
const MAX_BYTES: usize = 256 << 10;
/// The most bytes kept of a value.
const MAX_VALUE_BYTES: usize = 512;

/// The variables of these names that a process has set, as in
/// [`Cgroup::environment`](fpprof_recording::model::Cgroup::environment); nothing else of its environment is kept.
/// `None` if names are given and the process has ended.
///
/// A process can overwrite its environment, and put any memory in its place. The kernel reads anonymous memory only. The
/// variables of a process that does not answer are not known.
///
/// # Sources
/// `environ_read` in `fs/proc/base.c`, with `FOLL_ANON` since Linux 4.17 (commit 7f7ccc2ccc2e).
pub(crate) fn environment_of(memory: &MemoryReads, pid: u32, tid: u32, names: &[String]) -> Option<Vec<u8>> {
    if names.is_empty() {
        return Some(Vec::new());
    }
    // A first thread that has exited shows no environment, nor does a kernel thread.
    let other = (tid != pid).then_some(tid);
    let read = std::iter::once(pid)
        .chain(other)
        .map(|tid| memory.read(pid, move || read(pid, tid)).unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())))
        .find(|read| !matches!(read, Ok((text, _)) if text.is_empty()));
    match read {
        Some(Ok((text, is_whole))) => Some(chosen(&text, is_whole, names)),
        Some(Err(error)) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::TimedOut) => {
            Some(chosen(&[], false, names))
        }
        Some(Err(_)) => None,
        // A kernel thread has none, and on some kernels a process that has ended shows none.
        None => thread_runs(pid, tid).then(Vec::new),
    }
}

/// The environment of a thread, and whether that is all of it.
fn read(pid: u32, tid: u32) -> io::Result<(Vec<u8>, bool)> {
    let mut text = Vec::new();
    let file = File::open(format!("/proc/{pid}/task/{tid}/environ"))?;
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut text)?;
    let is_whole = text.len() <= MAX_BYTES;
    text.truncate(MAX_BYTES);
    Ok((text, is_whole))
}

/// Chooses variables: of several with a name the first one, as getenv(3) does. Of an environment that was read in part,
/// those that are missing or cut off are not known.
fn chosen(text: &[u8], is_whole: bool, names: &[String]) -> Vec<u8> {
    // What follows the last zero byte is cut off, or was never ended.
    let end = if is_whole { text.len() } else { text.iter().rposition(|&byte| byte == 0).unwrap_or(0) };
    let variables = || text.get(..end).unwrap_or_default().split(|&byte| byte == 0);
    let mut chosen = Vec::new();
    for name in names {
        let value = |variable: &'_ [u8]| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
        let mut variable = name.as_bytes().to_vec();
        match variables().find_map(value) {
            Some(value) => {
                variable.push(b'=');
                variable.extend(value.iter().take(MAX_VALUE_BYTES));
            }
            None if is_whole => continue,
            None => {}
        }
        variable.push(0);
        if chosen.len() + variable.len() <= MAX_ENVIRONMENT_BYTES {
            chosen.extend(variable);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// Check that only the named variables are kept, the first of a name, and that one which was not read is there
    /// without a value.
    #[test]
    fn named_variables_are_kept() {
        let text = b"SECRET=x\0TEAM=web\0TEAMS=no\0TEAM=later\0EMPTY=\0rubbish\0\xff=\xff\0LAST=cut";
        let wanted = names(&["LAST", "TEAM", "EMPTY", "MISSING", "rubbish"]);
        assert_eq!(chosen(text, true, &wanted), b"LAST=cut\0TEAM=web\0EMPTY=\0");
        assert_eq!(chosen(text, false, &wanted), b"LAST\0TEAM=web\0EMPTY=\0MISSING\0rubbish\0");
        assert_eq!(chosen(b"", false, &names(&["TEAM"])), b"TEAM\0");
        let long = [b"TEAM=".as_slice(), &[b'v'; 2 * MAX_VALUE_BYTES]].concat();
        assert_eq!(chosen(&long, true, &names(&["TEAM"])).len(), 5 + MAX_VALUE_BYTES + 1);
        let many: Vec<String> = (0..200).map(|n| format!("{n:0200}")).collect();
        assert!(chosen(b"", false, &many).len() <= MAX_ENVIRONMENT_BYTES);
    }

    /// Check that the environment of a process is read, that nothing of a huge one is guessed, and that one that has ended has none.
    #[test]
    fn a_process_has_an_environment() {
        let mut child = Command::new("sleep");
        child.arg("100").env_clear().env("A_TEAM", "db").env("PATH", "/usr/bin:/bin");
        (0..40).for_each(|n| _ = child.env(format!("BIG{n}"), "x".repeat(10_000)));
        let mut child = child.env("ZTEAM", "web").spawn().expect("it starts");
        let pid = child.id();
        // Until it has executed its program, it shows the environment of this process.
        while std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm != "sleep\n") {
            std::thread::yield_now();
        }
        let of = |tid, wanted: &[&str]| environment_of(&MemoryReads::default(), pid, tid, &names(wanted));
        assert_eq!(of(pid, &["A_TEAM", "MISSING"]).as_deref(), Some(&b"A_TEAM=db\0MISSING\0"[..]));
        assert_eq!(of(pid, &["ZTEAM"]).as_deref(), Some(&b"ZTEAM\0"[..]), "beyond what is read");
        child.kill().expect("it is killed");
        while thread_runs(pid, pid) {
            std::thread::yield_now();
        }
        assert_eq!(of(pid, &["A_TEAM"]), None, "it has ended, but is still there");
        child.wait().expect("it ends");
        assert_eq!(of(pid, &["A_TEAM"]), None);
        assert_eq!(of(pid, &[]), Some(Vec::new()), "nothing is asked for");
    }
}
