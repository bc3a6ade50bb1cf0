//! A running recording in memory: all process events that still matter, and the samples since the last part.

use super::compact::{Block, Compacted, Gone, without_the_dead};
use fpprof_collector::PartsControl;
use fpprof_recording::{BlockKind, block_items, block_kind};
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most bytes of samples kept for the next part; further blocks are left out and counted.
const MAX_SAMPLE_BYTES: usize = 32 << 20;
/// The most bytes of process events kept after compaction, including those of files and compiled code.
const MAX_EVENT_BYTES: usize = 64 << 20;
/// The most bytes of process events until they are compacted.
const MAX_NEW_EVENT_BYTES: usize = 2 * MAX_EVENT_BYTES;
/// The most bytes of files and compiled code among them: without process events, no stack has names.
const MAX_MODULE_BYTES: usize = MAX_EVENT_BYTES / 2;
/// Bytes of process events at which they are first compacted; afterwards, whenever they have grown by half. Until
/// then, each part has those of ended processes, too.
const COMPACT_AT: usize = 1 << 20;
/// They are also compacted after this time, however few they are: the recorder then closes the files that no process maps any
/// more, and their file systems can be unmounted.
const COMPACT_EVERY: Duration = Duration::from_secs(600);
/// How long a requested flush is waited for. The recorder of the agent reads once a second.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);

/// The collector's end: keeps blocks for the next part, and copies them to a file if there is one.
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
    control: Arc<PartsControl>,
}

#[derive(Debug, Default)]
struct Blocks {
    /// In order of arrival, which the format requires.
    kept: Vec<Block>,
    sample_bytes: usize,
    event_bytes: usize,
    compact_at: usize,
    /// When they are compacted in any case; `None` before the first part.
    compact_by: Option<Instant>,
    /// Processes that were gone when they were last compacted.
    gone: Gone,
    /// Left out for want of room, up to the last balance.
    left_out: LeftOut,
    /// Left out since the last balance.
    left_out_since: LeftOut,
    /// The last block with a balance.
    balance: Option<Vec<u8>>,
    /// Number of blocks in `kept` that the last balance counts; later ones are counted by a later balance.
    n_counted: usize,
    /// Number of the first blocks in `kept` that a part has had: process events.
    n_taken: usize,
    has_new_balance: bool,
    is_ready: bool,
    is_over: bool,
}

/// Blocks of samples or events that were left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct LeftOut {
    blocks: u64,
    samples: u64,
}

/// Creates both ends; `file`, if any, receives a copy of everything.
pub(crate) fn pair<W: Write>(file: Option<W>) -> (Sink<W>, Feed) {
    let shared = Arc::new(Shared::default());
    (Sink { shared: Arc::clone(&shared), file }, Feed(shared))
}

/// The blocks of a recording since the previous part.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// A recording without an end block, which is valid.
    blocks: Vec<Arc<[u8]>>,
    /// Blocks of samples or events that were left out for want of room.
    pub(crate) left_out: u64,
    /// Samples in the blocks.
    pub(crate) samples: u64,
    /// Samples in the blocks that were left out.
    pub(crate) samples_left_out: u64,
    /// A recording without samples that holds the balance since the recorder started; empty if there is none yet.
    pub(crate) balance: Vec<u8>,
}

impl Part {
    /// Writes the recording.
    ///
    /// # Errors
    /// Those of the writer.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.blocks.iter().try_for_each(|block| out.write_all(block))
    }

    /// The recording as bytes.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.blocks.concat()
    }
}

