//! Removes from a running recording what later samples cannot need: the events of processes and threads that have
//! ended, names that threads had before, mappings that others have replaced, and the bytes of files that no process has
//! mapped any more.

use super::mappings::Mappings;
use crate::worker::memory_file;
use fpprof_collector::{UnusedFile, is_gone, monotonic_ns};
use fpprof_recording::compiled::Compiled;
use fpprof_recording::model::{Cgroup, FileIdentity, Meta, Mmap, Sideband};
use fpprof_recording::{BlockKind, PackedModule, Recording, RecordingWriter, block_kind};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{self, BufReader, Read, Seek, Write};
use std::sync::Arc;

/// A block of a recording, shared between parts: the allocator would keep the memory of copied megabytes.
pub(super) type Block = (BlockKind, Arc<[u8]>);

/// Collects the blocks written to it.
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

/// What is left of a running recording.
#[derive(Debug)]
pub(super) struct Compacted {
    /// A recording without samples, with only the events that later samples can need.
    pub(super) blocks: Vec<Block>,
    /// Files that no process has mapped any more, or whose bytes are no longer in it.
    pub(super) unused_files: Vec<UnusedFile>,
    /// Modules that are needed, but for which there was no room.
    pub(super) n_left_out: u64,
    pub(super) gone: Gone,
}

/// Processes that have no end among the events and are gone all the same. Their ends were lost, or something of them was
/// recorded after it.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// When they were gone, `CLOCK_MONOTONIC` nanoseconds.
    at_ns: u64,
    pids: BTreeSet<u32>,
}

/// Rewrites the recording without samples, with only the events that later samples can need. Of files and compiled code, the
/// newest are kept, up to `most_bytes` as stored.
///
/// Reads the events three times: to find which processes and threads are alive and what they have mapped, which files these
/// mappings refer to, and to write the events that are needed. `Recording` reads from a file, hence the memory file.
///
/// # Errors
/// If the recording cannot be read.
pub(super) fn without_the_dead(blocks: &[Block], most_bytes: usize, gone: &Gone) -> anyhow::Result<Compacted> {
    let mut file = memory_file("fpprof-events")?;
    blocks.iter().try_for_each(|(_, block)| file.write_all(block))?;
    let mut recording = Recording::open(BufReader::new(file))?;
    let meta: Meta = recording.meta().clone();
    let (mut liveness, mut mappings, mut as_of_ns) = (Liveness::default(), Mappings::default(), 0);
    in_order(&mut recording, |event, n| {
        as_of_ns = as_of_ns.max(event.time_ns().unwrap_or(0));
        liveness.note(event, n);
        mappings.note(event, n);
    })?;
    // Their last samples are in this recording or an earlier one.
    if gone.at_ns < as_of_ns {
        liveness.end(gone);
    }
    let gone = liveness.gone();
    let replaced = mappings.into_replaced();
    let needed = Needed { since: liveness.needed(), threads: liveness.threads, replaced };
    let (mut files, mut names) = (Files::default(), Names::default());
    in_order(&mut recording, |event, n| {
        let is_needed = needed.has(event, n);
        files.note(event, is_needed);
        if is_needed {
            names.note(event, n);
        }
    })?;
    let mut writer = RecordingWriter::new(BlockSink::default(), &meta)?;
    let (mut result, mut modules, mut dropped) = (Ok(()), Vec::new(), Vec::new());
    in_order(&mut recording, |event, n| {
        let written = match event {
            Sideband::Module(module) => {
                let compiled = Compiled::of_path(&module.path);
                let is_needed = compiled
                    .map_or_else(|| files.has(&module.identity), |compiled| needed.since.contains_key(&compiled.pid()));
                let file = compiled.is_none().then_some(module.identity);
                if is_needed {
                    PackedModule::new(module.clone()).map(|packed| modules.push(Module { file, packed }))
                } else {
                    dropped.extend(file);
                    Ok(())
                }
            }
            event if needed.has(event, n) && names.needs(event, n) => writer.sideband(event),
            _ => Ok(()),
        };
        if result.is_ok() {
            result = written;
        }
    })?;
    result?;
    let (modules, left_out) = newest(modules, most_bytes);
    dropped.extend(left_out.iter().filter_map(|module| module.file));
    let dropped = dropped.into_iter().map(|identity| UnusedFile { identity, as_of_ns: u64::MAX });
    let unmapped = files.unmapped().map(|identity| UnusedFile { identity, as_of_ns });
    let unused_files = dropped.chain(unmapped).collect();
    // Modules come last: if there are too many events all the same, the oldest blocks are dropped, and the recorder does not
    // record a module again.
    writer.flush()?;
    modules.into_iter().try_for_each(|module| writer.module(module.packed))?;
    Ok(Compacted { blocks: writer.into_inner().0, unused_files, n_left_out: left_out.len() as u64, gone })
}

