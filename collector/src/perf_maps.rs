//! The tables of compiled code that processes keep for perf, taken into the recording at its end.
//!
//! A runtime that compiles while it runs writes `/tmp/perf-PID.map`, as it sees `/tmp` and its own pid. The directory is
//! held from the moment the process first has executable memory without a file, so that the table of a process that has
//! ended meanwhile is found in whatever container it ran in. When that was too late the table in our own `/tmp` counts.

use crate::proc::{effective_uid, inner_pid};
use fpprof_recording::compiled::Compiled;
use fpprof_recording::compiled::perf_map::function;
use fpprof_recording::model::{FileIdentity, Mmap, ModuleBytes};
use rustc_hash::FxHashMap;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

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
                Some(directory) => open(&directory.tmp, directory.inner_pid, directory.owner),
                None => open_path("/tmp").map_or(Found::Nothing, |tmp| open(&tmp, pid, own_uid())),
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
        let owner = effective_uid(pid)?;
        let tmp = tmp_below(Path::new(&format!("/proc/{pid}/root")))?;
        Some(Self { tmp, inner_pid: inner_pid(pid)?, owner })
    }
}

fn open_path(path: impl AsRef<Path>) -> Option<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(path).ok()
}

/// `/tmp` as processes with this root directory see it: links in it, which may be of any user's making, lead nowhere else.
fn tmp_below(root: &Path) -> Option<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(open_path(root)?, "tmp", flags, Mode::empty(), ResolveFlags::IN_ROOT).ok().map(File::from)
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

/// Opens the table in a directory if it is a regular file of `owner`. No link is followed, and nothing that is mounted over
/// the name: in a user namespace anyone can mount a file there that only we may read.
///
/// # Sources
/// openat2(2). `dso__load` in `tools/perf/util/symbol.c` of Linux refuses maps of other owners, root's excepted.
fn open(tmp: impl AsFd, pid: u32, owner: u32) -> Found {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match openat2(tmp, format!("perf-{pid}.map"), flags, Mode::empty(), resolve).map(File::from) {
        Ok(file) if is_file_of(&file, owner) => Found::Table(file),
        Err(rustix::io::Errno::NOENT) => Found::Nothing,
        Ok(_) | Err(_) => Found::Refused,
    }
}

/// Whether a file is a regular one of this owner, without a second name: that may lie where the owner did not mean it to.
pub(crate) fn is_file_of(file: &File, owner: u32) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.uid() == owner && metadata.nlink() <= 1)
}

/// The whole lines of the table that name a function: its program may be writing still. `None` if it is larger than `most`.
fn read(file: File, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > most {
        return None;
    }
    let is_entry = |line: &&[u8]| line.strip_suffix(b"\n").is_some_and(|line| function(line).is_some());
    Some(bytes.split_inclusive(|&byte| byte == b'\n').filter(is_entry).flatten().copied().collect())
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

    /// Check that a table of another owner or with a second name is refused.
    #[test]
    fn owners_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("perf-7.map"), "1000 10 f\n").unwrap();
        let own = dir.path().metadata().unwrap().uid();
        let open = |pid, owner| open(open_path(dir.path()).unwrap(), pid, owner);
        assert!(matches!(open(7, own), Found::Table(_)));
        assert!(matches!(open(7, own + 1), Found::Refused), "not even root's");
        assert!(matches!(open(8, own), Found::Nothing));
        std::fs::hard_link(dir.path().join("perf-7.map"), dir.path().join("other")).unwrap();
        assert!(matches!(open(7, own), Found::Refused));
    }

    /// Check that a link in the place of a root directory's `/tmp` leads to a directory below that root, or nowhere.
    #[test]
    fn links_stay_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        symlink("/etc", root.path().join("tmp")).unwrap();
        assert!(tmp_below(root.path()).is_none(), "it leads out");
        let below = root.path().join("etc");
        std::fs::create_dir(&below).unwrap();
        let inode = tmp_below(root.path()).map(|tmp| tmp.metadata().unwrap().ino());
        assert_eq!(inode, Some(below.metadata().unwrap().ino()));
    }

    /// Check that of a file only the lines of a table are taken.
    #[test]
    fn only_lines_of_a_table_are_taken() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text =
            "root:$6$abc:19000:0:99999:7:::\n1000 10 f\n-----BEGIN KEY-----\n\n2000 0 none\n0x3000 0x8 g h\n4000 1 cut";
        std::fs::write(file.path(), text).unwrap();
        assert_eq!(read(file.reopen().unwrap(), 1000).unwrap(), b"1000 10 f\n0x3000 0x8 g h\n");
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
