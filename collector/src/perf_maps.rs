//! Perf maps: the tables of compiled code that processes write for perf, copied into the recording as they grow.
//!
//! A JIT runtime writes `/tmp/perf-PID.map`, with `/tmp` and the pid as the runtime sees them. The directory is held
//! open from when the process first has executable memory without a file, so that the table of a process that has ended
//! is found in whatever container it ran. If that was too late, the table in our own `/tmp` is used.

use crate::backoff::Backoff;
use crate::parse::{FileParser, Found, ParseTask, ParsedFile};
use crate::proc::{BlockingCalls, Place, effective_uid, inner_pid, start_ticks};
use crate::share::Shares;
use fpprof_recording::compiled::Compiled;
use fpprof_recording::compiled::perf_map::function;
use fpprof_recording::model::{FileIdentity, Mmap, ModuleBytes};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// The largest table taken.
const MAX_MAP_BYTES: u64 = 64 << 20;
/// The most bytes of all tables together, shared among users.
const MAX_TOTAL_BYTES: u64 = 256 << 20;
/// Bytes of a table read at once. A table is refused at a longer line.
const PIECE_BYTES: usize = 4 << 20;

/// Processes that run code without a file.
#[derive(Debug)]
pub(crate) struct PerfMaps {
    processes: BTreeMap<u32, Table>,
    bytes: Shares,
    /// Tables of ended processes that were not taken.
    n_refused: u64,
}

impl Default for PerfMaps {
    fn default() -> Self {
        Self { processes: BTreeMap::new(), bytes: Shares::new(MAX_TOTAL_BYTES), n_refused: 0 }
    }
}

/// The table of a process.
#[derive(Debug)]
struct Table {
    place: Place,
    directory: Option<Arc<Directory>>,
    /// Start time of its process; `None` if that had already ended.
    start_ticks: Option<u64>,
    /// The user of the process at the last look. A server may become another user after its first code.
    user: Option<u32>,
    /// Inode of the file last read, and the number of bytes read.
    read: (u64, u64),
    is_refused: bool,
    /// Most processes with executable memory never write a table.
    backoff: Backoff,
}

/// The `/tmp` of a process.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Opened with `O_PATH`.
    tmp: File,
    /// The pid as the process sees it.
    inner_pid: u32,
    /// The user of the process.
    owner: u32,
}

/// Whether a mapping may hold compiled code.
pub(crate) fn is_code_of_no_file(mmap: &Mmap) -> bool {
    let is_anonymous = mmap.identity.inode == 0 && mmap.path.starts_with(b"//anon");
    // Some runtimes map the same memory twice, writable and executable, and need an unnamed file for that.
    is_anonymous || mmap.path.starts_with(b"/memfd:")
}

impl PerfMaps {
    /// Lets users have as many bytes taken again as in a new recording.
    pub(crate) fn renew(&mut self) {
        self.bytes = Shares::new(MAX_TOTAL_BYTES);
    }

    /// Starts looking for the table of a process.
    pub(crate) fn add(&mut self, pid: u32, place: Place, directory: Option<Directory>) {
        let (directory, start_ticks, backoff) = (directory.map(Arc::new), start_ticks(pid), Backoff::default());
        let table = Table { place, directory, start_ticks, user: None, read: (0, 0), is_refused: false, backoff };
        self.processes.insert(pid, table);
    }

