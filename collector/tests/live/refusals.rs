//! What is refused before anything runs.

use crate::support::{directory, refuse};
use fpprof_collector::{CollectorKind, Error, Request, Target};
use fpprof_recording::model::{CaptureMode, Sampling};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;

fn command(argv: &[&str]) -> Request {
    Request::new(Target::Command { argv: argv.iter().map(OsString::from).collect() })
}

/// Check that impossible requests are refused with what would work, and that the command has not run by then.
#[test]
fn impossible_requests() {
    let directory = directory();
    let started = directory.path().join("started");
    let touch = command(&["touch", started.to_str().expect("a path")]);
    let chunk = |stack_bytes| CaptureMode::Dwarf { stack_bytes };
    let small = refuse(&Request { mode: chunk(65_536), ring_bytes: Some(4096), ..touch.clone() });
    let Error::RingTooSmall { asked: 4096, needed } = small else { panic!("{small}") };
    assert_eq!(needed, 262_144);
    let none = refuse(&Request { mode: chunk(0), ..touch.clone() });
    assert!(matches!(none, Error::StackBytes { asked: 0, .. }), "{none}");
    let huge = refuse(&Request { mode: chunk(u32::MAX), ..touch.clone() });
    assert!(matches!(huge, Error::StackBytes { max: 16_777_216, .. }), "{huge}");
    let fast = refuse(&Request { sampling: Sampling::FrequencyHz(u64::MAX), ..touch.clone() });
    assert!(matches!(fast, Error::RateTooHigh { .. }), "{fast}");
    let never = refuse(&Request { sampling: Sampling::FrequencyHz(0), ..touch });
    assert!(matches!(never, Error::ZeroRate), "{never}");
    assert!(!started.exists(), "the command ran");
}

/// Check that without BPF, single threads and control groups are refused with what would work.
#[test]
fn without_bpf_threads_and_groups_are_refused() {
    let group = Target::Cgroup { path: "/sys/fs/cgroup".into(), argv: None };
    for target in [Target::Threads(vec![std::process::id()]), group] {
        let request = Request { collector: CollectorKind::PerfEvent, ..Request::new(target) };
        let refused = refuse(&request).to_string();
        let names_it = refused.contains("-t") || refused.contains("-G");
        assert!(names_it && refused.contains("record without --collector perf-event"), "{refused}");
    }
}

/// Check that commands that cannot be started are distinguished as in shells.
#[test]
fn commands_that_cannot_be_started() {
    let directory = directory();
    let plain = directory.path().join("plain");
    std::fs::write(&plain, "neither script nor program").expect("a file");
    let plain_name = plain.to_str().expect("a path").to_owned();
    for name in ["no-such-command-anywhere", "./no/such/path"] {
        let missing = refuse(&command(&[name]));
        assert_eq!((missing.exit_status(), missing.to_string()), (127, format!("command not found: {name}")));
    }
    for name in [plain_name.as_str(), "/tmp"] {
        assert_eq!(refuse(&command(&[name])).exit_status(), 126);
    }
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o755)).expect("its rights");
    let no_program = refuse(&command(&[&plain_name]));
    assert!(
        matches!(&no_program, Error::CommandNotExecutable { source, .. } if source.raw_os_error() == Some(libc::ENOEXEC))
    );
    for empty in [&[][..], &[""], &["a\0b"]] {
        assert!(matches!(refuse(&command(empty)), Error::BadCommand), "{empty:?}");
    }
}

/// Check that nonexistent processes are refused.
#[test]
fn processes_that_do_not_exist() {
    let beyond = refuse(&Request::new(Target::Pids(vec![1, 99_999_999])));
    assert!(matches!(beyond, Error::NoSuchProcess(99_999_999)), "{beyond}");
    assert!(matches!(refuse(&Request::new(Target::Pids(Vec::new()))), Error::NoProcess));
}
