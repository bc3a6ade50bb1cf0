//! Single threads.

use crate::support::{Ended, build, directory, hex_numbers, refuse, skipped, take, take_some};
use fpprof_collector::{Error, Request, Target};
use fpprof_recording::model::{CaptureMode, EndReason, Sideband};
use std::process::Command;
use std::time::{Duration, Instant};

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::yield_now();
    }
}

/// Check that of a process only the requested threads are sampled, with everything needed to unwind them, and that the
/// recording ends when they do, however long the process lives.
#[test]
fn single_threads() {
    let directory = directory();
    let program = build("threads", &[], directory.path());
    let truth = directory.path().join("truth");
    let mut child = Ended(Command::new(&program).arg("2000").arg(&truth).spawn().expect("the program runs"));
    let done = directory.path().join("truth.done");
    wait_for("the program wrote its file", || done.exists());
    let [first, second] = hex_numbers(&done)[..] else { panic!("two numbers") };
    let (first, second) = (u32::try_from(first).expect("a tid"), u32::try_from(second).expect("a tid"));
    let one = take_some(&Request {
        mode: CaptureMode::Both { stack_bytes: 65_536, every: 1 },
        ..Request::new(Target::Threads(vec![second]))
    });
    assert_eq!(one.outcome.end.reason, EndReason::Signal(libc::SIGINT));
    assert!(one.samples.iter().all(|sample| (sample.pid, sample.tid) == (child.id(), second)));
    assert!(skipped(&one) > 0, "the other threads' ticks are skipped");
    let mapped = one.sideband.iter().any(|e| matches!(e, Sideband::Mmap(m) if m.path.ends_with(b"/threads")));
    assert!(mapped, "the process is described");
    let until_its_end = take(&Request::new(Target::Threads(vec![first])));
    assert_eq!(until_its_end.outcome.end.reason, EndReason::TargetsGone);
    assert!(child.try_wait().expect("its state").is_none(), "the process lives on");
    drop(child);
    assert!(matches!(refuse(&Request::new(Target::Threads(vec![first]))), Error::NoSuchThread(_)));
    assert!(matches!(refuse(&Request::new(Target::Threads(Vec::new()))), Error::NoProcess));
}
