use super::*;
use crate::replay::PlacedSpace;
use fpprof_recording::model::{Comm, Sideband};
use fpprof_unwind::{BrokenReason, Frame, FrameFlags, FrameSource, Root, Space};
use std::sync::Arc;

const STOPS: [StopReason; 2] = [StopReason::Complete(Root::Start), StopReason::Broken(BrokenReason::RaNotExec)];

/// Samples of many processes, each of `pid % 7 + 1`; the tenth process has more than are kept as they ended.
fn samples_of(n_processes: u32) -> impl Iterator<Item = (u32, usize)> {
    (1..=n_processes).flat_map(|pid| {
        let n = if pid == 10 { MAX_ENDS * 3 } else { pid as usize % 7 + 1 };
        (0..n).map(move |number| (pid, number))
    })
}

fn counted<'a>(samples: impl Iterator<Item = &'a (u32, usize)>, timeline: &Timeline) -> QualityCounter {
    let nothing = PlacedSpace {
        space: Space::new(0, Vec::new()),
        modules: Vec::new(),
        compiled_by: None,
        jit_codes: Arc::default(),
    };
    let mut counter = QualityCounter::new(2);
    for &(pid, number) in samples {
        let flags = FrameFlags { leaf_skip_suspect: number.is_multiple_of(5), ..FrameFlags::default() };
        let frames = vec![Frame { address: 1, cfa: 8, source: FrameSource::Cfi, flags }; number % 11 + 1];
        let stacks = [0, 1].map(|strategy| StackRef { frames: &frames, stop: STOPS[(number + strategy) % 2] });
        let sample = Sample { pid, tid: pid, ..Sample::default() };
        let place = timeline.place(pid, pid, 5);
        counter.add(&Seen { sample: &sample, place, space: &nothing, stacks: &stacks });
    }
    counter
}

/// Check that of many processes those with the most samples are listed one by one and the others by name, that nothing of
/// them is lost, and that it does not matter how they were counted and merged.
#[test]
fn many_processes_are_merged_by_name() {
    let names = ["a", "b", "c"];
    let named = |pid: u32| {
        let comm = names[pid as usize % 3].into();
        Sideband::Comm(Comm { pid, tid: pid, time_ns: 1, comm, exec: true, start_ticks: 0 })
    };
    // The last have no names, and so each its own.
    let timeline = Timeline::new((1..=5000).map(named));
    let strategies = ["one".to_owned(), "two".to_owned()];
    let samples: Vec<(u32, usize)> = samples_of(7500).collect();
    let counter = counted(samples.iter(), &timeline);
    let processes = counter.processes(&strategies, &timeline);
    let n_samples = samples.len() as u64;
    assert_eq!(processes.iter().map(|process| process.samples).sum::<u64>(), n_samples);
    assert_eq!(ProcessSummary::total(&processes), 7500);
    assert!(processes[..MAX_LISTED].iter().all(|one| one.processes.is_none() && one.samples >= 7));
    let (others, last) = processes[MAX_LISTED..].split_at(MAX_LISTED);
    assert!(others.iter().all(|others| others.processes.is_some() && others.pid == 0));
    assert!(names.iter().all(|name| others[..3].iter().any(|others| others.comm == *name)));
    assert_eq!((last.len(), &*last[0].comm, last[0].processes), (1, OTHERS, Some(1218)));
    let total = counter.total(&strategies);
    for name in &strategies {
        let of =
            |what: fn(&Quality) -> u64| processes.iter().map(|process| what(&process.strategies[name])).sum::<u64>();
        let Quality { samples, complete, frames, leaf_skip_suspects, .. } = total[name];
        assert_eq!(samples, n_samples);
        let summed =
            [of(|one| one.samples), of(|one| one.complete), of(|one| one.frames), of(|one| one.leaf_skip_suspects)];
        assert_eq!(summed, [samples, complete, frames, leaf_skip_suspects]);
        assert_eq!(of(|one| one.broken.values().sum()), samples - complete);
    }
    let (even, odd): (Vec<_>, Vec<_>) =
        samples.iter().partition(|(pid, number)| (*pid as usize + number).is_multiple_of(2));
    let mut merged = counted(even.iter(), &timeline);
    merged.merge(counted(odd.iter(), &timeline));
    assert_eq!((merged.total(&strategies), merged.processes(&strategies, &timeline)), (total, processes));
}
