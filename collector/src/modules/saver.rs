//! The thread that looks for files that are gone.

use crate::backoff::Backoff;
use crate::jit_dumps::{EndedDump, JitDump, JitDumps};
use crate::note::{CountedNote, Note};
use crate::parse::{FileParser, Found, MAX_PARSED_BYTES, ParseTask, ParsedFile};
use crate::perf_maps::{Directory, PerfMaps};
use crate::proc::{BlockingCalls, Opened, Place, open_mapped, still_at};
use crate::share::Shares;
use fpprof_recording::PackedModule;
use fpprof_recording::model::{FileIdentity, Mmap, ModuleBytes};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most bytes of all files copied into a recording, shared among users. In one that is taken in parts, which may never
/// end, they are available again after [`RENEWED_AFTER`].
const MAX_TOTAL_BYTES: u64 = 512 << 20;
/// When a recording that is taken in parts may have as many bytes of files, tables and dumps again.
pub(super) const RENEWED_AFTER: Duration = Duration::from_secs(600);
/// The most files whose paths are checked in every look. Of more, most are there for as long as the machine runs.
const FILES_EACH_LOOK: usize = 16;
/// The most files whose paths are checked per look, on average.
const FILES_A_LOOK: usize = 2048;
/// Files of one place that are checked in one call, so that it stays short.
const FILES_A_CALL: usize = 256;
/// The most jobs done before files are looked at, if that is among them: a process may make new ones without end.
const MAX_JOBS: usize = 1024;
/// Bytes of files, before they are packed, that make a batch for the reader.
const BATCH_BYTES: usize = 4 << 20;

/// Number of things whose bytes would be needed and are not in the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Omitted {
    pub(crate) files: u64,
    /// Tables and dumps of compiled code.
    pub(crate) tables: u64,
    /// Dumps of compiled code that are only partly in it.
    pub(crate) cut_dumps: u64,
    /// Mappings of files that were not checked because there were too many.
    pub(crate) files_over: u64,
    /// Processes and dumps that were not checked because there were too many.
    pub(crate) tables_over: u64,
    /// Files and directories that were not checked because others of their user had taken too long.
    pub(crate) slow: u64,
}

impl Omitted {
    /// The numbers, each with the note that reports it.
    pub(crate) fn counted(self) -> [CountedNote; 6] {
        [
            (self.files, Note::FilesNotSaved),
            (self.tables, Note::TablesRefused),
            (self.cut_dumps, Note::DumpsCut),
            (self.files_over, Note::FilesOverLimit),
            (self.tables_over, Note::TablesOverLimit),
            (self.slow, Note::FilesTooSlow),
        ]
    }
}

/// A request to the saver.
#[derive(Debug)]
pub(super) enum Job {
    File(WatchedFile),
    /// The table of a process, in its `/tmp` if that could be opened.
    Table(u32, Place, Option<Directory>),
    Dump(JitDump),
    Bytes(ModuleBytes),
    /// Stops looking at these files, and closes them.
    Forget(FxHashSet<FileKey>),
    Look,
}

/// Identity of a file without its build ID, which is known only after reading the file.
pub(super) type FileKey = (u32, u32, u64, u64);

/// The generation is only known for mappings that the kernel reported.
pub(super) fn key_of(identity: &FileIdentity) -> FileKey {
    (identity.dev_major, identity.dev_minor, identity.inode, identity.inode_generation)
}

/// Something the saver no longer needs.
#[derive(Debug)]
pub(super) enum Done {
    /// The table of a process that has ended.
    Table { pid: u32 },
    /// The dump of a process that has ended.
    Dump(EndedDump),
    /// A file that is no longer at its path, or was to be forgotten. It is lost if its bytes would be needed, and could not be
    /// recorded.
    File { identity: FileIdentity, user: u32, was_open: bool, is_deleted: bool, is_lost: bool },
}

/// A file that may disappear.
#[derive(Debug)]
pub(super) struct WatchedFile {
    /// `None` if it could not be opened, or too many others are open.
    pub(super) opened: Option<Opened>,
    /// The mapping that it was opened by.
    pub(super) mmap: Mmap,
    pub(super) place: Place,
    /// Whether it was reported as lost before.
    pub(super) was_lost: bool,
}

impl WatchedFile {
    fn state(&self) -> FileState {
        if still_at(&self.mmap.path, &self.mmap.identity, self.opened.as_ref()) {
            FileState::Present
        } else if self.opened.as_ref().is_none_or(Opened::is_deleted) {
            FileState::Deleted
        } else {
            FileState::Elsewhere
        }
    }
}

/// State of a mapped file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileState {
    /// At its path, as this process sees it.
    Present,
    /// At another path, or in another mount namespace.
    Elsewhere,
    /// No path leads to it, as far as known.
    Deleted,
}