/// The bytes of a file, or compiled code.
struct Module {
    file: Option<FileIdentity>,
    packed: PackedModule,
}

/// Splits modules, oldest first, into the newest up to these bytes and those that are left out. The kernel's own code is never
/// left out.
fn newest(modules: Vec<Module>, most_bytes: usize) -> (Vec<Module>, Vec<Module>) {
    let mut bytes = 0_usize;
    let is_of_kernel = |module: &Module| module.file.is_some_and(|file| file.inode == 0);
    let (mut newest, left_out): (Vec<_>, _) = modules.into_iter().rev().partition(|module| {
        bytes = bytes.saturating_add(module.packed.stored_bytes());
        is_of_kernel(module) || bytes <= most_bytes
    });
    newest.reverse();
    (newest, left_out)
}

/// Visits the process events, numbered from 0.
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

/// Decides which events are needed.
#[derive(Debug)]
struct Needed {
    since: BTreeMap<u32, u64>,
    threads: Threads,
    /// Numbers of mappings.
    replaced: BTreeSet<u64>,
}

impl Needed {
    fn has(&self, event: &Sideband, n: u64) -> bool {
        if thread_of(event).is_some_and(|tid| self.threads.get(&tid).is_some_and(|&since| n < since)) {
            return false;
        }
        if self.replaced.contains(&n) {
            return false;
        }
        process_of(event).is_none_or(|pid| self.since.get(&pid).is_some_and(|&since| n >= since))
    }
}

/// The process of an event; `None` for modules.
fn process_of(event: &Sideband) -> Option<u32> {
    match event {
        Sideband::Mmap(mmap) => Some(mmap.pid),
        Sideband::Comm(comm) => Some(comm.pid),
        Sideband::Fork(fork) => Some(fork.pid),
        Sideband::Exit(exit) => Some(exit.pid),
        Sideband::Cgroup(cgroup) => Some(cgroup.pid),
        Sideband::Module(_) => None,
    }
}

/// The names that threads have given themselves. Later samples need the last one, and that at a fork, which the child has: a
/// thread may change its name all the time.
#[derive(Debug, Default)]
struct Names {
    /// The number of the last event with a thread's name.
    last: BTreeMap<u32, u64>,
    at_forks: BTreeSet<u64>,
}

impl Names {
    fn note(&mut self, event: &Sideband, n: u64) {
        match event {
            Sideband::Comm(comm) if comm.exec => _ = self.last.remove(&comm.tid),
            Sideband::Comm(comm) => _ = self.last.insert(comm.tid, n),
            Sideband::Fork(fork) => self.at_forks.extend(self.last.get(&fork.parent_tid)),
            _ => {}
        }
    }

    fn needs(&self, event: &Sideband, n: u64) -> bool {
        let Sideband::Comm(comm) = event else { return true };
        comm.exec || self.last.get(&comm.tid) == Some(&n) || self.at_forks.contains(&n)
    }
}

/// The files that mappings refer to.
#[derive(Debug, Default)]
struct Files {
    all: HashSet<FileIdentity>,
    /// Those of needed mappings.
    mapped: BTreeSet<(u32, u32, u64)>,
}

impl Files {
    fn note(&mut self, event: &Sideband, is_needed: bool) {
        let Sideband::Mmap(mmap) = event else { return };
        self.all.insert(mmap.identity);
        if is_needed {
            self.mapped.insert(file_of(&mmap.identity));
        }
    }

    fn unmapped(&self) -> impl Iterator<Item = FileIdentity> + '_ {
        self.all.iter().copied().filter(|identity| !self.has(identity))
    }

    /// Whether the bytes of a module are needed. Inode 0 is the kernel's own code, which is always needed. A file's
    /// bytes may be recorded after the last process that mapped it has ended; they are dropped too.
    fn has(&self, identity: &FileIdentity) -> bool {
        identity.inode == 0 || self.mapped.contains(&file_of(identity))
    }
}