    /// Emits what was written since the last look, each piece as [`Compiled::PerfMap`]. Returns the processes that have
    /// ended: this was their last look. The last look of a recording leaves no table out.
    pub(crate) fn look(
        &mut self,
        is_last: bool,
        calls: &mut BlockingCalls,
        parser: &dyn FileParser,
        has_time: &dyn Fn() -> bool,
        emit: &mut impl FnMut(ModuleBytes),
    ) -> Vec<u32> {
        let mut ended = Vec::new();
        for (&pid, table) in &mut self.processes {
            if !has_time() {
                table.is_refused = true;
                continue;
            }
            if !table.backoff.is_due() && !is_last {
                continue;
            }
            let before = table.read;
            let user = effective_uid(pid);
            // Before its table is read, so that a process that ends meanwhile gets another look.
            if start_ticks(pid).is_none_or(|ticks| table.start_ticks != Some(ticks)) {
                ended.push(pid);
            } else {
                table.user = user.or(table.user);
            }
            let (directory, user) = (table.directory.clone(), table.user);
            let found = calls.call(table.place, move || match directory.as_deref() {
                Some(Directory { tmp, inner_pid, owner }) => open(tmp, *inner_pid, [*owner, user.unwrap_or(*owner)]),
                None => open_path("/tmp").map_or(AtPath::Missing, |tmp| open(&tmp, pid, [own_uid(); 2])),
            });
            table.is_refused = match found.unwrap_or(AtPath::Refused) {
                AtPath::Missing => false,
                AtPath::Refused => true,
                AtPath::Opened(map) => !table.take(&map, parser, &mut self.bytes, &mut |bytes| {
                    let path = Compiled::PerfMap(pid).path();
                    emit(ModuleBytes { path, identity: FileIdentity::default(), bytes });
                }),
            };
            table.backoff.looked(table.read != before);
        }
        for table in ended.iter().filter_map(|pid| self.processes.remove(pid)) {
            self.n_refused += u64::from(table.is_refused);
        }
        ended
    }

    /// Tables that were there at the last look and were not taken.
    pub(crate) fn n_refused(&self) -> u64 {
        self.processes.values().map(|table| u64::from(table.is_refused)).sum::<u64>() + self.n_refused
    }
}

impl Table {
    /// Emits the new lines; returns whether there was room for all of them, and for each in a piece. If the file is
    /// another one, or has become shorter, reads it from its beginning: later lines take precedence.
    fn take(
        &mut self,
        map: &MapFile,
        parser: &dyn FileParser,
        shares: &mut Shares,
        emit: &mut impl FnMut(Vec<u8>),
    ) -> bool {
        let MapFile { ref file, inode, len } = *map;
        if len > MAX_MAP_BYTES {
            return false;
        }
        if self.read.0 != inode || len < self.read.1 {
            self.read = (inode, 0);
        }
        while self.read.1 < len {
            let parsed = parser.parse(file, self.place.user(), ParseTask::PerfMap { offset: self.read.1 });
            let Some(ParsedFile { found: Found::Lines(bytes), bytes: lines }) = parsed else { return false };
            if bytes == 0 {
                // Its last line, which is still being written; or one that is too long.
                return len.saturating_sub(self.read.1) < PIECE_BYTES as u64;
            }
            // What there is no room for is read again when there is.
            if !shares.take(self.place.user(), lines.len() as u64) {
                return false;
            }
            self.read.1 = self.read.1.saturating_add(bytes);
            if !lines.is_empty() {
                emit(lines);
            }
        }
        true
    }
}

impl Directory {
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let owner = effective_uid(pid)?;
        let tmp = tmp_below(Path::new(&format!("/proc/{pid}/root")))?;
        Some(Self { tmp, inner_pid: inner_pid(pid)?, owner })
    }
}

fn open_path(path: impl AsRef<Path>) -> Option<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(path).ok()
}

/// `/tmp` as processes with this root directory see it: links in it, which any user may have created, cannot lead
/// outside.
fn tmp_below(root: &Path) -> Option<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(open_path(root)?, "tmp", flags, Mode::empty(), ResolveFlags::IN_ROOT).ok().map(File::from)
}

/// What is at a table's path.
#[derive(Debug)]
enum AtPath {
    Missing,
    /// Something that must not be read: anyone may write to `/tmp`.
    Refused,
    Opened(MapFile),
}

/// A table, open for reading.
#[derive(Debug)]
struct MapFile {
    file: File,
    inode: u64,
    len: u64,
}

