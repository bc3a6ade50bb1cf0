//! A recording under way, in memory: all process events that still matter, and the samples since the last look.

use fpprof_recording::model::{Meta, Sideband};
use fpprof_recording::{BlockKind, Recording, RecordingWriter, block_items, block_kind};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of samples that wait to be looked at; what comes beyond is left out of the view, and said to be.
pub(crate) const MAX_SAMPLE_BYTES: usize = 32 << 20;
/// Bytes of process events that are kept, after what is over has been taken out.
pub(crate) const MAX_EVENT_BYTES: usize = 64 << 20;
/// The first time process events are gone through for what is over; after that, whenever they have doubled.
const COMPACT_AT: usize = 4 << 20;

/// What the collector writes into: keeps blocks for the view, and passes them on.
#[derive(Debug)]
pub(crate) struct Sink<W> {
    shared: Arc<Shared>,
    file: Option<W>,
}

/// The reader's end.
#[derive(Debug, Clone)]
pub(crate) struct Feed(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    blocks: Mutex<Blocks>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Blocks {
    /// In the order they came, which the format demands.
    kept: Vec<(BlockKind, Vec<u8>)>,
    sample_bytes: usize,
    event_bytes: usize,
    compact_at: usize,
    /// Blocks that found no room, and the samples in them: those before the last balance, and those behind it.
    left_out: LeftOut,
    left_out_since: LeftOut,
    /// The last block with the balance.
    balance: Option<Vec<u8>>,
    /// Blocks up to the last one with the balance: what came behind it, a later balance counts.
    n_counted: usize,
    is_ready: bool,
    is_over: bool,
}

/// What found no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct LeftOut {
    blocks: u64,
    samples: u64,
}

/// Both ends; `file` gets a copy of everything.
pub(crate) fn pair<W: Write>(file: Option<W>) -> (Sink<W>, Feed) {
    let shared = Arc::new(Shared::default());
    (Sink { shared: Arc::clone(&shared), file }, Feed(shared))
}

/// What came of a recording since the last look.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// A recording without an end: opens like any.
    pub(crate) bytes: Vec<u8>,
    /// Blocks of samples or events that were left out, for want of room.
    pub(crate) left_out: u64,
    /// Samples in it.
    pub(crate) samples: u64,
    /// Samples in the blocks that were left out.
    pub(crate) samples_left_out: u64,
    /// A recording without samples, that says the balance since the recorder began; empty where nothing said it yet.
    pub(crate) balance: Vec<u8>,
}

