use super::*;
use crate::address_space::Timeline;
use crate::modules::{FileModules, ModuleTable};
use crate::replay::PlacedSpace;
use crate::test_support::meta;
use fpprof_recording::model::{CaptureMode, Comm, Sideband};
use fpprof_unwind::{BrokenReason, Frame, FrameFlags, FrameSource, Root, Space};

const STOPS: [StopReason; 2] = [StopReason::Complete(Root::Start), StopReason::Broken(BrokenReason::RaNotExec)];

/// Samples of many processes, `pid % 7 + 1` of each; process 10 has more.
fn samples_of(n_processes: u32) -> impl Iterator<Item = (u32, usize)> {
    (1..=n_processes).flat_map(|pid| {
        let n = if pid == 10 { 200 } else { pid as usize % 7 + 1 };
        (0..n).map(move |number| (pid, number))
    })
}

fn counted<'a>(samples: impl Iterator<Item = &'a (u32, usize)>, listed: &'a Listed<'a>) -> QualityCounter<'a> {
    let nothing = PlacedSpace::new(Space::new(0, Vec::new()));
    let files = FileModules::new();
    let modules = ModuleTable::new(listed.timeline(), &meta(CaptureMode::Fp), &files);
    let mut counter = QualityCounter::new(2, listed);
    let timeline = listed.timeline();
    for &(pid, number) in samples {
        let flags = FrameFlags { leaf_skip_suspect: number.is_multiple_of(5), ..FrameFlags::default() };
        let frames = vec![Frame { address: 1, cfa: 8, source: FrameSource::Cfi, flags }; number % 11 + 1];
        let stacks = [0, 1].map(|strategy| Some(StackRef { frames: &frames, stop: STOPS[(number + strategy) % 2] }));
        let sample = Sample { pid, tid: pid, ..Sample::default() };
        let place = timeline.place(pid, pid, 5);
        counter.add(&Seen { sample: &sample, place, space: &nothing, modules: &modules, stacks: &stacks });
    }
    counter
}

/// Check that of many processes those with the most samples are listed individually and the others by name, that
/// nothing is lost, and that the order of counting and merging does not matter.
#[test]
fn many_processes_are_merged_by_name() {
    let names = ["a", "b", "c"];
    // Processes from 3,500 to 5,000 each have a name of their own, later ones none.
    let named = |pid: u32| {
        let comm = if pid < 3500 { names[pid as usize % 3].into() } else { format!("own {pid}").into() };
        Sideband::Comm(Comm { pid, tid: pid, time_ns: 1, comm, exec: true, start_ticks: 0 })
    };
    let timeline = Timeline::new((1..=5000).map(named));
    let strategies = ["one".to_owned(), "two".to_owned()];
    let samples: Vec<(u32, usize)> = samples_of(7500).collect();
    let mut by_process = FxHashMap::default();
    for &(pid, _) in &samples {
        let place = timeline.place(pid, pid, 5);
        *by_process.entry(place.process.map_or(Who::Unnamed(pid), Who::Process)).or_default() += 1;
    }
    let listed = Listed::new(&timeline, by_process);
    let counter = counted(samples.iter(), &listed);
    let processes = counter.processes(&strategies);
    let n_samples = samples.len() as u64;
    assert_eq!(processes.iter().map(|process| process.samples).sum::<u64>(), n_samples);
    assert_eq!(ProcessSummary::total(&processes), 7500);
    assert!(processes[..MAX_LISTED].iter().all(|one| one.processes.is_none() && one.samples >= 7));
    let (others, last) = processes[MAX_LISTED..].split_at(MAX_LISTED);
    assert!(others.iter().all(|others| others.processes.is_some() && others.pid == 0));
    assert!(names.iter().all(|name| others[..3].iter().any(|others| others.comm == *name)));
    assert_eq!((last.len(), &*last[0].comm), (1, OTHERS));
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
    let mut merged = counted(even.iter(), &listed);
    merged.merge(counted(odd.iter(), &listed));
    assert_eq!((merged.total(&strategies), merged.processes(&strategies)), (total, processes));
}
