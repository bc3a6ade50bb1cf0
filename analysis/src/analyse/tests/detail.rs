//! The HTML page's model: pairs of stacks, and the recording over time.

use super::{Program, meta, record};
use crate::accuracy::Relation;
use crate::analyse::{Options, analyse};
use crate::detail::{Details, Gap, Mark, NodeKind, OverTime};
use crate::modules::FileModules;
use crate::test_support::end;
use fpprof_recording::model::{CaptureMode, CpuCounters, FpEnd, LossCause, Sample};
use fpprof_recording::{Recording, RecordingWriter};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::num::NonZeroUsize;

fn detail(file: &[u8], n_threads: usize) -> Details {
    let mut recording = Recording::open(Cursor::new(file.to_vec())).unwrap();
    let files = FileModules::new();
    let n_threads = NonZeroUsize::new(n_threads).unwrap();
    let options = Options { page: true, n_threads, ..Options::new(&files) };
    analyse(&mut recording, &options).unwrap().detail.unwrap()
}

/// The frames of a stack, root first, as `name mark`.
fn frames(detail: &Details, leaf: Option<u32>) -> Vec<(String, Mark)> {
    let mut frames = Vec::new();
    let mut at = leaf;
    while let Some(node) = at.and_then(|at| detail.stacks.nodes.get(at as usize)) {
        let mark = if let NodeKind::Frame { mark, .. } = node.kind { mark } else { Mark::Same };
        frames.push((detail.stacks.labels[node.label as usize].0.clone(), mark));
        at = node.parent;
    }
    frames.reverse();
    frames
}

fn both(program: &Program, pid: u32, n: u64) -> Sample {
    Sample { user_fp: program.chain(), fp_end: FpEnd::Zero, ..program.sample(pid, n) }
}

/// Check that both stacks of a sample are in one row, and that a frame that only one of them has is marked.
#[test]
fn pairs_are_marked_where_they_differ() {
    let program = Program::new();
    let samples: Vec<Sample> = (0..6).map(|n| both(&program, 1, n)).collect();
    let file = record(CaptureMode::Both { stack_bytes: 64, every: 1 }, &program.sideband(1, "prog"), &samples, 4, true);
    let detail = detail(&file, 2);
    let stacks = &detail.stacks;
    assert_eq!((stacks.reference.as_str(), stacks.other.as_deref()), ("dwarf", Some("fp")));
    let [row] = stacks.rows.as_slice() else { panic!("one thread with one pair of stacks: {:?}", stacks.rows) };
    assert_eq!((row.samples, row.relation), (6, Some(Relation::LeafCallerMissing)));
    let named =
        |frames: &[(&str, Mark)]| frames.iter().map(|&(name, mark)| (name.to_owned(), mark)).collect::<Vec<_>>();
    let expected = named(&[("_start", Mark::Same), ("middle", Mark::Missing), ("leaf", Mark::Same)]);
    assert_eq!(frames(&detail, row.reference), expected);
    assert_eq!(frames(&detail, row.other), named(&[("_start", Mark::Same), ("leaf", Mark::Same)]));
    assert_eq!((stacks.processes[0].comm.as_str(), stacks.processes[0].samples), ("prog", 6));
    assert_eq!(stacks.threads[row.thread as usize].tid, 1);
}

/// Check that a stack that does not reach its root is under a node of its own with the reason.
#[test]
fn ends_stand_apart() {
    let program = Program::new();
    let chain: Vec<_> = program.chain().into_iter().take(1).collect();
    let cut = Sample { user_fp: chain, fp_end: FpEnd::MaxDepth, ..program.sample(1, 1) };
    let samples = [both(&program, 1, 0), cut];
    let file = record(CaptureMode::Both { stack_bytes: 64, every: 1 }, &program.sideband(1, "prog"), &samples, 4, true);
    let detail = detail(&file, 1);
    let names = |leaf| -> Vec<String> { frames(&detail, leaf).into_iter().map(|(name, _)| name).collect() };
    let mut stacks: Vec<_> = detail.stacks.rows.iter().map(|row| names(row.other)).collect();
    stacks.sort();
    assert_eq!(stacks, [&["[truncated: max_depth]", "leaf"], &["_start", "leaf"]]);
    let ends = detail.stacks.nodes.iter().filter(|node| matches!(node.kind, NodeKind::End(_)));
    assert_eq!(ends.map(|node| node.parent).collect::<Vec<_>>(), [None]);
}

