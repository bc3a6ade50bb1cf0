//! Loading of missed rules into the maps of the BPF programs.

use super::table::{GRANULE, MAX_FILES, RuleTable};
use crate::bpf::types::{cfi_miss, code_file};
use crate::parse::{FileParser, Found, ParseTask, RuleRange};
use crate::proc::{BlockingCalls, Place, open_mapped};
use crate::vdso;
use fpprof_recording::model::{FileIdentity, Mmap, Sample};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use rustc_hash::{FxHashMap, FxHashSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most misses queued; of those beyond, the ones that recur are taken later.
const MAX_WAITING: usize = 4096;
/// The most paths remembered.
const MAX_PATHS: usize = 1 << 14;
/// The most stack words taken for return addresses.
const MAX_GUESSED: usize = 256;
/// How many functions of a file are parsed one by one, and the size of the blocks of code that are parsed from then on.
const SINGLE_FUNCTIONS: u64 = 64;
const BLOCK_BYTES: u64 = 64 << 10;
/// The most parts of a file per request to the parser: 4 MiB of code, which have fewer ranges than it returns at once.
const MAX_PARTS: usize = 64;
/// How long the parts of one file are parsed before it is the turn of others: what is left is missed again.
const LONGEST_LOAD: Duration = Duration::from_secs(1);
/// How long a file without rules is left alone at first, and at most; the time doubles each time.
const FIRST_REFUSAL: Duration = Duration::from_millis(50);
const LONGEST_REFUSAL: Duration = Duration::from_secs(10);
/// The table is unmapped when nothing was missed for so long, for each MiB of it: mapping it again takes time by its size.
const IDLE_A_MIB: Duration = Duration::from_millis(60);
/// So many functions whose rules are loaded again within this time do not fit.
const MAX_RELOADS: usize = 100;
const RELOADS_WITHIN: Duration = Duration::from_secs(60);

/// Code that a walk had no rule for, and other code of the same mapping that the stack may return to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missed {
    /// The walked process.
    pub(crate) pid: u32,
    file: FileKey,
    offsets: Vec<u64>,
    mapping: (u64, u64),
    /// Empty if unknown.
    path: Vec<u8>,
}

impl Missed {
    /// A walk reports one missing rule at a time; the copied stack shows others that the same stack needs.
    pub(crate) fn new(sample: &Sample, miss: &cfi_miss) -> Self {
        let code_file { inode, ctime_sec, ctime_nsec, device } = miss.file;
        let file = FileKey { inode, ctime_sec, ctime_nsec, device };
        let (start, end) = (miss.start, miss.end);
        let words = sample.stack.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word).wrapping_sub(1));
        let in_mapping = words.filter(|word| (start..end).contains(word)).take(MAX_GUESSED);
        let of_mapping = miss.offset.wrapping_sub(miss.address);
        let offsets = std::iter::once(miss.address).chain(in_mapping).map(|address| address.wrapping_add(of_mapping));
        Self { pid: sample.pid, file, offsets: offsets.collect(), mapping: (start, end), path: Vec::new() }
    }
}

/// A file as the kernel identifies it; see `struct code_file`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileKey {
    inode: u64,
    ctime_sec: u64,
    ctime_nsec: u32,
    device: u32,
}

impl FileKey {
    fn is_vdso(&self) -> bool {
        self.inode == 0 && self.device == 0
    }

    /// Major and minor number, from the kernel's encoding in one word (`include/linux/kdev_t.h`).
    fn device(&self) -> (u32, u32) {
        (self.device >> 20, self.device & 0xf_ffff)
    }

    fn bytes(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.inode.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.ctime_sec.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.ctime_nsec.to_ne_bytes());
        bytes[20..].copy_from_slice(&self.device.to_ne_bytes());
        bytes
    }
}

const _: () = assert!(size_of::<code_file>() == 24 && std::mem::offset_of!(code_file, device) == 20);

/// Loads rules on its own thread, so that the ring reader never waits for it.
#[derive(Debug)]
pub(crate) struct RuleLoader {
    misses: Option<SyncSender<Missed>>,
    thread: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    /// Whether the last misses led to rules.
    finds_rules: Arc<AtomicBool>,
    do_not_fit: Arc<AtomicBool>,
    /// Paths of mapped files, by device and inode: a process may be gone before its files are opened.
    paths: FxHashMap<(u32, u32, u64), Vec<u8>>,
}

