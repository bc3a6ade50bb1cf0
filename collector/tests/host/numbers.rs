//! Reused process IDs. Determines the IDs of all new processes on the machine.

use crate::changed::Changed;
use crate::support::{Ended, build, directory, n_in, run, shell, take};
use fpprof_collector::Request;
use fpprof_recording::model::{CaptureMode, EndReason, Sample, Sampling, Sideband};
use std::process::Command;

/// Needs no undoing, since IDs continue from where they are. But only one test at a time may determine them.
fn numbers() -> Changed {
    Changed::undone_by("", &[])
}

/// Check that another process that reuses the ID of an ended profiled one is not profiled.
#[test]
fn strangers_with_a_reused_number_are_not_sampled() {
    let _numbers = numbers();
    let directory = directory();
    let program = build("strangers", &[], directory.path());
    let fifo = |name: &str| {
        let path = directory.path().join(name);
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
        path.to_str().expect("a path").to_owned()
    };
    let (to, from) = (fifo("to"), fifo("from"));
    let mut host = Ended(Command::new(&program).args(["host", &to, &from]).spawn().expect("the program runs"));
    let request = run(&program, &["guest", &to, &from, "100"], CaptureMode::Dwarf { stack_bytes: 4096 });
    let taken = take(&Request { sampling: Sampling::FrequencyHz(4999), ..request });
    assert!(host.wait().expect("its end").success());
    assert_eq!(taken.outcome.end.reason, EndReason::Exited(0), "the numbers were not had again");
    let is_marked = |sample: &&Sample| sample.user_regs.is_some_and(|regs| regs.ip() >> 12 == 0x1_2340_0000);
    assert_eq!(taken.samples.iter().filter(is_marked).count(), 0, "of {} samples", taken.samples.len());
    assert!(taken.samples.len() > 100, "{}", taken.samples.len());
}

/// Check that two processes that use the same ID in turn are distinguished by time.
#[test]
fn reused_process_numbers() {
    let _numbers = numbers();
    let directory = directory();
    let (first, second) = (build("burn", &[], directory.path()), directory.path().join("second"));
    std::fs::copy(&first, &second).expect("a copy");
    // Other processes take IDs too, hence the attempts; a failed one burns nothing.
    let script = format!(
        "{first} 150 & p=$!; wait $p; n=0
         while [ $n -lt 2000 ]; do n=$((n+1))
         echo $((p-1)) > /proc/sys/kernel/ns_last_pid
         sh -c 'if [ $$ = '$p' ]; then exec {second} 150; else exit 9; fi' && exit 0
         done; exit 8",
        first = first.display(),
        second = second.display()
    );
    let taken = take(&shell(&script));
    assert_eq!(taken.outcome.end.reason, EndReason::Exited(0), "the number was not had again");
    let exec = |name: &[u8]| {
        taken.sideband.iter().find_map(|event| match event {
            Sideband::Comm(comm) if comm.exec && comm.comm == name => Some((comm.pid, comm.time_ns)),
            _ => None,
        })
    };
    let (pid, _) = exec(b"burn").expect("the first runs");
    let (same, since) = exec(b"second").expect("the second runs");
    assert_eq!(same, pid);
    let of = |is_second: bool| move |sample: &Sample| sample.pid == pid && (sample.time_ns > since) == is_second;
    assert!(n_in(&taken, "/burn", of(false)) >= 50, "samples of the first");
    assert!(n_in(&taken, "/second", of(true)) >= 50, "samples of the second");
    let exits = taken.sideband.iter().filter(|e| matches!(e, Sideband::Exit(exit) if exit.tid == pid)).count();
    assert_eq!(exits, 2);
}
