//! Files that may be gone when the recording is analysed.
//!
//! Every file that is mapped executable is opened once, when it is mapped, and kept open up to a limit; beyond that, it is opened
//! again through its mapping when it is needed. Files that are not, or soon no longer, at
//! their path (deleted, replaced, memfd, another mount namespace) are copied into the recording. A separate thread, the
//! saver, looks for them, so that the ring buffer reader never waits.

mod reduce;
mod saver;

use crate::error::Error;
use crate::jit_dumps::{self, EndedDump, JitDump};
use crate::kernel_symbols::KernelSymbols;
use crate::parse::{FileParser, Found, ParseTask, ParsedFile};
use crate::parts_control::{PartsControl, UnusedFile};
use crate::perf_maps::{Directory, is_code_of_no_file};
use crate::proc::{BlockingCalls, Changed, Opened, Place, is_gone, last_change, open_mapped, runs_program};
use crate::request::Request;
use crate::share::Shares;
use crate::sideband::Tracker;
use crate::vdso;
use fpprof_recording::PackedModule;
use fpprof_recording::compiled::jitdump::is_dump;
use fpprof_recording::model::{BuildId, FileIdentity, Mmap};
pub(crate) use reduce::without_data;
use rustc_hash::{FxHashMap, FxHashSet};
pub(crate) use saver::Omitted;
use saver::{Done, FileKey, FileSaver, Job, RENEWED_AFTER, WatchedFile, key_of};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most files kept open at a time. A single user gets at most half of this and of the limits below. There is less of each
/// if this process may open few files.
const MAX_OPEN: u64 = 8192;
/// The most files tracked at all; a process that creates more and runs each of them is suspect.
const MAX_FILES: u64 = 131_072;
/// The most processes whose tables of compiled code are looked for at a time.
const MAX_TABLES: u64 = 2048;
/// The most dumps of compiled code kept open.
const MAX_DUMPS: u64 = 512;
/// How often opening of a lost file is tried while a process that has mapped it runs.
const MAX_TRIES: u8 = 32;
/// How often it is tried for processes that are gone: their ancestors may see the file.
const TRY_GONE_EVERY: Duration = Duration::from_millis(100);
/// How often a file that is mapped again and again is checked for changes: it may be overwritten in place.
const CHECK_EVERY: Duration = Duration::from_millis(250);
/// How long a deleted file is remembered: one that is mapped again later is copied into the recording again.
const DELETED_FILES_KEPT: Duration = Duration::from_secs(60);

/// The files mapped executable by profiled processes.
#[derive(Debug)]
pub(crate) struct Modules {
    files: FxHashMap<FileKey, KnownFile>,
    /// Deleted files among them, with the time that was seen.
    deleted: VecDeque<(Instant, FileKey)>,
    /// Users of the processes; `None` for processes left out.
    tables: FxHashMap<u32, Option<u32>>,
    dumps: FxHashSet<(u32, FileKey)>,
    shares: AllShares,
    n_over: Omitted,
    /// Whether the 32-bit vDSO is in the recording, if it is available.
    has_vdso32: bool,
    saver: FileSaver,
    kernel: KernelSymbols,
    parser: Arc<dyn FileParser>,
    calls: BlockingCalls,
    parts_control: Option<Arc<PartsControl>>,
}

/// A file that was mapped, and the user who has it of the limit.
#[derive(Debug, Clone, Copy)]
struct KnownFile {
    build_id: Option<BuildId>,
    user: u32,
    /// When it was last mapped.
    mapped_ns: u64,
    /// Its device and inode from stat(2), and when it had been changed when it was opened.
    version: Option<((u64, u64), Changed)>,
    /// When it was last checked for changes.
    checked: Instant,
    /// The attempts to open it, if all have failed.
    failed: Option<Failed>,
    /// Whether its bytes would be needed, and are not in the recording.
    is_lost: bool,
}