/// Handle of the saver thread.
#[derive(Debug)]
pub(super) struct FileSaver {
    jobs: Option<Sender<Job>>,
    /// Holds one batch while the next is prepared; then the saver waits.
    ready: Receiver<Vec<PackedModule>>,
    /// When the saver stops copying files, once it is known.
    deadline: Arc<OnceLock<Instant>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<Omitted>>,
}

impl FileSaver {
    pub(super) fn start(parser: Arc<dyn FileParser>, renewed_after: Option<Duration>) -> io::Result<Self> {
        let (jobs, to_do) = channel();
        let (pass_on, ready) = sync_channel(1);
        let (tell_done, done) = channel();
        let deadline = Arc::new(OnceLock::new());
        let work = Work {
            outbox: Outbox { batch: Vec::new(), bytes: 0, ready: pass_on },
            deadline: Arc::clone(&deadline),
            done: tell_done,
            parser,
            calls: BlockingCalls::default(),
            files: Vec::new(),
            tables: PerfMaps::default(),
            dumps: JitDumps::default(),
            backoff: Backoff::default(),
            bytes: Shares::new(MAX_TOTAL_BYTES),
            renewed_after,
            renewed: Instant::now(),
            n_lost: 0,
            n_silent: 0,
        };
        let thread = std::thread::Builder::new().name("fpprof-files".to_owned()).spawn(move || work.run(&to_do))?;
        Ok(Self { jobs: Some(jobs), ready, deadline, done, thread: Some(thread) })
    }

    pub(super) fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // The saver only ends before its channel by a panic, which `finish` propagates.
            let _ = jobs.send(job);
        }
    }

    pub(super) fn ready(&self) -> Vec<PackedModule> {
        self.ready.try_recv().unwrap_or_default()
    }

    /// What the saver finished with since the last call.
    pub(super) fn done(&self) -> impl Iterator<Item = Done> + '_ {
        self.done.try_iter()
    }

    /// Has the saver look for the last time, and ends it. Files that are still to be copied after `limit` are lost.
    pub(super) fn finish(&mut self, limit: Option<Duration>, emit: impl FnMut(PackedModule)) -> Omitted {
        if let Some(deadline) = limit.and_then(|limit| Instant::now().checked_add(limit)) {
            self.deadline.get_or_init(|| deadline);
        }
        self.jobs = None;
        self.ready.iter().flatten().for_each(emit);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(omitted)) => omitted,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Omitted::default(),
        }
    }
}

/// Modules on their way to the reader. It takes a whole batch each time it reads the rings, as an update of the system
/// replaces many files together.
struct Outbox {
    batch: Vec<PackedModule>,
    /// Bytes of the batch before they were packed.
    bytes: usize,
    ready: SyncSender<Vec<PackedModule>>,
}

impl Outbox {
    /// Adds a module; returns whether the recording's format can hold it.
    fn add(&mut self, module: ModuleBytes) -> bool {
        let bytes = module.bytes.len();
        let Ok(packed) = PackedModule::new(module) else { return false };
        self.batch.push(packed);
        self.bytes += bytes;
        if self.bytes >= BATCH_BYTES {
            self.pass_on();
        }
        true
    }

    /// Waits until the reader has taken the batch before.
    fn pass_on(&mut self) {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        if !batch.is_empty() {
            // If the recording is abandoned, nobody receives this.
            let _ = self.ready.send(batch);
        }
    }
}

/// State of the saver thread.
struct Work {
    outbox: Outbox,
    deadline: Arc<OnceLock<Instant>>,
    done: Sender<Done>,
    parser: Arc<dyn FileParser>,
    calls: BlockingCalls,
    /// Files still at their paths, or on a file system that did not answer.
    files: Vec<Arc<WatchedFile>>,
    tables: PerfMaps,
    dumps: JitDumps,
    /// Leaves files out of looks.
    backoff: Backoff,
    /// Bytes copied from files.
    bytes: Shares,
    /// When users may have as many bytes copied again; `None` is never.
    renewed_after: Option<Duration>,
    renewed: Instant,
    /// Files that would be needed and could not be kept.
    n_lost: u64,
    /// Files whose state was unknown at the last look.
    n_silent: u64,
}

impl Work {
    fn run(mut self, to_do: &Receiver<Job>) -> Omitted {
        while let Ok(first) = to_do.recv() {
            let mut looks = false;
            for job in std::iter::once(first).chain(to_do.try_iter().take(MAX_JOBS)) {
                looks |= matches!(job, Job::Look);
                self.take(job);
            }
            if looks {
                self.look(false);
            }
            self.outbox.pass_on();
        }
        self.look(true);
        self.outbox.pass_on();
        self.n_lost += self.n_silent;
        let dumps = self.dumps.untaken();
        Omitted {
            files: self.n_lost,
            tables: self.tables.n_refused().saturating_add(dumps.refused),
            cut_dumps: dumps.cut,
            ..Omitted::default()
        }
    }

