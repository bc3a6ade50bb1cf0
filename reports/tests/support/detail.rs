//! A handmade analysis for a page: two processes, two strategies, a loss.

use super::profile;
use fpprof_analysis::Analysis;
use fpprof_analysis::accuracy::{Agreement, ChunkSizes, DisputedFunction, NamedChunkSizes, Relation};
use fpprof_analysis::detail::{
    Details, Gap, Mark, Node, NodeKind, OverTime, PairRow, PairedStacks, Process, Slice, Thread,
};
use fpprof_analysis::folded::{Origin, marker};
use fpprof_unwind::{BrokenReason, Root, StopReason};
use std::collections::BTreeMap;

const COMPLETE: StopReason = StopReason::Complete(Root::Start);
const BROKEN: StopReason = StopReason::Broken(BrokenReason::RaNotExec);

/// Builds a tree of stacks.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    pub(crate) stacks: PairedStacks,
}

impl Builder {
    /// The node of a frame below another, created if it does not exist.
    pub(crate) fn node(&mut self, parent: Option<u32>, name: &str, origin: Origin, mark: Mark) -> Option<u32> {
        self.push(parent, (name.to_owned(), "program".to_owned()), NodeKind::Frame { origin, mark })
    }

    fn push(&mut self, parent: Option<u32>, label: (String, String), kind: NodeKind) -> Option<u32> {
        let known = self.stacks.labels.iter().rposition(|other| *other == label);
        let label = known.unwrap_or_else(|| {
            self.stacks.labels.push(label);
            self.stacks.labels.len() - 1
        });
        let node = Node { parent, label: u32::try_from(label).unwrap(), kind };
        let known = self.stacks.nodes.iter().position(|other| *other == node);
        let node = known.unwrap_or_else(|| {
            self.stacks.nodes.push(node);
            self.stacks.nodes.len() - 1
        });
        Some(u32::try_from(node).unwrap())
    }

    /// The leaf node of a stack with this end, root first.
    pub(crate) fn stack(&mut self, end: StopReason, frames: &[(&str, Mark)], origin: Origin) -> Option<u32> {
        let root = marker(end).and_then(|name| self.push(None, (name, String::new()), NodeKind::End(end)));
        frames.iter().fold(root, |parent, &(name, mark)| self.node(parent, name, origin, mark))
    }

    /// Adds samples of a thread: the whole stack by the reference, and its first `n_other` frames by the other
    /// strategy.
    pub(crate) fn row(&mut self, thread: u32, whole: &[&str], n_other: usize, samples: u64) {
        let n_missing = whole.len() - n_other;
        let mark = |index: usize| if index < n_missing { Mark::Missing } else { Mark::Same };
        let reference: Vec<_> = whole.iter().enumerate().map(|(index, &name)| (name, mark(index))).collect();
        let other: Vec<_> = whole.iter().skip(n_missing).map(|&name| (name, Mark::Same)).collect();
        let end = if n_missing == 0 { COMPLETE } else { BROKEN };
        let row = PairRow {
            thread,
            reference: self.stack(COMPLETE, &reference, Origin::Cfi),
            other: self.stack(end, &other, Origin::FramePointer),
            reference_end: COMPLETE,
            other_end: Some(end),
            relation: Some(if n_missing == 0 { Relation::Same } else { Relation::Prefix }),
            samples,
        };
        self.stacks.rows.push(row);
    }
}

/// The stacks of two processes, with names that may be hostile.
pub(crate) fn stacks(fio: &str, function: &str) -> PairedStacks {
    let mut builder = Builder::default();
    let process = |pid, comm: &str, samples| Process { pid, comm: comm.to_owned(), samples };
    let thread = |process, tid, comm: &str| Thread { process, tid, comm: comm.to_owned() };
    builder.stacks.reference = "dwarf".to_owned();
    builder.stacks.other = Some("fp".to_owned());
    builder.stacks.processes = vec![process(1201, fio, 6_300), process(1190, "nbdkit", 6_000)];
    builder.stacks.threads = vec![thread(0, 1201, fio), thread(0, 1202, "worker"), thread(1, 1190, "nbdkit")];
    builder.row(0, &["_start", "main", "run_threads", function, "nbd_send"], 5, 300);
    builder.row(0, &["_start", "main", "run_threads", function, "copy_user"], 1, 2_000);
    builder.row(1, &["[thread start]", "worker_main", function, "copy_user"], 1, 4_000);
    builder.row(2, &["_start", "main", "serve", "read_block", "memcpy"], 2, 5_000);
    builder.row(2, &["_start", "main", "serve", "write_block", "memcpy"], 5, 1_000);
    builder.stacks
}