/// Failed attempts to open a file.
#[derive(Debug, Clone, Copy)]
struct Failed {
    last: Instant,
    /// Those while the process that had mapped it was there.
    n_running: u8,
}

/// What each user has of each limit.
#[derive(Debug)]
struct AllShares {
    open: Shares,
    files: Shares,
    tables: Shares,
    dumps: Shares,
}

/// Leaves out the generation: the mapping of a dump may be reported by the kernel or read from `/proc`.
fn dump_key(pid: u32, identity: &FileIdentity) -> (u32, FileKey) {
    (pid, key_of(&FileIdentity { inode_generation: 0, ..*identity }))
}

impl Modules {
    /// Keeps at most half of this process's limit of `open_files` open, and some more for tables and dumps. A recording that is
    /// taken in parts may never end, so its limits of bytes are for some minutes each.
    ///
    /// # Errors
    /// If the saver thread cannot be started.
    pub(crate) fn new(open_files: u64, request: &Request) -> Result<Self, Error> {
        let Request { parser, parts_control, .. } = request;
        let renewed_after = parts_control.is_some().then_some(RENEWED_AFTER);
        let saver = FileSaver::start(Arc::clone(parser), renewed_after).map_err(Error::system("starting a thread"))?;
        Ok(Self {
            files: FxHashMap::default(),
            deleted: VecDeque::new(),
            tables: FxHashMap::default(),
            dumps: FxHashSet::default(),
            shares: AllShares {
                open: Shares::new(MAX_OPEN.min(open_files / 2)),
                files: Shares::new(MAX_FILES),
                tables: Shares::new(MAX_TABLES.min(open_files / 8)),
                dumps: Shares::new(MAX_DUMPS.min(open_files / 16)),
            },
            n_over: Omitted::default(),
            has_vdso32: false,
            kernel: KernelSymbols::default(),
            parser: Arc::clone(parser),
            calls: BlockingCalls::default(),
            parts_control: parts_control.clone(),
            saver,
        })
    }

    /// Notes a mapping, and adds the build ID of its file, which is read when the file is first mapped.
    pub(crate) fn note(&mut self, mmap: &mut Mmap, tracker: &Tracker) {
        if mmap.prot & libc::PROT_EXEC.cast_unsigned() == 0 {
            return;
        }
        if vdso::name_32_bits(mmap) && !self.has_vdso32 {
            self.has_vdso32 = true;
            vdso::of_32_bits().into_iter().for_each(|module| self.saver.send(Job::Bytes(module)));
        }
        if is_code_of_no_file(mmap) {
            self.note_table(mmap.pid);
        }
        let key = key_of(&mmap.identity);
        if mmap.identity.inode == 0 || (is_dump(&mmap.path) && self.note_dump(mmap)) {
            return;
        }
        if self.is_changed(&key, mmap) {
            self.forget(&key);
            self.saver.send(Job::Forget(FxHashSet::from_iter([key])));
        }
        match self.files.get_mut(&key) {
            None => self.note_new(key, mmap, tracker),
            Some(known) => {
                known.mapped_ns = known.mapped_ns.max(mmap.time_ns);
                mmap.identity.build_id = mmap.identity.build_id.or(known.build_id);
                if known.failed.is_some() {
                    self.try_again(key, mmap, tracker);
                }
            }
        }
    }

    fn note_new(&mut self, key: FileKey, mmap: &mut Mmap, tracker: &Tracker) {
        self.give_back_done();
        let place = Place::of(mmap);
        if !self.shares.files.take(place.user(), 1) {
            self.n_over.files_over += 1;
            return;
        }
        let opened = self.open(place, mmap, tracker);
        let known = KnownFile {
            build_id: mmap.identity.build_id,
            user: place.user(),
            mapped_ns: mmap.time_ns,
            version: opened.as_ref().map(Opened::version),
            checked: Instant::now(),
            failed: opened.is_none().then(|| Failed { last: Instant::now(), n_running: 0 }),
            is_lost: false,
        };
        self.files.insert(key, known);
        self.watch(WatchedFile { opened, mmap: mmap.clone(), place, was_lost: false });
    }