    /// Lets users have as many bytes copied as in a new recording, if it is time.
    fn renew(&mut self) {
        if self.renewed_after.is_some_and(|after| self.renewed.elapsed() >= after) {
            self.renewed = Instant::now();
            self.bytes = Shares::new(MAX_TOTAL_BYTES);
            self.tables.renew();
            self.dumps.renew();
        }
    }

    fn take(&mut self, job: Job) {
        self.renew();
        match job {
            Job::File(file) => {
                self.n_lost -= u64::from(file.was_lost);
                self.look_at(file.place, &[Arc::new(file)]);
            }
            Job::Table(pid, place, directory) => self.tables.add(pid, place, directory),
            Job::Dump(dump) => self.dumps.add(dump),
            Job::Bytes(module) => _ = self.outbox.add(module),
            Job::Forget(keys) => self.forget(&keys),
            Job::Look => {}
        }
    }

    fn forget(&mut self, keys: &FxHashSet<FileKey>) {
        for file in self.files.extract_if(.., |file| keys.contains(&key_of(&file.mmap.identity))) {
            let (identity, user, was_open) = (file.mmap.identity, file.place.user(), file.opened.is_some());
            send(&self.done, Done::File { identity, user, was_open, is_deleted: false, is_lost: false });
        }
    }

    /// Checks tables, dumps and files; none is left out of the last look while there is time.
    fn look(&mut self, is_last: bool) {
        let Self { calls, outbox, parser, deadline, .. } = self;
        let has_time = || deadline.get().is_none_or(|&deadline| Instant::now() < deadline);
        let emit = &mut |module| _ = outbox.add(module);
        let tables = self.tables.look(is_last, calls, parser.as_ref(), &has_time, emit);
        let tables = tables.into_iter().map(|pid| Done::Table { pid });
        let dumps = self.dumps.look(parser.as_ref(), &has_time, emit).into_iter().map(Done::Dump);
        tables.chain(dumps).for_each(|done| send(&self.done, done));
        let n_files = self.files.len();
        let is_due = self.backoff.is_due();
        if is_last || is_due || n_files <= FILES_EACH_LOOK {
            let looks = usize::try_from(self.backoff.left_out()).unwrap_or(0) + 1;
            self.check(if is_last { n_files } else { n_files.min(looks * FILES_A_LOOK) });
            self.backoff.looked(self.files.len() != n_files);
        }
    }

    /// Checks the state of some files; those checked move to the back of the queue.
    fn check(&mut self, n: usize) {
        let mut places: BTreeMap<Place, Vec<Arc<WatchedFile>>> = BTreeMap::new();
        for file in self.files.drain(..n) {
            places.entry(file.place).or_default().push(file);
        }
        self.n_silent = 0;
        for (place, files) in places {
            files.chunks(FILES_A_CALL).for_each(|some| self.look_at(place, some));
        }
    }

    fn look_at(&mut self, place: Place, files: &[Arc<WatchedFile>]) {
        let looked_at = files.to_vec();
        let look = move || looked_at.iter().map(|file| file.state()).collect::<Vec<_>>();
        let Some(found) = self.calls.call(place, look) else {
            self.n_silent += files.len() as u64;
            return self.files.extend_from_slice(files);
        };
        for (file, state) in files.iter().zip(found) {
            if state == FileState::Present {
                self.files.push(Arc::clone(file));
                continue;
            }
            let is_lost = !self.save(file);
            self.n_lost += u64::from(is_lost);
            let (identity, was_open) = (file.mmap.identity, file.opened.is_some());
            let is_deleted = state == FileState::Deleted;
            send(&self.done, Done::File { identity, user: place.user(), was_open, is_deleted, is_lost });
        }
    }

    /// Copies a file to the recording; returns whether that was possible.
    fn save(&mut self, file: &WatchedFile) -> bool {
        if self.deadline.get().is_some_and(|&deadline| Instant::now() >= deadline) {
            return false;
        }
        let room = MAX_PARSED_BYTES.min(self.bytes.left(file.place.user()));
        let again = match file.opened {
            Some(_) => None,
            None => {
                let mmap = file.mmap.clone();
                self.calls.call(file.place, move || open_mapped(&mmap, &[])).flatten()
            }
        };
        let opened = file.opened.as_ref().or(again.as_ref()).filter(|opened| opened.bytes <= room);
        let parsed = opened
            .map(|Opened { file, bytes, .. }| (file, ParseTask::WithoutData { bytes: *bytes }))
            .and_then(|(bytes_of, task)| self.parser.parse(bytes_of, file.place.user(), task));
        // For a file that is no ELF file, the recording only says that it was mapped.
        let Some(ParsedFile { found: Found::Bytes | Found::Nothing, bytes }) = parsed else { return false };
        self.bytes.take(file.place.user(), bytes.len() as u64);
        let module = ModuleBytes { path: file.mmap.path.clone(), identity: file.mmap.identity, bytes };
        self.outbox.add(module)
    }
}

fn send(done: &Sender<Done>, what: Done) {
    // If the recording is abandoned, nobody receives this.
    let _ = done.send(what);
}
