//! The tables of compiled code that processes keep for perf, taken into the recording at its end.
//!
//! A runtime that compiles while it runs writes `/tmp/perf-PID.map`, as it sees `/tmp` and its own pid. The directory is
//! held from the moment the process first has executable memory without a file, so that the table of a process that has
//! ended meanwhile is found in whatever container it ran in. When that was too late the table in our own `/tmp` counts.

use crate::proc::inner_pid;
use fpprof_recording::compiled::Compiled;
use fpprof_recording::model::{FileIdentity, Mmap, ModuleBytes};
use rustc_hash::FxHashMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Processes whose tables are looked for.
const MAX_PROCESSES: usize = 1024;
/// Largest table that is taken.
const MAX_MAP_BYTES: u64 = 64 << 20;
/// Bytes of all tables together.
const MAX_TOTAL_BYTES: u64 = 256 << 20;

/// The processes that run code of no file.
#[derive(Debug, Default)]
pub(crate) struct PerfMaps {
    processes: FxHashMap<u32, Option<Directory>>,
}

/// `/tmp` of a process.
#[derive(Debug)]
struct Directory {
    /// Open as a path only.
    tmp: File,
    /// The pid as the process sees it.
    inner_pid: u32,
    owner: u32,
}

impl PerfMaps {
    /// Takes note of a mapping that may hold compiled code.
    pub(crate) fn note(&mut self, mmap: &Mmap) {
        let is_anonymous = mmap.identity.inode == 0 && mmap.path.starts_with(b"//anon");
        // Some runtimes map the same memory twice, writable and executable, and need a file of no name for it.
        let is_code = is_anonymous || mmap.path.starts_with(b"/memfd:");
        if is_code && self.processes.len() < MAX_PROCESSES {
            self.processes.entry(mmap.pid).or_insert_with(|| Directory::of(mmap.pid));
        }
    }

    /// Hands on the tables, each as [`Compiled::PerfMap`]; gives how many were there and were not taken.
    pub(crate) fn finish(self, emit: &mut impl FnMut(ModuleBytes)) -> u64 {
        let mut processes: Vec<_> = self.processes.into_iter().collect();
        processes.sort_unstable_by_key(|(pid, _)| *pid);
        let (mut total, mut not_taken) = (0u64, 0);
        for (pid, directory) in processes {
            let found = match &directory {
                Some(directory) => directory.open(),
                None => open(&format!("/tmp/perf-{pid}.map"), own_uid()),
            };
            let file = match found {
                Found::Nothing => continue,
                Found::Refused => None,
                Found::Table(file) => Some(file),
            };
            match file.and_then(|file| read(file, MAX_MAP_BYTES.min(MAX_TOTAL_BYTES.saturating_sub(total)))) {
                Some(bytes) => {
                    total = total.saturating_add(bytes.len() as u64);
                    let path = Compiled::PerfMap(pid).path();
                    emit(ModuleBytes { path, identity: FileIdentity::default(), bytes });
                }
                None => not_taken += 1,
            }
        }
        not_taken
    }
}

impl Directory {
    fn of(pid: u32) -> Option<Self> {
        let owner = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
        let tmp = options.open(format!("/proc/{pid}/root/tmp")).ok()?;
        Some(Self { tmp, inner_pid: inner_pid(pid)?, owner })
    }

    fn open(&self) -> Found {
        open(&format!("/proc/self/fd/{}/perf-{}.map", self.tmp.as_raw_fd(), self.inner_pid), self.owner)
    }
}

/// What is at a table's path.
#[derive(Debug)]
enum Found {
    Nothing,
    /// Something that is not read: anyone may write to `/tmp`.
    Refused,
    Table(File),
}

/// The user we run as; root if that cannot be found out.
pub(crate) fn own_uid() -> u32 {
    std::fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid())
}

/// Opens a regular file that belongs to `owner` or root; no link is followed.
///
/// # Sources
/// `dso__load` in `tools/perf/util/symbol.c` of Linux refuses maps of other owners.
fn open(path: &str, owner: u32) -> Found {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Found::Nothing,
        Err(_) => return Found::Refused,
    };
    let is_theirs = |metadata: Metadata| metadata.is_file() && [owner, 0].contains(&metadata.uid());
    if file.metadata().is_ok_and(is_theirs) { Found::Table(file) } else { Found::Refused }
}

/// The whole table up to its last whole line: its program may be writing still. `None` if it is larger than `most`.
fn read(file: File, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > most {
        return None;
    }
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    bytes.truncate(end);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn code(pid: u32, path: &[u8]) -> Mmap {
        Mmap {
            time_ns: 1,
            pid,
            tid: pid,
            start: 0x1000,
            len: 0x1000,
            file_offset: 0,
            prot: 5,
            flags: 2,
            path: path.to_vec(),
            identity: FileIdentity::default(),
            synthesized: false,
        }
    }

    /// The tables, and how many were not taken.
    fn taken(maps: PerfMaps) -> (Vec<ModuleBytes>, u64) {
        let mut found = Vec::new();
        let not_taken = maps.finish(&mut |module| found.push(module));
        (found, not_taken)
    }

    /// Check that the table of a process with code of no file is taken up to its last whole line, that a process without
    /// such code is not looked at, and that a link in its place is not followed.
    #[test]
    fn tables_are_taken() {
        let pid = std::process::id();
        let path = format!("/tmp/perf-{pid}.map");
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, "1000 10 f\n2000 10 g").unwrap();
        let mut maps = PerfMaps::default();
        maps.note(&code(pid, b"/usr/bin/program"));
        assert!(taken(maps).0.is_empty());
        let noted = || {
            let mut maps = PerfMaps::default();
            maps.note(&code(pid, b"//anon"));
            maps
        };
        let (found, not_taken) = taken(noted());
        assert_eq!((found.len(), not_taken), (1, 0));
        assert_eq!((found[0].path.clone(), &*found[0].bytes), (Compiled::PerfMap(pid).path(), &b"1000 10 f\n"[..]));
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(elsewhere.path(), "1000 10 f\n").unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(taken(noted()), (none, 0) if none.is_empty()), "there is none");
        symlink(elsewhere.path(), &path).unwrap();
        assert!(matches!(taken(noted()), (none, 1) if none.is_empty()), "it is refused, and counted");
        std::fs::remove_file(&path).unwrap();
    }

    /// Check that a table of another owner is refused, and one of root is not.
    #[test]
    fn owners_are_checked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let own = file.as_file().metadata().unwrap().uid();
        assert!(matches!(open(path, own), Found::Table(_)));
        assert_eq!(matches!(open(path, own + 1), Found::Refused), own != 0);
        drop(file);
        assert!(matches!(open("/tmp/no-such-table", own), Found::Nothing));
    }

    /// Check that a table that is too large is not taken in part.
    #[test]
    fn large_tables_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "1000 10 f\n").unwrap();
        assert_eq!(read(file.reopen().unwrap(), 10).map(|bytes| bytes.len()), Some(10));
        assert_eq!(read(file.reopen().unwrap(), 9), None);
    }
}