    /// Whether a known file was changed since it was opened. Not asked again for [`CHECK_EVERY`].
    fn is_changed(&mut self, key: &FileKey, mmap: &Mmap) -> bool {
        let Some(KnownFile { version: Some((stat, changed)), checked, .. }) = self.files.get_mut(key) else {
            return false;
        };
        if checked.elapsed() < CHECK_EVERY {
            return false;
        }
        *checked = Instant::now();
        let (mapping, stat, changed) = (mmap.clone(), *stat, *changed);
        let now = self.calls.call(Place::of(mmap), move || last_change(&mapping, stat)).flatten();
        now.is_some_and(|now| now != changed)
    }

    /// Opens a lost file by its new mapping: earlier processes had ended before it was opened.
    fn try_again(&mut self, key: FileKey, mmap: &mut Mmap, tracker: &Tracker) {
        self.give_back_done();
        let Some(KnownFile { failed: Some(failed), is_lost: true, .. }) = self.files.get_mut(&key) else { return };
        let is_running = runs_program(mmap.pid);
        let is_due = match is_running {
            true => failed.n_running < MAX_TRIES,
            false => failed.last.elapsed() >= TRY_GONE_EVERY,
        };
        if !is_due {
            return;
        }
        failed.last = Instant::now();
        failed.n_running += u8::from(is_running);
        let place = Place::of(mmap);
        let opened = self.open(place, mmap, tracker);
        if opened.is_some() {
            if let Some(known) = self.files.get_mut(&key) {
                (known.build_id, known.failed, known.is_lost) = (mmap.identity.build_id, None, false);
                (known.version, known.checked) = (opened.as_ref().map(Opened::version), Instant::now());
            }
            self.watch(WatchedFile { opened, mmap: mmap.clone(), place, was_lost: true });
        }
    }

    /// Opens a mapped file, and adds its build ID to the mapping.
    fn open(&mut self, place: Place, mmap: &mut Mmap, tracker: &Tracker) -> Option<Opened> {
        let (mapping, ancestors) = (mmap.clone(), tracker.ancestors(mmap.pid));
        let opened = self.calls.call(place, move || open_mapped(&mapping, &ancestors)).flatten();
        if mmap.identity.build_id.is_none() {
            mmap.identity.build_id = opened.as_ref().and_then(|opened| self.build_id(place, &opened.file));
        }
        opened
    }

    fn watch(&mut self, mut file: WatchedFile) {
        file.opened = file.opened.filter(|_| self.shares.open.take(file.place.user(), 1));
        self.saver.send(Job::File(file));
    }

    /// Notes a process that runs code without a file.
    fn note_table(&mut self, pid: u32) {
        self.give_back_done();
        if self.tables.contains_key(&pid) {
            return;
        }
        let place = Place::below_root_of(pid);
        if !self.shares.tables.take(place.user(), 1) {
            self.tables.insert(pid, None);
            self.n_over.tables_over += 1;
            return;
        }
        self.tables.insert(pid, Some(place.user()));
        let directory = self.calls.call(place, move || Directory::of(pid)).flatten();
        self.saver.send(Job::Table(pid, place, directory));
    }

    fn build_id(&mut self, place: Place, file: &File) -> Option<BuildId> {
        match self.calls.wait(place, || self.parser.parse(file, place.user(), ParseTask::BuildId)).flatten()? {
            ParsedFile { found: Found::Bytes, bytes } => BuildId::new(&bytes),
            _ => None,
        }
    }

    /// Notes a kernel chain. What takes a recording in parts finds the names itself, as only the last part could have them.
    pub(crate) fn note_kernel(&mut self, chain: &[u64]) {
        if self.parts_control.is_none() {
            self.kernel.note(chain);
        }
    }

