//! Names and sorts the counted stacks.

use super::{Amount, Folder, Labels};
use crate::address_space::{CommIx, Timeline};
use crate::folded::{Folded, FoldedStack, FrameLabel, Unit};
use fpprof_recording::model::NO_PROCESS;
use fpprof_unwind::StopReason;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The folded stacks of each strategy, in the order of the strategies.
///
/// Stacks that differ only in addresses of the same functions are merged. They are sorted by name, so that the order
/// does not depend on how the samples were read. `unit` is the unit of their amounts.
#[must_use]
pub fn fold(folder: &Folder, labels: &Labels, timeline: &Timeline, unit: Unit, n_strategies: usize) -> Vec<Folded> {
    let expanded: Vec<Box<[u32]>> = folder.stacks().map(|frames| root_first(frames, labels)).collect();
    (0..n_strategies)
        .map(|strategy| fold_one(folder, &expanded, labels, timeline, strategy))
        .map(|folded| Folded { unit, ..folded })
        .collect()
}

/// A stack in sortable form: by name, process, and frames from the root by rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Shown<'a> {
    comm: &'a [u8],
    pid: u32,
    frames: &'a [u32],
    stop: StopReason,
}

/// The ranks of a stack's labels, root first.
fn root_first(frames: &[u32], labels: &Labels) -> Box<[u32]> {
    frames.iter().rev().flat_map(|&frame| labels.of(frame)).copied().collect()
}

/// Merges the samples of a strategy whose stacks look the same. They are sorted before frames are numbered, so that the
/// result does not depend on the hash order of the counts.
fn fold_one(folder: &Folder, expanded: &[Box<[u32]>], labels: &Labels, timeline: &Timeline, strategy: usize) -> Folded {
    let mut samples: BTreeMap<Shown<'_>, Amount> = BTreeMap::new();
    let mut comms: FxHashMap<Option<CommIx>, &[u8]> = FxHashMap::default();
    for (key, &n) in folder.counts().filter(|(key, _)| key.strategy as usize == strategy) {
        let comm = *comms.entry(key.comm).or_insert_with(|| key.comm.map_or(&[][..], |comm| timeline.comm(comm)));
        let frames = expanded.get(key.stack as usize).map_or(&[][..], |frames| frames);
        samples.entry(Shown { comm, pid: key.pid, frames, stop: key.stop }).or_default().add(n);
    }
    let mut numbers: FxHashMap<u32, u32> = FxHashMap::default();
    let mut frames: Vec<FrameLabel> = Vec::new();
    let mut number = |rank: &u32| {
        *numbers.entry(*rank).or_insert_with(|| {
            frames.push(labels.label(*rank));
            u32::try_from(frames.len()).unwrap_or(u32::MAX).saturating_sub(1)
        })
    };
    let stacks = samples.into_iter().map(|(shown, amount)| FoldedStack {
        comm: shown_comm(shown.comm, shown.pid),
        pid: shown.pid,
        frames: shown.frames.iter().map(&mut number).collect(),
        stop: shown.stop,
        samples: amount.samples,
        weight: amount.weight,
    });
    let stacks = stacks.collect();
    Folded { frames, stacks, unit: Unit::default() }
}

/// A name for display: invalid UTF-8 is replaced, and an unnamed process is shown by its number, as in perf.
#[must_use]
pub fn shown_comm(comm: &[u8], pid: u32) -> String {
    match (comm, pid) {
        ([], NO_PROCESS) => "[exiting]".to_owned(),
        ([], _) => format!(":{pid}"),
        _ => String::from_utf8_lossy(comm).into_owned(),
    }
}