impl RuleLoader {
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(table: RuleTable, files: MapHandle, parser: Arc<dyn FileParser>) -> io::Result<Self> {
        let (misses, received) = sync_channel(MAX_WAITING);
        let [is_over, finds_rules, do_not_fit] = [false, true, false].map(|is| Arc::new(AtomicBool::new(is)));
        let loader = Loader {
            table,
            files,
            parser,
            numbers: FxHashMap::default(),
            next_number: 1,
            blocks: FxHashMap::default(),
            refused: FxHashMap::default(),
            calls: BlockingCalls::default(),
            longest_load: LONGEST_LOAD,
            is_over: Arc::clone(&is_over),
            finds_rules: Arc::clone(&finds_rules),
            reloads: Reloads { since: Instant::now(), n: 0 },
            do_not_fit: Arc::clone(&do_not_fit),
        };
        let thread = std::thread::Builder::new().name("fpprof-rules".into()).spawn(move || loader.run(&received))?;
        let (misses, thread) = (Some(misses), Some(thread));
        Ok(Self { misses, thread, is_over, finds_rules, do_not_fit, paths: FxHashMap::default() })
    }

    /// Notes the path of a mapped file.
    pub(crate) fn mapped(&mut self, mmap: &Mmap) {
        let FileIdentity { dev_major, dev_minor, inode, .. } = mmap.identity;
        if mmap.prot & libc::PROT_EXEC.cast_unsigned() == 0 || inode == 0 {
            return;
        }
        if self.paths.len() >= MAX_PATHS {
            self.paths.clear();
        }
        self.paths.entry((dev_major, dev_minor, inode)).or_insert_with(|| mmap.path.clone());
    }

    /// Whether it pays to report misses soon, because the last ones led to rules.
    pub(crate) fn finds_rules(&self) -> bool {
        self.finds_rules.load(Ordering::Relaxed)
    }

    /// Whether many rules had to be loaded again within a minute.
    pub(crate) fn do_not_fit(&self) -> bool {
        self.do_not_fit.load(Ordering::Relaxed)
    }

    /// Has the thread end after the file that it parses, without waiting for that.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Queues a miss. If the queue is full, drops it: it will recur.
    pub(crate) fn request(&self, mut missed: Missed) {
        let (major, minor) = missed.file.device();
        missed.path = self.paths.get(&(major, minor, missed.file.inode)).cloned().unwrap_or_default();
        if let Some(misses) = &self.misses {
            let _ = misses.try_send(missed);
        }
    }
}