impl<W: Write> Write for Sink<W> {
    /// Takes a whole block, as the writer of recordings gives it.
    fn write(&mut self, block: &[u8]) -> io::Result<usize> {
        if let Some(file) = &mut self.file {
            file.write_all(block)?;
        }
        self.shared.lock().push(block);
        Ok(block.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)?;
        self.shared.lock().is_ready = true;
        self.shared.changed.notify_all();
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Blocks> {
        // Blocks are whole or not there, whoever panicked.
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed {
    /// Nothing more will come.
    pub(crate) fn end(&self) {
        let mut blocks = self.0.lock();
        (blocks.is_ready, blocks.is_over) = (true, true);
        self.0.changed.notify_all();
    }

    /// What there is now, and what came since this was called last.
    pub(crate) fn take(&self) -> Part {
        self.0.lock().take()
    }

    /// Waits until a second's worth is there; `None` at the end.
    pub(crate) fn next(&self) -> Option<Part> {
        let mut blocks = self.0.lock();
        while !blocks.is_ready {
            let waited = self.0.changed.wait_timeout(blocks, Duration::from_secs(1));
            blocks = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        blocks.is_ready = blocks.is_over;
        (!blocks.is_over).then(|| blocks.take())
    }
}

impl Blocks {
    fn push(&mut self, block: &[u8]) {
        let Some(kind) = block_kind(block) else { return };
        match kind {
            BlockKind::Samples if self.sample_bytes + block.len() > MAX_SAMPLE_BYTES => {
                self.left_out_since.blocks += 1;
                self.left_out_since.samples += u64::from(block_items(block));
                return;
            }
            BlockKind::Samples => self.sample_bytes += block.len(),
            BlockKind::Sideband => self.event_bytes += block.len(),
            BlockKind::Meta => {}
            BlockKind::Checkpoint | BlockKind::End => {
                self.balance = Some(block.to_vec());
                self.count();
                return;
            }
            BlockKind::Gaps => return,
        }
        self.kept.push((kind, block.to_vec()));
    }

    /// What is there now, the last balance is of.
    fn count(&mut self) {
        self.n_counted = self.kept.len();
        let LeftOut { blocks, samples } = std::mem::take(&mut self.left_out_since);
        self.left_out.blocks += blocks;
        self.left_out.samples += samples;
    }

    /// The samples that the last balance counts, with all process events, as one recording; the samples are gone then.
    fn take(&mut self) -> Part {
        if self.balance.is_none() {
            self.count();
        }
        let n_counted = std::mem::take(&mut self.n_counted);
        let is_sample = |kind: BlockKind| kind == BlockKind::Samples;
        let (mut bytes, mut samples) = (Vec::new(), 0);
        for (_, (kind, block)) in (0..).zip(&self.kept).filter(|&(n, (kind, _))| n < n_counted || !is_sample(*kind)) {
            bytes.extend_from_slice(block);
            samples += if is_sample(*kind) { u64::from(block_items(block)) } else { 0 };
        }
        let meta = self.kept.iter().find(|(kind, _)| *kind == BlockKind::Meta).map(|(_, block)| block);
        let balance = meta.into_iter().chain(&self.balance).flatten().copied().collect();
        let mut n = 0;
        self.kept.retain(|(kind, _)| {
            n += 1;
            n > n_counted || !is_sample(*kind)
        });
        let rest = self.kept.iter().filter(|(kind, _)| is_sample(*kind));
        self.sample_bytes = rest.map(|(_, block)| block.len()).sum();
        if self.event_bytes > self.compact_at.max(COMPACT_AT) {
            self.compact();
            self.compact_at = 2 * self.event_bytes;
        }
        let left_out = std::mem::take(&mut self.left_out);
        Part { bytes, left_out: left_out.blocks, samples, samples_left_out: left_out.samples, balance }
    }

    /// Takes out the events of processes that are over.
    fn compact(&mut self) {
        let bytes: Vec<u8> = self.kept.iter().flat_map(|(_, block)| block).copied().collect();
        // What cannot be read stays as it is, up to the limit.
        if let Ok(compacted) = without_the_dead(bytes) {
            let samples = self.kept.drain(..).filter(|(kind, _)| *kind == BlockKind::Samples);
            self.kept = compacted.0.into_iter().chain(samples).collect();
        }
        let bytes_of = |kept: &[(BlockKind, Vec<u8>)]| -> usize {
            kept.iter().filter(|(kind, _)| *kind == BlockKind::Sideband).map(|(_, block)| block.len()).sum()
        };
        while bytes_of(&self.kept) > MAX_EVENT_BYTES {
            let Some(oldest) = self.kept.iter().position(|(kind, _)| *kind == BlockKind::Sideband) else { break };
            self.kept.remove(oldest);
            self.left_out.blocks += 1;
        }
        self.event_bytes = bytes_of(&self.kept);
    }
}

/// Keeps each block it is given.
#[derive(Debug, Default)]
struct BlockSink(Vec<(BlockKind, Vec<u8>)>);

impl Write for BlockSink {
    fn write(&mut self, block: &[u8]) -> io::Result<usize> {
        self.0.extend(block_kind(block).map(|kind| (kind, block.to_vec())));
        Ok(block.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The recording anew, with the events that samples to come can need.
fn without_the_dead(bytes: Vec<u8>) -> Result<BlockSink, fpprof_recording::Error> {
    let mut recording = Recording::open(Cursor::new(bytes))?;
    let meta: Meta = recording.meta().clone();
    let mut liveness = Liveness::default();
    let mut n = 0;
    recording.sideband(|event| {
        liveness.note(event, n);
        n += 1;
    })?;
    let needed = liveness.needed();
    let mut writer = RecordingWriter::new(BlockSink::default(), &meta)?;
    let mut result = Ok(());
    n = 0;
    recording.sideband(|event| {
        if is_needed(event, n, &needed) && result.is_ok() {
            result = writer.sideband(event);
        }
        n += 1;
    })?;
    result?;
    writer.flush()?;
    Ok(writer.into_inner())
}

/// From which event on each process is needed.
type Needed = BTreeMap<u32, u64>;

fn is_needed(event: &Sideband, n: u64, needed: &Needed) -> bool {
    let pid = match event {
        Sideband::Mmap(mmap) => mmap.pid,
        Sideband::Comm(comm) => comm.pid,
        Sideband::Fork(fork) => fork.pid,
        Sideband::Exit(exit) => exit.pid,
        Sideband::Module(_) => return true,
    };
    needed.get(&pid).is_some_and(|&since| n >= since)
}

/// Who is alive, and from whom they have what they map.
#[derive(Debug, Default)]
struct Liveness {
    dead: BTreeSet<u32>,
    seen: BTreeSet<u32>,
    /// Last exec of a process.
    exec: BTreeMap<u32, u64>,
    /// Its parent, and when it was forked.
    parent: BTreeMap<u32, (u32, u64)>,
}

impl Liveness {
    fn note(&mut self, event: &Sideband, n: u64) {
        match event {
            Sideband::Mmap(mmap) => drop(self.seen.insert(mmap.pid)),
            Sideband::Comm(comm) => {
                self.seen.insert(comm.pid);
                if comm.exec {
                    self.exec.insert(comm.pid, n);
                }
            }
            Sideband::Fork(fork) if fork.pid != fork.parent_pid => {
                self.seen.insert(fork.pid);
                self.dead.remove(&fork.pid);
                self.exec.remove(&fork.pid);
                self.parent.insert(fork.pid, (fork.parent_pid, n));
            }
            Sideband::Exit(exit) if exit.pid == exit.tid => drop(self.dead.insert(exit.pid)),
            Sideband::Fork(_) | Sideband::Exit(_) | Sideband::Module(_) => {}
        }
    }

    /// The living from their last exec on; where that was not after their fork, all of those they come from as well.
    fn needed(&self) -> Needed {
        let mut needed = Needed::new();
        for &pid in self.seen.difference(&self.dead) {
            // Of an ancestor all counts that was before the fork, its own exec ends the search if it was.
            let (mut pid, mut before) = (pid, u64::MAX);
            loop {
                let exec = self.exec.get(&pid).copied().filter(|&exec| exec < before);
                let since = if before == u64::MAX { exec.unwrap_or(0) } else { 0 };
                let is_new = needed.get(&pid).is_none_or(|&known| since < known || before == u64::MAX);
                let known = needed.entry(pid).or_insert(since);
                *known = (*known).min(since);
                match self.parent.get(&pid) {
                    Some(&(parent, forked)) if exec.is_none() && is_new && forked < before => {
                        (pid, before) = (parent, forked);
                    }
                    _ => break,
                }
            }
        }
        needed
    }
}

#[cfg(test)]
mod tests;
