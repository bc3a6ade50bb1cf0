//! A recording of many short-lived processes.

use super::super::builder::Builder;
use super::super::{Sampled, Timeline};
use super::{cgroup, comm, exit, fork, group, map, map_with, mapped, name};
use fpprof_recording::model::Sideband;

const MS: u64 = 1_000_000;

/// A shell that starts 3,000 programs with 40 pids in turn, and a program that maps the same code again and again.
fn events() -> Vec<Sideband> {
    let mut events = vec![
        comm(0, 1, "shell", true),
        map(0, 1, 0x1000, 0x1000, "/shell"),
        cgroup(0, 1, "/shell"),
        comm(0, 2, "mapper", true),
        map(0, 2, 0x1000, 0x1000, "/mapper"),
    ];
    for n in 0..3000 {
        let (time, pid) = (n * 20 * MS, u32::try_from(10 + n % 40).unwrap());
        events.push(fork(time, pid, 1));
        // Every fifth one starts a child that outlives it.
        if n % 5 == 0 {
            events.push(fork(time + 1, pid + 100, pid));
        }
        events.push(cgroup(time + MS, pid, &format!("/group{}", n % 3)));
        events.push(comm(time + MS, pid, &format!("program{}", n % 7), true));
        events.push(map(time + 2 * MS, pid, 0x4000, 0x2000, &format!("/program{}", n % 7)));
        events.push(map_with(time + 3 * MS, pid, 0x5000, 0x1000, "/data", super::READ_WRITE));
        events.push(map(time + 4 * MS, 2, 0x9000, 0x1000, "/code"));
        events.push(exit(time + 15 * MS, pid));
    }
    events
}

fn sampled() -> impl Iterator<Item = (u32, u64)> {
    let programs = (0..3000_u64).filter(|n| n.is_multiple_of(11));
    let at = |n: u64, ms: u64| (u32::try_from(10 + n % 40).unwrap(), n * 20 * MS + ms * MS);
    let programs = programs.flat_map(move |n| [at(n, 0), at(n, 2), at(n, 3), at(n, 16)]);
    programs.flat_map(|(pid, time)| [(pid, time), (pid + 100, time), (1, time), (2, time)])
}

fn built(mut builder: Builder, events: &[Sideband]) -> Option<Timeline> {
    events.iter().for_each(|event| builder.add(event));
    builder.finish_in_order()
}

fn sampled_builder(n_events: usize) -> Builder {
    let mut samples = Sampled::default();
    sampled().for_each(|(pid, time)| samples.add(pid, pid, time));
    Builder::new(n_events, Some(samples))
}

/// Check that each sample finds what it would find in a complete history, that history no sample needs is dropped, that
/// a program that maps the same range repeatedly changes nothing, and that events that come too late for the window are
/// noticed.
#[test]
fn what_no_sample_needs_is_forgotten() {
    let mut events = events();
    let whole = Timeline::new(events.iter().cloned());
    // Nearly in order, as from the ring buffers of several CPUs.
    events.chunks_mut(7).for_each(<[_]>::reverse);
    let built_in = |n_events| built(sampled_builder(n_events), &events);
    assert!(built_in(3).is_none());
    for timeline in [built_in(20).unwrap(), built_in(usize::MAX).unwrap()] {
        for (pid, time) in sampled() {
            let of = |timeline: &Timeline| {
                (timeline.place(pid, pid, time).process, name(timeline, pid, pid, time), group(timeline, pid, time))
            };
            assert_eq!(of(&timeline), of(&whole), "process {pid} at {time}");
            assert_eq!(mapped(&timeline, pid, time), mapped(&whole, pid, time), "process {pid} at {time}");
        }
        let n_names: usize = timeline.thread_comms.values().map(Vec::len).sum();
        let n_groups: usize = timeline.process_cgroups.values().map(Vec::len).sum();
        assert!(timeline.logs.len() < 1200 && n_names < 1200, "{} logs, {n_names} names", timeline.logs.len());
        assert!(n_groups < 1200, "{n_groups} control groups");
    }
    assert!(whole.logs.len() > 6000);
    let n_edits: Vec<usize> = whole.logs.iter().filter(|log| log.pid == 2).map(|log| log.edits.len()).collect();
    assert_eq!(n_edits, [2]);
}
