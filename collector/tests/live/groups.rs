//! The control groups of sampled processes.

use crate::support::{Ended, Taken, build, directory, run, take_some};
use fpprof_collector::{CollectorKind, Request, Target};
use fpprof_recording::model::{CaptureMode, Cgroup, Sideband};
use std::collections::BTreeSet;
use std::process::Command;

/// The recorded control groups, in the order of the recording.
fn told(taken: &Taken) -> Vec<&Cgroup> {
    let groups = taken.sideband.iter();
    groups.filter_map(|event| if let Sideband::Cgroup(group) = event { Some(group) } else { None }).collect()
}

/// Whether this is the path of a process in one of the hierarchies.
fn is_of(pid: u32, path: &[u8]) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a kernel with control groups");
    text.lines().any(|line| line.splitn(3, ':').nth(2).is_some_and(|shown| shown.as_bytes() == path))
}

/// Check that, with and without BPF, the group of each sampled process is recorded as of its first sample at the
/// latest, and only once unless it forks, whether it is started for the recording, ran before, or is a child.
#[test]
fn each_process_has_its_group() {
    let directory = directory();
    let program = build("burn", &[], directory.path());
    let child = Ended(Command::new(&program).arg("60000").spawn().expect("the program runs"));
    let script =
        format!("trap 'kill $one $other' TERM; {0} 60000 & one=$!; {0} 60000 & other=$!; wait", program.display());
    let argv = ["sh", "-c", &script].map(Into::into).to_vec();
    let requests = [
        run(&program, &["60000"], CaptureMode::Fp),
        Request::new(Target::Pids(vec![child.id()])),
        Request::new(Target::Command { argv }),
    ];
    for request in requests {
        for collector in [CollectorKind::Ebpf, CollectorKind::PerfEvent] {
            let taken = take_some(&Request { collector, ..request.clone() });
            let groups = told(&taken);
            let sampled: BTreeSet<u32> = taken.samples.iter().map(|sample| sample.pid).collect();
            for pid in sampled {
                let own: Vec<&Cgroup> = groups.iter().copied().filter(|group| group.pid == pid).collect();
                let times = taken.samples.iter().filter(|sample| sample.pid == pid).map(|sample| sample.time_ns);
                // A process that forks is read for that, too.
                let is_child =
                    |event: &Sideband| matches!(event, Sideband::Fork(f) if f.parent_pid == pid && f.pid != pid);
                let n_most = 1 + usize::from(taken.sideband.iter().any(is_child));
                let what = format!("{collector:?} {pid}: {own:?}");
                assert!((1..=n_most).contains(&own.len()), "{what}");
                assert!(own.iter().map(|group| group.time_ns).min() <= times.min(), "{what}");
                assert!(own.iter().all(|group| is_of(std::process::id(), &group.path)), "{what}");
            }
        }
    }
}