    /// Notes a mapping if it is a jitdump marker, which is no code.
    fn note_dump(&mut self, mmap: &Mmap) -> bool {
        let key = dump_key(mmap.pid, &mmap.identity);
        if self.dumps.contains(&key) {
            return true;
        }
        let place = Place::of(mmap);
        if self.shares.dumps.take(place.user(), 1) {
            self.dumps.insert(key);
            let dump = mmap.clone();
            let file = self.calls.call(place, move || jit_dumps::open(&dump)).flatten();
            self.saver.send(Job::Dump(JitDump::of(mmap, place.user(), file)));
        } else {
            self.n_over.tables_over += 1;
        }
        true
    }

    /// Has the saver look for files that are gone, and for newly compiled code.
    pub(crate) fn look(&mut self) {
        self.give_back_done();
        // The number of a process that was refused may become another's.
        self.tables.retain(|pid, user| user.is_some() || !is_gone(*pid));
        self.forget_deleted(Instant::now());
        self.saver.send(Job::Look);
    }

    /// Releases the shares of what the saver no longer needs.
    fn give_back_done(&mut self) {
        for done in self.saver.done() {
            match done {
                Done::Table { pid } => {
                    if let Some(Some(user)) = self.tables.remove(&pid) {
                        self.shares.tables.give_back(user, 1);
                    }
                }
                Done::Dump(EndedDump { pid, user, identity }) => {
                    if self.dumps.remove(&dump_key(pid, &identity)) {
                        self.shares.dumps.give_back(user, 1);
                    }
                }
                Done::File { identity, user, was_open, is_deleted, is_lost } => {
                    self.shares.open.give_back(user, u64::from(was_open));
                    if let Some(known) = self.files.get_mut(&key_of(&identity)) {
                        known.is_lost = is_lost;
                    }
                    if is_deleted {
                        self.deleted.push_back((Instant::now(), key_of(&identity)));
                    }
                }
            }
        }
    }

    fn forget_deleted(&mut self, now: Instant) {
        while let Some(&(seen, key)) = self.deleted.front()
            && now.saturating_duration_since(seen) >= DELETED_FILES_KEPT
        {
            self.deleted.pop_front();
            self.forget(&key);
        }
    }

    /// Forgets the files that no process has mapped any more, and closes them. Call it before mappings are noted.
    pub(crate) fn forget_unused(&mut self) {
        let files = self.parts_control.as_ref().map(|control| control.take_unused_files()).unwrap_or_default();
        let is_unused = |key: &FileKey, as_of_ns| self.files.get(key).is_some_and(|known| known.mapped_ns <= as_of_ns);
        let keyed = files.iter().map(|UnusedFile { identity, as_of_ns }| (key_of(identity), *as_of_ns));
        let unused: FxHashSet<FileKey> =
            keyed.filter(|(key, as_of_ns)| is_unused(key, *as_of_ns)).map(|(key, _)| key).collect();
        if !unused.is_empty() {
            unused.iter().for_each(|key| self.forget(key));
            self.saver.send(Job::Forget(unused));
        }
    }

    fn forget(&mut self, key: &FileKey) {
        if let Some(KnownFile { user, .. }) = self.files.remove(key) {
            self.shares.files.give_back(user, 1);
        }
    }

    /// The modules for the recording that are ready.
    pub(crate) fn ready(&self) -> Vec<PackedModule> {
        self.saver.ready()
    }

    /// Emits the names of kernel functions, and every file that is no longer at its path and not in the recording yet,
    /// as far as `limit` allows; returns how many could not be kept.
    pub(crate) fn finish(&mut self, limit: Option<Duration>, emit: impl FnMut(PackedModule)) -> Omitted {
        if let Some(names) = std::mem::take(&mut self.kernel).finish() {
            self.saver.send(Job::Bytes(names));
        }
        let found = self.saver.finish(limit, emit);
        let Omitted { files_over, tables_over, .. } = self.n_over;
        Omitted { files_over, tables_over, slow: self.calls.n_left_out(), ..found }
    }
}

#[cfg(test)]
mod tests;