/// Check that the model is the same on any number of threads, that threads are distinguished, and that it adds up.
#[test]
fn the_detail_does_not_depend_on_threads() {
    let program = Program::new();
    let mut events = program.sideband(1, "prog").to_vec();
    events.extend(program.sideband(2, "other"));
    let sample = |n: u64| {
        let pid = if n.is_multiple_of(3) { 2 } else { 1 };
        Sample {
            tid: pid * 10 + u32::from(n.is_multiple_of(2)),
            time_ns: 2_000 + n * 7_000_000,
            ..both(&program, pid, n)
        }
    };
    let samples: Vec<Sample> = (0..300).map(sample).collect();
    let file = record(CaptureMode::Both { stack_bytes: 64, every: 1 }, &events, &samples, 7, true);
    let detail_of_one = detail(&file, 1);
    assert_eq!(detail_of_one, detail(&file, 5));
    let stacks = &detail_of_one.stacks;
    assert_eq!(stacks.rows.iter().map(|row| row.samples).sum::<u64>(), 300);
    assert_eq!(stacks.threads.len(), 4);
    let time = &detail_of_one.over_time;
    assert_eq!(time.slices.iter().map(|slice| slice.reference.iter().sum::<u64>()).sum::<u64>(), 300);
    assert!(time.slices.iter().all(|slice| u64::from(slice.number) * time.slice_ns <= time.duration_ns));
    assert!(time.gaps.is_empty());
}

/// The losses of a recording over time: CPU 0 loses 5 between its second and its third sample; CPU 1 loses 2 before its
/// first and 3 after its last.
fn over_time_with(recorded: &[fpprof_recording::model::Gap]) -> OverTime {
    let program = Program::new();
    let sample = |n: u64, cpu, lost| Sample {
        time_ns: 1_000 + n * 100_000_000,
        cpu,
        cpu_lost: lost,
        cpu_fired: n + 1 + lost,
        ..program.sample(1, n)
    };
    let samples = [sample(1, 0, 0), sample(2, 0, 0), sample(3, 1, 2), sample(6, 0, 5), sample(7, 1, 2)];
    let mut writer = RecordingWriter::new(Vec::new(), &meta(CaptureMode::Dwarf { stack_bytes: 4096 })).unwrap();
    for event in program.sideband(1, "prog") {
        writer.sideband(&event).unwrap();
    }
    samples.iter().for_each(|sample| writer.sample(sample, None).unwrap());
    recorded.iter().for_each(|gap| writer.gap(gap).unwrap());
    let counters = |cpu, recorded, lost| CpuCounters {
        cpu,
        fired: recorded + lost,
        recorded,
        lost: BTreeMap::from([(LossCause::RingFull, lost)]),
        ..CpuCounters::default()
    };
    writer.finish(&end(vec![counters(0, 3, 5), counters(1, 2, 5)])).unwrap();
    detail(&writer.into_inner(), 2).over_time
}

/// A gap between two moments, given in tenths of a second.
fn gap(cpu: u32, from: u64, to: u64, lost: u64, cause: Option<&'static str>) -> Gap {
    Gap { cpu, from_ns: from * 100_000_000, to_ns: to * 100_000_000, lost, cause }
}

/// Check that losses without a recorded time are placed between the two samples of their CPU that count them, including
/// those at the end, and that they sum up to what the CPUs lost.
#[test]
fn losses_stand_between_samples() {
    let time = over_time_with(&[]);
    assert_eq!(time.gaps, [gap(0, 2, 6, 5, None), gap(1, 0, 3, 2, None), gap(1, 7, 10, 3, None)]);
    assert_eq!(time.duration_ns, 1_000_000_000);
}

/// Check that losses are placed where the recording says, merged if they have one cause and are less than a slice
/// apart; and that on a CPU for which the recording does not place all losses, those that its samples count are used.
#[test]
fn recorded_losses_stand_where_they_were() {
    let recorded = |cpu, start_ns: u64, end_ns: u64, lost, cause| fpprof_recording::model::Gap {
        cpu,
        event: 0,
        start_ns: 1_000 + start_ns,
        end_ns: 1_000 + end_ns,
        lost,
        cause,
    };
    let full = LossCause::RingFull;
    let time = over_time_with(&[
        recorded(0, 300_000_000, 300_500_000, 2, full),
        recorded(0, 301_000_000, 302_000_000, 1, full),
        recorded(0, 500_000_000, 500_000_000, 2, full),
        recorded(1, 100_000_000, 200_000_000, 2, full),
    ]);
    let first = Gap { cpu: 0, from_ns: 300_000_000, to_ns: 302_000_000, lost: 3, cause: Some(full.name()) };
    assert_eq!(time.gaps, [first, gap(0, 5, 5, 2, Some(full.name())), gap(1, 0, 3, 2, None), gap(1, 7, 10, 3, None)]);
}