impl MapFile {
    /// The table, if it is a regular file of one of these owners with a single link.
    fn of(file: File, owners: [u32; 2]) -> Option<Self> {
        let is_regular = |metadata: &Metadata| owners.iter().any(|&owner| is_regular_of(metadata, owner));
        let metadata = file.metadata().ok().filter(is_regular)?;
        Some(Self { file, inode: metadata.ino(), len: metadata.len() })
    }
}

/// The user this process runs as; root if unknown.
pub(crate) fn own_uid() -> u32 {
    std::fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid())
}

/// Opens the table in a directory if it is a regular file of one of the `owners`. Follows neither links nor mounts over the name:
/// in a user namespace, anyone can mount a file there that only we may read.
///
/// # Sources
/// openat2(2). `dso__load` in `tools/perf/util/symbol.c` of Linux refuses maps of other owners, except root's.
fn open(tmp: impl AsFd, pid: u32, owners: [u32; 2]) -> AtPath {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match openat2(tmp, format!("perf-{pid}.map"), flags, Mode::empty(), resolve).map(File::from) {
        Ok(file) => MapFile::of(file, owners).map_or(AtPath::Refused, AtPath::Opened),
        Err(rustix::io::Errno::NOENT) => AtPath::Missing,
        Err(_) => AtPath::Refused,
    }
}

/// Whether a file is a regular one of this owner with a single link: a second link may be where the owner did not
/// intend it.
pub(crate) fn is_file_of(file: &File, owner: u32) -> bool {
    file.metadata().is_ok_and(|metadata| is_regular_of(&metadata, owner))
}

fn is_regular_of(metadata: &Metadata, owner: u32) -> bool {
    metadata.is_file() && metadata.uid() == owner && metadata.nlink() <= 1
}

