//! Processes that other profilers lose: of other users, in namespaces, with odd names, gone or replaced.

use crate::support::{Ended, assert_most, build, directory, is_without_data, n_in, run, shell, take, take_some};
use fpprof_collector::{Note, Request, Target};
use fpprof_recording::model::{CaptureMode, ModuleBytes, Sample, Sideband};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Check that a program that runs as another user because of its file's mode is sampled and described like any other:
/// perf's events of a task end with such an exec.
#[test]
fn setuid_programs() {
    let directory = directory();
    let program = build("burn", &[], directory.path());
    const NOBODY: u32 = 65_534;
    std::os::unix::fs::chown(&program, Some(NOBODY), Some(NOBODY)).expect("run the tests as root");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("its rights");
    let taken = take(&shell(&format!("exec {} 200", program.display())));
    assert_most(n_in(&taken, "/burn", |_| true), taken.samples.len(), "samples in the program");
}

/// Check that programs in pid, user and mount namespaces of their own are recorded with the initial namespace's process
/// IDs, and described.
#[test]
fn programs_in_namespaces() {
    let directory = directory();
    let program = build("burn", &[], directory.path());
    for flags in ["-p -f", "-p -f -m --mount-proc", "-U -r", "-U -r -p -f -m"] {
        let taken = take(&shell(&format!("exec unshare {flags} {} 800", program.display())));
        assert_most(n_in(&taken, "/burn", |_| true), taken.samples.len(), flags);
        assert!(taken.samples.iter().all(|sample| sample.pid > 1), "{flags}: numbers of the namespace");
    }
}

/// Attaches to a program once it has created its file, and checks that samples are in its code.
fn assert_found_when_attached_to(name: &str) {
    let directory = directory();
    let program = build(name, &[], directory.path());
    let started = directory.path().join("started");
    let child = Ended(Command::new(&program).arg("60000").arg(&started).spawn().expect("the program runs"));
    let began = Instant::now();
    while !started.exists() {
        assert!(began.elapsed() < Duration::from_secs(20), "the program runs");
        std::thread::yield_now();
    }
    let taken = take_some(&Request {
        mode: CaptureMode::Dwarf { stack_bytes: 4096 },
        ..Request::new(Target::Pids(vec![child.id()]))
    });
    assert_most(n_in(&taken, &format!("/{name}"), |_| true), taken.samples.len(), "samples in the program");
}

/// Check that a process that made itself non-dumpable is sampled and described when it is attached to.
#[test]
fn undumpable_processes() {
    assert_found_when_attached_to("undumpable");
}

/// Check that a process whose first thread has exited is described when it is attached to: that thread has no mappings.
#[test]
fn processes_without_their_first_thread() {
    assert_found_when_attached_to("first_thread_exits");
}

/// Check that none of thousands of short-lived processes per second is missed, that every sample has its process, and
/// that their state does not pile up.
#[test]
fn storms_of_processes() {
    let directory = directory();
    let program = build("storm", &[], directory.path());
    let n_made = 8000;
    let taken = take(&run(&program, &[&n_made.to_string()], CaptureMode::Fp));
    let forked: BTreeSet<u32> = taken
        .sideband
        .iter()
        .filter_map(|event| match event {
            Sideband::Fork(fork) => Some(fork.pid),
            _ => None,
        })
        .collect();
    let n_forks = taken.sideband.iter().filter(|event| matches!(event, Sideband::Fork(_))).count() as u64;
    let lost = taken.outcome.end.sideband_lost.events;
    assert!(n_forks + lost >= n_made, "{n_made} made, {n_forks} told of, {lost} lost");
    // The program's own fork is before the start of the recording.
    let fpprof_recording::model::Target::Command { pid: main, .. } = taken.meta.target else { panic!("a command") };
    let unknown = taken.samples.iter().filter(|sample| sample.pid != main && !forked.contains(&sample.pid)).count();
    assert!(unknown == 0 || lost > 0, "{unknown} samples of processes nobody told of");
    assert!(!taken.outcome.notes.iter().any(|note| matches!(note, Note::ProcessesNotFollowed(_))));
}

/// Check that a program whose file is replaced while it runs keeps the bytes that run, under their original identity,
/// and that the new file is not taken for it.
#[test]
fn replaced_programs_are_kept() {
    let directory = directory();
    let program = build("burn", &[], directory.path());
    let bytes = std::fs::read(&program).expect("the program");
    let other = directory.path().join("other");
    std::fs::copy("/bin/true", &other).expect("another program");
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).expect("a file"));
    let (mapped, replacement) = (inode(&program), inode(&other));
    let taken = take(&run(&program, &["200", other.to_str().expect("a path")], CaptureMode::Fp));
    assert_eq!(inode(&program), replacement, "the file was replaced");
    let is_it = |module: &&ModuleBytes| module.path == program.as_os_str().as_encoded_bytes();
    let kept: Vec<_> = taken
        .sideband
        .iter()
        .filter_map(|event| if let Sideband::Module(module) = event { Some(module) } else { None })
        .filter(is_it)
        .collect();
    assert_eq!(kept.len(), 1);
    assert!(kept.iter().all(|module| module.identity.inode == mapped && is_without_data(&module.bytes, &bytes)));
}

/// Check that a stack that grows into a page that is not present is copied nevertheless: the page is a hole, and what
/// lies above it is there.
#[test]
fn growing_stacks() {
    let directory = directory();
    let program = build("recurse", &["-O1"], directory.path());
    let request = run(&program, &["400"], CaptureMode::Dwarf { stack_bytes: 65_536 });
    let taken = take(&Request { keep_raw_stacks: true, ..request });
    let deep = |sample: &&Sample| {
        let sp = sample.user_regs.map_or(0, |regs| regs.sp());
        sample.stack_end.is_some_and(|end| end.address - sp > 100_000)
    };
    let deep: Vec<_> = taken.samples.iter().filter(deep).collect();
    assert!(deep.len() >= 50, "{} deep samples", deep.len());
    let whole = deep.iter().filter(|sample| sample.stack_from_sp().len() == 65_536).count();
    assert_most(whole, deep.len(), "deep stacks that are copied as far as asked");
    let growing: Vec<_> =
        deep.iter().filter(|sample| sample.stack_holes.first().is_some_and(|h| h.offset == 0)).collect();
    assert!(!growing.is_empty(), "some samples are taken while the page below is made");
    for sample in growing {
        let above = sample.stack.get(8192..).unwrap_or_default();
        assert!(above.iter().any(|&byte| byte != 0), "what lies above the hole is there");
    }
}
