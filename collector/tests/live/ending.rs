//! How recordings end.

use crate::support::{Ended, build, directory, run, take, take_with};
use fpprof_collector::{Request, StopFlag, Target, TargetStatus, record};
use fpprof_recording::model::{CaptureMode, EndReason};
use fpprof_recording::{BlockKind, block_kind};
use std::io::{self, Write};
use std::process::Command;
use std::time::{Duration, Instant};

fn shell(script: &str) -> Request {
    Request::new(Target::Command { argv: ["sh", "-c", script].map(Into::into).to_vec() })
}

/// Check that the recording ends with the command, and has its exit status or signal.
#[test]
fn status_of_the_command() {
    let exited = take(&shell("exit 7")).outcome;
    assert_eq!((exited.end.reason, exited.target_status), (EndReason::Exited(7), Some(TargetStatus::Exited(7))));
    let killed = take(&shell("kill -9 $$")).outcome;
    assert_eq!((killed.end.reason, killed.target_status), (EndReason::Killed(9), Some(TargetStatus::Killed(9))));
}

/// Check that the end of the time, or a signal, ends the recording at once and the command with SIGTERM.
#[test]
fn duration_and_signal() {
    let directory = directory();
    let program = build("burn", &[], directory.path());
    let endless = run(&program, &["60000"], CaptureMode::Fp);
    let began = Instant::now();
    let timed = take(&Request { duration: Some(Duration::from_millis(300)), ..endless.clone() }).outcome;
    assert_eq!(
        (timed.end.reason, timed.target_status),
        (EndReason::Duration, Some(TargetStatus::Killed(libc::SIGTERM)))
    );
    let stop = StopFlag::new().expect("a flag");
    let stopped = take_with(&endless, &stop, &mut |_| stop.stop(libc::SIGINT)).outcome;
    assert_eq!(stopped.end.reason, EndReason::Signal(libc::SIGINT));
    assert_eq!(stopped.target_status, Some(TargetStatus::Killed(libc::SIGTERM)));
    // The program would take a minute of CPU time.
    assert!(began.elapsed() < Duration::from_secs(50), "{:?}", began.elapsed());
}

/// Check that the recording ends when all attached processes have ended, and does not end them itself.
#[test]
fn attached_processes() {
    let directory = directory();
    let program = build("burn", &[], directory.path());
    let mut children =
        ["600", "800", "60000"].map(|ms| Ended(Command::new(&program).arg(ms).spawn().expect("the program runs")));
    let [first, second, third] = &mut children;
    let gone = take(&Request::new(Target::Pids(vec![first.id(), second.id()]))).outcome;
    assert_eq!((gone.end.reason, gone.target_status), (EndReason::TargetsGone, None));
    let duration = Some(Duration::from_millis(100));
    let timed = take(&Request { duration, ..Request::new(Target::Pids(vec![third.id()])) }).outcome;
    assert_eq!(timed.end.reason, EndReason::Duration);
    assert!(third.try_wait().expect("its state").is_none(), "it runs on");
    for child in [first, second] {
        assert!(child.wait().expect("its end").success());
    }
}

/// A disk that only has no room for the end record.
struct NoRoomForTheEnd;

impl Write for NoRoomForTheEnd {
    fn write(&mut self, block: &[u8]) -> io::Result<usize> {
        match block_kind(block) {
            Some(BlockKind::End) => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ => Ok(block.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Check that a recording whose end record could not be written does not count as complete.
#[test]
fn ends_that_are_not_written() {
    for collector in [fpprof_collector::CollectorKind::Ebpf, fpprof_collector::CollectorKind::PerfEvent] {
        let stop = StopFlag::new().expect("a flag");
        let request = Request { collector, ..shell("exit 0") };
        let outcome = record(&request, NoRoomForTheEnd, &stop, &mut |_| {}).expect("a recording");
        assert_eq!(outcome.end.reason, EndReason::WriteFailed(libc::ENOSPC));
    }
}
