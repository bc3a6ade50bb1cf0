//! Taking out of a recording under way what samples to come cannot need: the events of processes and threads that are over,
//! and the bytes of files that only they had mapped.

use crate::worker::memory_file;
use fpprof_recording::compiled::Compiled;
use fpprof_recording::model::{Cgroup, FileIdentity, Meta, Mmap, Sideband};
use fpprof_recording::{BlockKind, Recording, RecordingWriter, block_kind};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, Read, Seek, Write};
use std::sync::Arc;

/// A block of a recording. Parts share it: copies of megabytes would stay in the allocator's hands.
pub(super) type Block = (BlockKind, Arc<[u8]>);

/// Keeps each block it is given.
#[derive(Debug, Default)]
struct BlockSink(Vec<Block>);

impl Write for BlockSink {
    fn write(&mut self, block: &[u8]) -> io::Result<usize> {
        self.0.extend(block_kind(block).map(|kind| (kind, block.into())));
        Ok(block.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The recording anew, with the events that samples to come can need, and without samples.
///
/// # Errors
/// If it cannot be read.
pub(super) fn without_the_dead(blocks: &[Block]) -> anyhow::Result<Vec<Block>> {
    let mut file = memory_file("fpprof-events")?;
    blocks.iter().try_for_each(|(_, block)| file.write_all(block))?;
    let mut recording = Recording::open(BufReader::new(file))?;
    let meta: Meta = recording.meta().clone();
    let mut liveness = Liveness::default();
    in_order(&mut recording, |event, n| liveness.note(event, n))?;
    let needed = Needed { since: liveness.needed(), threads: liveness.threads };
    let mut files = Files::default();
    in_order(&mut recording, |event, n| files.note(event, needed.has(event, n)))?;
    let mut writer = RecordingWriter::new(BlockSink::default(), &meta)?;
    let mut result = Ok(());
    in_order(&mut recording, |event, n| {
        let is_needed = match event {
            Sideband::Module(module) => match Compiled::of_path(&module.path) {
                Some(compiled) => needed.since.contains_key(&compiled.pid()),
                None => files.has(&module.identity),
            },
            event => needed.has(event, n),
        };
        if is_needed && result.is_ok() {
            result = writer.sideband(event);
        }
    })?;
    result?;
    writer.flush()?;
    Ok(writer.into_inner().0)
}

/// Visits the process events with their numbers.
fn in_order<R: Read + Seek>(
    recording: &mut Recording<R>,
    mut visit: impl FnMut(&Sideband, u64),
) -> Result<(), fpprof_recording::Error> {
    let mut n = 0;
    recording.sideband(|event| {
        visit(event, n);
        n += 1;
    })
}

/// Which events are needed.
#[derive(Debug)]
struct Needed {
    since: BTreeMap<u32, u64>,
    threads: Threads,
}

impl Needed {
    fn has(&self, event: &Sideband, n: u64) -> bool {
        if thread_of(event).is_some_and(|tid| self.threads.get(&tid).is_some_and(|&since| n < since)) {
            return false;
        }
        let pid = match event {
            Sideband::Mmap(mmap) => mmap.pid,
            Sideband::Comm(comm) => comm.pid,
            Sideband::Fork(fork) => fork.pid,
            Sideband::Exit(exit) => exit.pid,
            Sideband::Cgroup(cgroup) => cgroup.pid,
            Sideband::Module(_) => return true,
        };
        self.since.get(&pid).is_some_and(|&since| n >= since)
    }
}

/// The files that are mapped still.
#[derive(Debug, Default)]
struct Files {
    mapped: BTreeSet<(u32, u32, u64)>,
}

impl Files {
    fn note(&mut self, event: &Sideband, is_needed: bool) {
        if let (Sideband::Mmap(mmap), true) = (event, is_needed) {
            self.mapped.insert(file_of(&mmap.identity));
        }
    }

    /// Whether the bytes of a module are needed: the kernel's own are those of no file. Those of a file may come after the last
    /// process that had it mapped is over.
    fn has(&self, identity: &FileIdentity) -> bool {
        identity.inode == 0 || self.mapped.contains(&file_of(identity))
    }
}

fn file_of(identity: &FileIdentity) -> (u32, u32, u64) {
    (identity.dev_major, identity.dev_minor, identity.inode)
}

/// From which event on each thread is needed that was made or ended.
type Threads = BTreeMap<u32, u64>;

/// The thread that an event is about, and nothing else.
fn thread_of(event: &Sideband) -> Option<u32> {
    match event {
        Sideband::Fork(fork) if fork.pid == fork.parent_pid => Some(fork.tid),
        Sideband::Exit(exit) if exit.pid != exit.tid => Some(exit.tid),
        Sideband::Comm(comm) if comm.pid != comm.tid && !comm.exec => Some(comm.tid),
        _ => None,
    }
}

/// Who is alive, and from whom they have what they map.
#[derive(Debug, Default)]
struct Liveness {
    threads: Threads,
    /// Threads that were made and have not ended, by process.
    alive: BTreeMap<u32, BTreeSet<u32>>,
    /// Processes whose first thread has ended.
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
            // What maps something is not over: its first thread may have ended before others, or another thread executed a
            // program, or the program is setuid, of which the kernel says an exit first.
            Sideband::Mmap(Mmap { pid, .. }) | Sideband::Cgroup(Cgroup { pid, .. }) => {
                self.seen.insert(*pid);
                self.dead.remove(pid);
            }
            Sideband::Comm(comm) => {
                self.seen.insert(comm.pid);
                if comm.exec {
                    self.dead.remove(&comm.pid);
                    self.exec.insert(comm.pid, n);
                }
            }
            Sideband::Fork(fork) if fork.pid != fork.parent_pid => {
                self.alive.remove(&fork.pid);
                self.seen.insert(fork.pid);
                self.dead.remove(&fork.pid);
                self.exec.remove(&fork.pid);
                self.parent.insert(fork.pid, (fork.parent_pid, n));
            }
            Sideband::Exit(exit) if exit.pid == exit.tid => drop(self.dead.insert(exit.pid)),
            Sideband::Fork(fork) => {
                self.threads.insert(fork.tid, n);
                self.alive.entry(fork.pid).or_default().insert(fork.tid);
            }
            Sideband::Exit(exit) => {
                self.threads.insert(exit.tid, u64::MAX);
                if let Some(alive) = self.alive.get_mut(&exit.pid) {
                    alive.remove(&exit.tid);
                }
            }
            Sideband::Module(_) => {}
        }
    }

    /// The living from their last exec on; where that was not after their fork, all of those they come from as well.
    fn needed(&self) -> BTreeMap<u32, u64> {
        let mut needed = BTreeMap::new();
        let has_threads = |pid: &u32| self.alive.get(pid).is_some_and(|alive| !alive.is_empty());
        for &pid in self.seen.iter().filter(|&pid| !self.dead.contains(pid) || has_threads(pid)) {
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