impl<W: Write> Write for Sink<W> {
    /// Accepts one whole block, as `RecordingWriter` writes it.
    fn write(&mut self, block: &[u8]) -> io::Result<usize> {
        if let Some(file) = &mut self.file {
            file.write_all(block)?;
        }
        let n_dropped = self.shared.lock().push(block);
        self.shared.control.note_dropped(n_dropped);
        Ok(block.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)?;
        // Once there are balances, a part is ready only when its balance has been written.
        let mut blocks = self.shared.lock();
        if blocks.balance.is_none() || std::mem::take(&mut blocks.has_new_balance) {
            blocks.is_ready = true;
            self.shared.changed.notify_all();
        }
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Blocks> {
        // Blocks are added whole, so a panic elsewhere leaves them consistent.
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The recording is over, also if the recorder has panicked.
impl<W> Drop for Sink<W> {
    fn drop(&mut self) {
        let mut blocks = self.shared.lock();
        (blocks.is_ready, blocks.is_over) = (true, true);
        self.shared.changed.notify_all();
    }
}

impl Feed {
    /// Takes what the last balance counts and no part has had; `None` before the first balance.
    pub(crate) fn take(&self) -> Option<Part> {
        let blocks = self.0.lock();
        blocks.balance.is_some().then(|| self.take_from(blocks))
    }

    /// What the recorder's request must have as `parts_control` for [`Self::take_flushed`].
    pub(crate) fn control(&self) -> Arc<PartsControl> {
        Arc::clone(&self.0.control)
    }

    /// Like [`Self::take`], after a flush: of what was recorded until now. If the recorder does not flush in time, what it
    /// holds is in the next part.
    pub(crate) fn take_flushed(&self) -> Option<Part> {
        let mut blocks = self.0.lock();
        blocks.is_ready = blocks.is_over;
        self.0.control.request_flush();
        // Before the first balance, samples alone are a flush, too.
        let is_due = |blocks: &mut Blocks| !blocks.is_ready || (blocks.balance.is_none() && !blocks.is_over);
        let waited = self.0.changed.wait_timeout_while(blocks, FLUSH_LIMIT, is_due);
        let blocks = waited.unwrap_or_else(PoisonError::into_inner).0;
        blocks.balance.is_some().then(|| self.take_from(blocks))
    }

    /// Whether a part should be taken soon: more than half of the room for samples is used, or there are more process
    /// events than are kept from part to part.
    pub(crate) fn is_filling_up(&self) -> bool {
        let blocks = self.0.lock();
        blocks.sample_bytes > MAX_SAMPLE_BYTES / 2 || blocks.event_bytes > MAX_EVENT_BYTES.max(blocks.compact_at)
    }

    /// Waits for the next flush, which the collector does each second unless flushes are requested; returns false once
    /// the recording is over.
    pub(crate) fn wait(&self) -> bool {
        !self.ready().is_over
    }

    /// Waits for the next flush and takes a part; `None` at the end.
    pub(crate) fn next(&self) -> Option<Part> {
        let blocks = self.ready();
        (!blocks.is_over).then(|| self.take_from(blocks))
    }

    /// Takes a part; then, if another may follow, and there are many events or it is time, removes those that no later part
    /// needs.
    fn take_from(&self, mut blocks: MutexGuard<'_, Blocks>) -> Part {
        let part = blocks.take();
        if blocks.is_over {
            return part;
        }
        let now = Instant::now();
        let is_time = now >= *blocks.compact_by.get_or_insert(now + COMPACT_EVERY);
        if (is_time || blocks.event_bytes > blocks.compact_at.max(COMPACT_AT)) && blocks.n_taken > 0 {
            blocks.compact_by = Some(now + COMPACT_EVERY);
            let taken = blocks.taken().to_vec();
            let gone = std::mem::take(&mut blocks.gone);
            // It takes a while, and the recorder must not wait for it.
            drop(blocks);
            let compacted = without_the_dead(&taken, MAX_MODULE_BYTES, &gone);
            let mut blocks = self.0.lock();
            let is_same = |((_, now), (_, then)): (&Block, &Block)| Arc::ptr_eq(now, then);
            if blocks.taken().len() == taken.len() && blocks.taken().iter().zip(&taken).all(is_same) {
                // Events that cannot be read are kept, up to the limit.
                let (unused_files, gone) = Default::default();
                let unread = Compacted { blocks: taken, unused_files, n_left_out: 0, gone };
                let Compacted { blocks: needed, unused_files, n_left_out, gone } = compacted.unwrap_or(unread);
                blocks.left_out.blocks += n_left_out;
                blocks.gone = gone;
                self.0.control.note_dropped(blocks.replace_taken(needed));
                self.0.control.forget(unused_files);
            }
        }
        part
    }

    fn ready(&self) -> MutexGuard<'_, Blocks> {
        let blocks = self.0.lock();
        let waited = self.0.changed.wait_while(blocks, |blocks| !blocks.is_ready);
        let mut blocks = waited.unwrap_or_else(PoisonError::into_inner);
        blocks.is_ready = blocks.is_over;
        blocks
    }
}

impl Blocks {
    /// Adds a block; returns the number of dropped blocks of process events.
    fn push(&mut self, block: &[u8]) -> u64 {
        let Some(kind) = block_kind(block) else { return 0 };
        match kind {
            BlockKind::Samples if self.sample_bytes + block.len() > MAX_SAMPLE_BYTES => {
                self.left_out_since.blocks += 1;
                self.left_out_since.samples += u64::from(block_items(block));
                return 0;
            }
            BlockKind::Sideband if self.event_bytes + block.len() > MAX_NEW_EVENT_BYTES => {
                self.left_out_since.blocks += 1;
                return 1;
            }
            BlockKind::Samples => self.sample_bytes += block.len(),
            BlockKind::Sideband => self.event_bytes += block.len(),
            BlockKind::Meta => {}
            BlockKind::Checkpoint | BlockKind::End => {
                self.balance = Some(block.to_vec());
                self.has_new_balance = true;
                self.count();
                return 0;
            }
            BlockKind::Gaps => return 0,
        }
        self.kept.push((kind, block.into()));
        0
    }

    /// Marks all blocks so far as counted by the last balance.
    fn count(&mut self) {
        self.n_counted = self.kept.len();
        let LeftOut { blocks, samples } = std::mem::take(&mut self.left_out_since);
        self.left_out.blocks += blocks;
        self.left_out.samples += samples;
    }

    /// Takes the samples that the last balance counts, with all process events, as one recording; the samples are then
    /// removed.
    ///
    /// Samples after that balance stay for the next part, so that the samples of each part match its balance exactly.
    fn take(&mut self) -> Part {
        if self.balance.is_none() {
            self.count();
        }
        let n_counted = std::mem::take(&mut self.n_counted);
        let is_sample = |kind: BlockKind| kind == BlockKind::Samples;
        let (mut blocks, mut samples) = (Vec::new(), 0);
        for (_, (kind, block)) in (0..).zip(&self.kept).filter(|&(n, (kind, _))| n < n_counted || !is_sample(*kind)) {
            blocks.push(Arc::clone(block));
            samples += if is_sample(*kind) { u64::from(block_items(block)) } else { 0 };
        }
        let meta = self.kept.iter().find(|(kind, _)| *kind == BlockKind::Meta).map(|(_, block)| block);
        let balance =
            meta.into_iter().flat_map(|meta| meta.iter()).chain(self.balance.iter().flatten()).copied().collect();
        let rest = self.kept.split_off(n_counted);
        self.kept.retain(|(kind, _)| !is_sample(*kind));
        self.n_taken = self.kept.len();
        self.kept.extend(rest);
        self.sample_bytes = bytes_of(&self.kept, BlockKind::Samples);
        self.event_bytes = bytes_of(&self.kept, BlockKind::Sideband);
        let left_out = std::mem::take(&mut self.left_out);
        Part { blocks, left_out: left_out.blocks, samples, samples_left_out: left_out.samples, balance }
    }

    /// The events that a part has had. No later sample belongs to a process that ended before the last of them.
    fn taken(&self) -> &[Block] {
        self.kept.get(..self.n_taken).unwrap_or_default()
    }

    /// Replaces the events that a part has had by those of them that are still needed; returns the number of blocks for which
    /// there is no room.
    fn replace_taken(&mut self, mut needed: Vec<Block>) -> u64 {
        let mut n_dropped = 0;
        while bytes_of(&needed, BlockKind::Sideband) > MAX_EVENT_BYTES {
            let Some(oldest) = needed.iter().position(|(kind, _)| *kind == BlockKind::Sideband) else { break };
            needed.remove(oldest);
            n_dropped += 1;
        }
        self.left_out.blocks += n_dropped;
        self.compact_at = bytes_of(&needed, BlockKind::Sideband) * 3 / 2;
        let n_needed = needed.len();
        let n_taken = std::mem::replace(&mut self.n_taken, n_needed);
        // Balances that were written meanwhile count the blocks after these.
        if let Some(n_later) = self.n_counted.checked_sub(n_taken) {
            self.n_counted = n_later + n_needed;
        }
        drop(self.kept.splice(..n_taken, needed));
        self.event_bytes = bytes_of(&self.kept, BlockKind::Sideband);
        n_dropped
    }
}

fn bytes_of(blocks: &[Block], wanted: BlockKind) -> usize {
    blocks.iter().filter(|(kind, _)| *kind == wanted).map(|(_, block)| block.len()).sum()
}

#[cfg(test)]
mod tests;