/// The complete lines of a table from an offset on that name a function, and the size of all complete lines there: the
/// program may still be writing.
pub(crate) fn whole_lines(file: &File, from: u64) -> Option<(Vec<u8>, u64)> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut filled = 0;
    while let Some(room) = piece.get_mut(filled..).filter(|room| !room.is_empty()) {
        match file.read_at(room, from.saturating_add(filled as u64)).ok()? {
            0 => break,
            n => filled += n,
        }
    }
    piece.truncate(filled);
    let whole = piece.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    piece.truncate(whole);
    let is_entry = |line: &&[u8]| line.strip_suffix(b"\n").is_some_and(|line| function(line).is_some());
    Some((piece.split_inclusive(|&byte| byte == b'\n').filter(is_entry).flatten().copied().collect(), whole as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::MOST_LEFT_OUT;
    use crate::parse::ParseHere;
    use crate::test_support::code;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    fn table() -> Table {
        Table {
            place: Place::below_root_of(1),
            directory: None,
            start_ticks: None,
            user: None,
            read: (0, 0),
            is_refused: false,
            backoff: Backoff::default(),
        }
    }

    fn opened(file: &File) -> MapFile {
        MapFile::of(file.try_clone().unwrap(), [own_uid(); 2]).unwrap()
    }

    /// Takes the tables of processes; also returns how many were not taken.
    fn taken(pids: &[u32]) -> (Vec<ModuleBytes>, u64) {
        let (mut maps, mut found) = (PerfMaps::default(), Vec::new());
        pids.iter().for_each(|&pid| maps.add(pid, Place::below_root_of(pid), Directory::of(pid)));
        maps.look(false, &mut BlockingCalls::default(), &ParseHere, &|| true, &mut |module| found.push(module));
        (found, maps.n_refused())
    }

    /// Check that the table of a process with code without a file is taken up to its last complete line, that a process
    /// without such code is ignored, and that a link in the table's place is not followed.
    #[test]
    fn tables_are_taken() {
        let pid = std::process::id();
        let path = format!("/tmp/perf-{pid}.map");
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, "1000 10 f\n2000 10 g").unwrap();
        let is_code = |path| is_code_of_no_file(&code(pid, path, FileIdentity::default()));
        assert!(is_code(b"//anon") && !is_code(b"/usr/bin/program"));
        let (found, not_taken) = taken(&[pid]);
        assert_eq!((found.len(), not_taken), (1, 0));
        assert_eq!((found[0].path.clone(), &*found[0].bytes), (Compiled::PerfMap(pid).path(), &b"1000 10 f\n"[..]));
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(elsewhere.path(), "1000 10 f\n").unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(taken(&[pid]), (none, 0) if none.is_empty()), "there is none");
        symlink(elsewhere.path(), &path).unwrap();
        assert!(matches!(taken(&[pid]), (none, 1) if none.is_empty()), "it is refused, and counted");
        std::fs::remove_file(&path).unwrap();
    }

    /// Check that the table of a process that has ended is looked at once more, and then no longer.
    #[test]
    fn ended_processes_have_a_last_look() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let (pid, mut maps) = (child.id(), PerfMaps::default());
        maps.add(pid, Place::below_root_of(pid), Directory::of(pid));
        let path = format!("/tmp/perf-{pid}.map");
        let look = |maps: &mut PerfMaps| {
            let mut n = 0;
            let ended = maps.look(false, &mut BlockingCalls::default(), &ParseHere, &|| true, &mut |_| n += 1);
            (ended, n)
        };
        assert_eq!(look(&mut maps), (Vec::new(), 0));
        std::fs::write(&path, "1000 10 f\n").unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(look(&mut maps), (vec![pid], 1));
        assert_eq!(look(&mut maps), (Vec::new(), 0));
        std::fs::remove_file(&path).unwrap();
    }

    /// Check that the table of a process that has changed its user is found, while the process runs and when it has ended.
    #[test]
    fn users_may_change() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let (pid, mut maps) = (child.id(), PerfMaps::default());
        let directory = Directory { owner: own_uid() + 1, ..Directory::of(pid).unwrap() };
        maps.add(pid, Place::below_root_of(pid), Some(directory));
        let path = format!("/tmp/perf-{pid}.map");
        let mut look = |text: &str| {
            let mut n = 0;
            File::options().append(true).create(true).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
            maps.look(true, &mut BlockingCalls::default(), &ParseHere, &|| true, &mut |_| n += 1);
            n
        };
        assert_eq!(look("1000 10 f\n"), 1);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(look("2000 10 g\n"), 1);
        std::fs::remove_file(&path).unwrap();
    }

    /// Check that a table that does not grow is looked at less and less often, but in the last look, and again in each look
    /// once it grows.
    #[test]
    fn unchanged_tables_are_left_out_of_looks() {
        let (pid, mut maps) = (std::process::id(), PerfMaps::default());
        let tmp = tempfile::tempdir().unwrap();
        let directory = Directory { tmp: open_path(tmp.path()).unwrap(), inner_pid: 7, owner: own_uid() };
        maps.add(pid, Place::below_root_of(pid), Some(directory));
        let path = tmp.path().join("perf-7.map");
        let mut look = |is_last| {
            let mut n = 0;
            maps.look(is_last, &mut BlockingCalls::default(), &ParseHere, &|| true, &mut |_| n += 1);
            n
        };
        let grow = || File::options().append(true).create(true).open(&path).unwrap().write_all(b"1000 10 f\n").unwrap();
        assert_eq!((0..1000).map(|_| look(false)).sum::<u32>(), 0);
        grow();
        let looks = (1..).find(|_| look(false) > 0).unwrap();
        assert!((1..=MOST_LEFT_OUT + 1).contains(&looks), "{looks} looks");
        grow();
        assert_eq!(look(false), 1);
        assert_eq!((0..1000).map(|_| look(false)).sum::<u32>(), 0);
        look(false);
        grow();
        assert_eq!(look(true), 1);
    }

    /// Check that lines for which there is no room are taken once there is.
    #[test]
    fn lines_wait_for_room() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"1000 10 f\n").unwrap();
        let (mut table, mut lines) = (table(), Vec::new());
        let mut take = |most| {
            table.take(&opened(file.as_file()), &ParseHere, &mut Shares::new(most), &mut |piece| lines.extend(piece))
        };
        assert!(!take(2) && take(1 << 20) && take(1 << 20));
        assert_eq!(lines, b"1000 10 f\n");
    }

    /// Check that each line is taken once, as soon as it is complete, and that a re-created table is taken from its
    /// beginning.
    #[test]
    fn tables_are_taken_as_they_grow() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut table = table();
        let (mut shares, mut pieces) = (Shares::new(1 << 20), Vec::new());
        let mut look = |file: &File| {
            let mut lines = Vec::new();
            assert!(table.take(&opened(file), &ParseHere, &mut shares, &mut |piece| lines.extend(piece)));
            pieces.push(String::from_utf8(lines).unwrap());
        };
        for text in ["1000 10 f\n2000 1", "0 g", "\nnonsense\n3000 10 h\n", ""] {
            file.write_all(text.as_bytes()).unwrap();
            look(file.as_file());
        }
        file.as_file().set_len(10).unwrap();
        look(file.as_file());
        assert_eq!(pieces, ["1000 10 f\n", "", "2000 10 g\n3000 10 h\n", "", "1000 10 f\n"]);
    }

    /// Check that a table of another owner or with a second link is refused.
    #[test]
    fn owners_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("perf-7.map"), "1000 10 f\n").unwrap();
        let own = dir.path().metadata().unwrap().uid();
        let open_of = |pid, owners| open(open_path(dir.path()).unwrap(), pid, owners);
        let open = |pid, owner| open_of(pid, [owner; 2]);
        assert!(matches!(open(7, own), AtPath::Opened(_)));
        assert!(matches!(open_of(7, [own + 1, own]), AtPath::Opened(_)), "its user changed");
        assert!(matches!(open(7, own + 1), AtPath::Refused), "not even root's");
        assert!(matches!(open(8, own), AtPath::Missing));
        std::fs::hard_link(dir.path().join("perf-7.map"), dir.path().join("other")).unwrap();
        assert!(matches!(open(7, own), AtPath::Refused));
    }

    /// Check that a link in place of a root directory's `/tmp` leads to a directory below that root, or nowhere.
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

    /// Check that only lines that belong to a table are taken.
    #[test]
    fn only_lines_of_a_table_are_taken() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text =
            "root:$6$abc:19000:0:99999:7:::\n1000 10 f\n-----BEGIN KEY-----\n\n2000 0 none\n0x3000 0x8 g h\n4000 1 cut";
        std::fs::write(file.path(), text).unwrap();
        assert_eq!(whole_lines(file.as_file(), 0).unwrap().0, b"1000 10 f\n0x3000 0x8 g h\n");
    }

    /// Check that a table that is too large is not taken at all, one with a line that is too long up to that line, and
    /// that neither counts as taken.
    #[test]
    fn large_tables_are_refused() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"1000 10 f\n", 0).unwrap();
        let mut lens = Vec::new();
        let with_long_line = 10 + PIECE_BYTES as u64;
        for len in [with_long_line - 1, with_long_line, MAX_MAP_BYTES, MAX_MAP_BYTES + 1] {
            file.set_len(len).unwrap();
            if len == MAX_MAP_BYTES {
                (1..=16).for_each(|piece| file.write_all_at(b"\n", piece * PIECE_BYTES as u64 - 1).unwrap());
            }
            let mut table = table();
            lens.push((
                table.take(&opened(&file), &ParseHere, &mut Shares::new(1 << 20), &mut |piece| {
                    assert_eq!(piece.len(), 10)
                }),
                table.read.1,
            ));
        }
        assert_eq!(lens, [(true, 10), (false, 10), (true, MAX_MAP_BYTES), (false, 0)]);
    }
}