fn sizes(pairs: &[(u64, u64)], more: u64) -> ChunkSizes {
    let needed: BTreeMap<u64, u64> = pairs.iter().copied().collect();
    let samples = needed.values().sum();
    let depth_bytes = needed.iter().map(|(&bytes, &n)| (bytes + more, n)).collect();
    ChunkSizes { samples, to_copy: samples, needed_bytes: needed, depth_bytes, without_depth: 0 }
}

fn over_time() -> OverTime {
    let slice = |number: u32, process| Slice {
        number,
        process,
        reference: [60 + u64::from(number % 7), 0, 0],
        other: [2, 1, 57 + u64::from(number % 7)],
    };
    let slices = (0..100).flat_map(|number| [slice(number, 0), slice(number, 1)]);
    let gap = |cpu, from_ns, to_ns, lost, cause| Gap { cpu, from_ns, to_ns, lost, cause };
    OverTime {
        duration_ns: 8_020_000_000,
        slice_ns: 80_200_000,
        slices: slices.collect(),
        gaps: vec![
            gap(0, 3_000_000_000, 3_100_000_000, 40, Some("ring_full")),
            gap(1, 6_500_000_000, 6_510_000_000, 4, None),
        ],
    }
}

/// An analysis whose page has every part. `fio` and `function` are names that may be hostile.
pub(crate) fn analysis_with(fio: &str, function: &str) -> Analysis {
    let mut summary = profile::summary();
    summary.processes[0].comm = fio.to_owned();
    let stacks = stacks(fio, function);
    let agreement = Agreement {
        reference: "dwarf".to_owned(),
        other: "fp".to_owned(),
        samples: 12_300,
        relations: BTreeMap::from([(Relation::Prefix, 11_000), (Relation::Same, 1_300)]),
        functions: vec![DisputedFunction {
            name: function.to_owned(),
            module: "fio".to_owned(),
            samples: 9_000,
            relations: BTreeMap::from([(Relation::Prefix, 9_000)]),
        }],
        ..Agreement::default()
    };
    summary.agreements = vec![agreement];
    let (fio_sizes, nbdkit) =
        (sizes(&[(38_000, 6_200), (41_000, 100)], 300), sizes(&[(1_800, 5_500), (6_200, 500)], 120));
    let mut all = fio_sizes.clone();
    all.merge(&nbdkit);
    let of = |comm: &str, sizes| NamedChunkSizes { comm: comm.to_owned(), sizes };
    Analysis {
        summary,
        folded: BTreeMap::new(),
        default_strategy: "dwarf".to_owned(),
        chunk_sizes: Some((all, vec![of(fio, fio_sizes), of("nbdkit", nbdkit)])),
        profiles: Vec::new(),
        detail: Some(Details { stacks, over_time: over_time() }),
    }
}

/// [`analysis_with`] harmless names.
pub(crate) fn analysis() -> Analysis {
    analysis_with("fio", "td_io_queue")
}

/// Stacks with this many nodes in all, 40 frames deep, like those of a large program.
pub(crate) fn large(n_nodes: u32) -> Analysis {
    let mut analysis = analysis();
    let mut stacks = stacks("fio", "td_io_queue");
    let first = u32::try_from(stacks.labels.len()).unwrap();
    stacks
        .labels
        .extend((0..4_000).map(|n| (format!("namespace::function_{n}<int>(char const*)"), "program".to_owned())));
    let mut random = 1_u32;
    let mut next = move |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % below
    };
    while u32::try_from(stacks.nodes.len()).unwrap() < n_nodes {
        // A new branch from a random older node, down to its leaf.
        let from = next(u32::try_from(stacks.nodes.len()).unwrap());
        let (mut at, depth) = (from, 1 + next(40));
        let mark = if next(3) == 0 { Mark::Missing } else { Mark::Same };
        let kind = NodeKind::Frame { origin: Origin::Cfi, mark };
        for _ in 0..depth {
            stacks.nodes.push(Node { parent: Some(at), label: first + next(4_000), kind });
            at = u32::try_from(stacks.nodes.len() - 1).unwrap();
        }
        stacks.rows.push(PairRow {
            thread: next(3),
            reference: Some(at),
            other: Some(at),
            reference_end: COMPLETE,
            other_end: Some(COMPLETE),
            relation: Some(Relation::Same),
            samples: 1 + u64::from(next(20)),
        });
    }
    analysis.detail = Some(Details { stacks, over_time: over_time() });
    analysis
}