/// Waits for the file that is being parsed.
impl Drop for RuleLoader {
    fn drop(&mut self) {
        self.end();
        self.misses = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What was loaded of a file.
#[derive(Debug, Default)]
struct Blocks {
    /// How often walks missed something new.
    n_missed: u64,
    /// Blocks that were parsed as a whole. A miss in one of them means that its rules had to make room for others.
    loaded: FxHashSet<u64>,
}

/// State of the loader thread.
struct Loader {
    table: RuleTable,
    files: MapHandle,
    parser: Arc<dyn FileParser>,
    /// Numbers of the files with rules.
    numbers: FxHashMap<FileKey, u32>,
    next_number: u32,
    blocks: FxHashMap<FileKey, Blocks>,
    /// Files that gave no rules, with the process through whose mapping they were opened: for instance, the process had
    /// ended, or the file has no rules.
    refused: FxHashMap<(FileKey, u32), Refused>,
    calls: BlockingCalls,
    /// See [`LONGEST_LOAD`].
    longest_load: Duration,
    is_over: Arc<AtomicBool>,
    finds_rules: Arc<AtomicBool>,
    reloads: Reloads,
    do_not_fit: Arc<AtomicBool>,
}

/// Functions whose rules were loaded again, since others had taken their place.
#[derive(Debug)]
struct Reloads {
    since: Instant,
    n: usize,
}

impl Reloads {
    /// Whether there are too many, with these.
    fn are_too_many(&mut self, n: usize, now: Instant) -> bool {
        if now.duration_since(self.since) > RELOADS_WITHIN {
            *self = Self { since: now, n: 0 };
        }
        self.n += n;
        self.n >= MAX_RELOADS
    }
}

/// How long, and until when, a file is left alone.
#[derive(Debug, Clone, Copy)]
struct Refused {
    until: Instant,
    pause: Duration,
}

impl Loader {
    fn run(mut self, received: &Receiver<Missed>) {
        while let Some(first) = self.next(received) {
            let mut by_file: FxHashMap<FileKey, (Missed, FxHashSet<u64>)> = FxHashMap::default();
            for missed in std::iter::once(first).chain(received.try_iter().take(MAX_WAITING)) {
                let known = by_file.entry(missed.file).or_insert_with(|| (missed.clone(), FxHashSet::default()));
                known.1.extend(missed.offsets);
            }
            let mut finds_rules = false;
            for (key, (missed, offsets)) in by_file {
                if self.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let mut offsets: Vec<u64> = offsets.into_iter().collect();
                offsets.sort_unstable();
                finds_rules |= self.look_at(key, &missed, &offsets, Instant::now());
            }
            self.finds_rules.store(finds_rules, Ordering::Relaxed);
        }
    }

    /// Waits for a miss, and maps the table for it; `None` at the end.
    fn next(&mut self, received: &Receiver<Missed>) -> Option<Missed> {
        let first = match received.recv_timeout(IDLE_A_MIB * self.table.mib()) {
            Err(RecvTimeoutError::Timeout) => {
                self.table.unmap();
                received.recv().ok()?
            }
            first => first.ok()?,
        };
        // Without memory for it, the misses until the next attempt recur.
        while self.table.map().is_err() {
            received.recv().ok()?;
        }
        Some(first)
    }

    /// Loads missed code of a file, unless the file gave nothing a moment ago; returns whether there are rules now.
    fn look_at(&mut self, key: FileKey, missed: &Missed, offsets: &[u64], now: Instant) -> bool {
        // Another process may be able to open what this one cannot.
        let file_and_process = (key, missed.pid);
        let known = self.refused.get(&file_and_process).copied();
        if known.is_some_and(|refused| now < refused.until) {
            return false;
        }
        if self.load(key, missed, offsets).is_some() {
            self.refused.remove(&file_and_process);
            return true;
        }
        if self.refused.len() >= MAX_FILES as usize {
            self.refused.clear();
        }
        let lately = known.filter(|refused| now < refused.until + LONGEST_REFUSAL);
        let pause = lately.map_or(FIRST_REFUSAL, |refused| (refused.pause * 2).min(LONGEST_REFUSAL));
        self.refused.insert(file_and_process, Refused { until: now + pause, pause });
        false
    }

    /// `None` if the file gives no rules.
    fn load(&mut self, key: FileKey, missed: &Missed, offsets: &[u64]) -> Option<()> {
        let all = self.parts(key, offsets);
        if all.is_empty() {
            return Some(());
        }
        let (file, user) = self.open(key, missed)?;
        let begun = Instant::now();
        for parts in all.chunks(MAX_PARTS) {
            if begun.elapsed() > self.longest_load || self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let task = ParseTask::Rules { parts: parts.to_vec() };
            let parsed = self.parser.parse(&file, user, task).filter(|parsed| parsed.found == Found::Bytes)?;
            let ranges: Vec<RuleRange> = RuleRange::decode(&parsed.bytes).collect();
            let rules: FxHashSet<u64> = ranges.iter().map(|range| range.rule).collect();
            if self.table.is_full_for(rules.len()) {
                self.forget_all();
            }
            let number = self.number(key)?;
            self.table.add(number, &ranges);
            self.count_reloads(key, number, parts);
            let blocks = parts.iter().filter(|part| part.end - part.start > 1);
            let loaded = blocks.map(|part| part.start / BLOCK_BYTES);
            self.blocks.entry(key).or_default().loaded.extend(loaded);
        }
        Some(())
    }

    /// Counts the single functions of blocks that were loaded before. Code at which walks end does not count: of code
    /// without call frame information, each granule is loaded by itself.
    fn count_reloads(&mut self, key: FileKey, number: u32, parts: &[Range<u64>]) {
        let Some(Blocks { loaded, .. }) = self.blocks.get(&key) else { return };
        let is_reload = |part: &&Range<u64>| {
            part.end - part.start == 1
                && loaded.contains(&(part.start / BLOCK_BYTES))
                && self.table.has_caller(number, part.start)
        };
        let n = parts.iter().filter(is_reload).count();
        if self.reloads.are_too_many(n, Instant::now()) {
            self.do_not_fit.store(true, Ordering::Relaxed);
        }
    }

    /// Starts over: whatever is needed will be missed again.
    fn forget_all(&mut self) {
        for (forgotten, _) in self.numbers.drain() {
            let _ = self.files.delete(&forgotten.bytes());
        }
        self.blocks.clear();
        self.table.clear();
    }

    /// The parts of a file to parse for these offsets, unless they have rules by now: single functions at first, and
    /// whole blocks once a file has been missed often. A program with many functions would otherwise miss one in most
    /// stacks for minutes.
    fn parts(&mut self, key: FileKey, offsets: &[u64]) -> Vec<Range<u64>> {
        if self.blocks.len() >= MAX_FILES as usize {
            self.blocks.clear();
        }
        let number = self.numbers.get(&key).copied();
        let Blocks { n_missed, loaded } = self.blocks.entry(key).or_default();
        let mut parts: Vec<Range<u64>> = Vec::new();
        for &offset in offsets {
            let is_known = number.is_some_and(|number| self.table.has(number, offset));
            if is_known || parts.last().is_some_and(|last| last.contains(&offset)) {
                continue;
            }
            *n_missed += 1;
            let block = offset / BLOCK_BYTES;
            if *n_missed <= SINGLE_FUNCTIONS || loaded.contains(&block) {
                parts.push(offset..offset + 1);
                continue;
            }
            // The function that the block begins in was often loaded with the block before.
            let is_new = |at: &u64| !number.is_some_and(|number| self.table.has(number, *at));
            let start = (block * BLOCK_BYTES..offset).step_by(GRANULE.into()).find(is_new).unwrap_or(offset);
            parts.push(start..(block + 1) * BLOCK_BYTES);
        }
        parts
    }

    /// Opens the file behind a mapping, if it is the one that the walk met. A different file may have been mapped there
    /// meanwhile, even on purpose: the rules of one file must never be applied to another, which other processes run.
    fn open(&mut self, key: FileKey, missed: &Missed) -> Option<(File, u32)> {
        if key.is_vdso() {
            return vdso::file().ok().map(|file| (file, 0));
        }
        let (start, end) = missed.mapping;
        let (dev_major, dev_minor) = key.device();
        let identity = FileIdentity { dev_major, dev_minor, inode: key.inode, ..FileIdentity::default() };
        let mmap = Mmap {
            time_ns: 0,
            pid: missed.pid,
            tid: missed.pid,
            start,
            len: end.saturating_sub(start),
            file_offset: 0,
            prot: 0,
            flags: 0,
            path: missed.path.clone(),
            identity,
            synthesized: false,
        };
        let place = Place::of(&mmap);
        let opened = self.calls.call(place, move || open_mapped(&mmap, &[])).flatten()?;
        let metadata = opened.file.metadata().ok()?;
        let changed = (metadata.ctime().cast_unsigned(), u32::try_from(metadata.ctime_nsec()).ok()?);
        let is_it = opened.is_of(&identity, missed.pid) && changed == (key.ctime_sec, key.ctime_nsec);
        is_it.then_some((opened.file, place.user()))
    }

    /// The number of a file, assigned with its first rules. If there are too many files, all are forgotten.
    ///
    /// The BPF programs may use the number of a file that is forgotten for a second more (`MAPPINGS_AGE_NS`), so that
    /// number must not stand for another file soon. When all have been used, they start over: the files forgotten then have some of the last
    /// [`MAX_FILES`] numbers, and the first ones are free.
    fn number(&mut self, key: FileKey) -> Option<u32> {
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        if self.numbers.len() >= MAX_FILES as usize || !RuleTable::is_number(self.next_number) {
            self.forget_all();
        }
        if !RuleTable::is_number(self.next_number) {
            self.next_number = 1;
        }
        let number = self.next_number;
        self.files.update(&key.bytes(), &number.to_ne_bytes(), MapFlags::ANY).ok()?;
        self.next_number += 1;
        self.numbers.insert(key, number);
        Some(number)
    }
}

#[cfg(test)]
mod tests;