fn file_of(identity: &FileIdentity) -> (u32, u32, u64) {
    (identity.dev_major, identity.dev_minor, identity.inode)
}

/// Whether there is no such process, or all of its threads have exited and only its parent has not waited for it.
fn has_ended(pid: u32) -> bool {
    if is_gone(pid) {
        return true;
    }
    // As bytes: its name need not be UTF-8.
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    // The state is the third field, the number of threads the twentieth.
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ').collect();
    fields.first() == Some(&"Z") && matches!(fields.get(17), Some(&("0" | "1")))
}

/// For each thread that was created or has exited, the number of the first event that is still needed; `u64::MAX` for
/// none.
type Threads = BTreeMap<u32, u64>;

/// The thread of an event that concerns a single thread.
fn thread_of(event: &Sideband) -> Option<u32> {
    match event {
        Sideband::Fork(fork) if fork.pid == fork.parent_pid => Some(fork.tid),
        Sideband::Exit(exit) if exit.pid != exit.tid => Some(exit.tid),
        Sideband::Comm(comm) if comm.pid != comm.tid && !comm.exec => Some(comm.tid),
        _ => None,
    }
}

/// Which processes and threads are alive, and from which parents their mappings were inherited.
#[derive(Debug, Default)]
struct Liveness {
    threads: Threads,
    /// Threads that were created and have not exited, by process.
    alive: BTreeMap<u32, BTreeSet<u32>>,
    /// Processes whose first thread has exited.
    dead: BTreeSet<u32>,
    seen: BTreeSet<u32>,
    /// Time of the last event of a process, nanoseconds.
    last_ns: BTreeMap<u32, u64>,
    /// Number of the last exec of a process.
    exec: BTreeMap<u32, u64>,
    /// The parent of a process, and the number of the fork.
    parent: BTreeMap<u32, (u32, u64)>,
}

impl Liveness {
    fn note(&mut self, event: &Sideband, n: u64) {
        if let (Some(pid), Some(time_ns)) = (process_of(event), event.time_ns()) {
            let last_ns = self.last_ns.entry(pid).or_default();
            *last_ns = time_ns.max(*last_ns);
        }
        match event {
            // A process that maps something is alive even if an exit came first: its first thread may have exited
            // before others, another thread may have executed a program, or the program is setuid, for which the kernel
            // reports an exit first.
            Sideband::Mmap(Mmap { pid, .. }) | Sideband::Cgroup(Cgroup { pid, .. }) => {
                self.seen.insert(*pid);
                self.dead.remove(pid);
            }
            Sideband::Comm(comm) => {
                self.seen.insert(comm.pid);
                if comm.exec {
                    self.dead.remove(&comm.pid);
                    // No other thread is left, and one that was not the first has the number of the first now.
                    self.alive.remove(&comm.pid);
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

    /// Marks processes as ended that were gone before, unless their numbers were used again.
    fn end(&mut self, gone: &Gone) {
        for &pid in &gone.pids {
            if self.last_ns.get(&pid).is_some_and(|&last_ns| last_ns < gone.at_ns) && has_ended(pid) {
                self.dead.insert(pid);
                self.alive.remove(&pid);
            }
        }
    }

    /// The processes that are gone by now, and not known to have ended.
    fn gone(&self) -> Gone {
        let at_ns = monotonic_ns();
        let pids = self.seen.iter().copied().filter(|&pid| self.may_live(pid) && has_ended(pid)).collect();
        Gone { at_ns, pids }
    }

    /// Whether no end of the process is known, or one of its threads may live on.
    fn may_live(&self, pid: u32) -> bool {
        !self.dead.contains(&pid) || self.alive.get(&pid).is_some_and(|alive| !alive.is_empty())
    }

    /// For each process whose events are needed, the number of the first needed one.
    ///
    /// A living process needs its events from its last exec on. If it has not executed a program since its fork, its
    /// mappings are inherited, so the events of its ancestors are needed as well.
    fn needed(&self) -> BTreeMap<u32, u64> {
        let mut needed = BTreeMap::new();
        for &pid in self.seen.iter().filter(|&&pid| self.may_live(pid)) {
            // Of an ancestor, all events before the fork are needed; an exec of its own before the fork ends the
            // search.
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
