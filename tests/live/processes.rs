//! Processes that other profilers lose: of other users, in namespaces, undumpable, kernel threads, and of another
//! architecture. Tests how each is recorded, and how its stacks end.

use crate::support::stacks::{Stack, commonest, stacks};
use crate::support::{
    Ended, assert_balance, compile, fpprof, number, ran, record, report, source, until_enough, wait_until,
};
use fpprof_workloads::{build, programs};
use serde_json::Value;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The uid of `nobody`.
const NOBODY: u32 = 65_534;
const OPTIONS: [&str; 5] = ["-q", "-F", "997", "--call-graph", "both,16384"];

/// Builds main < outer < mid < burn, which runs for as many seconds as its argument says.
fn chain(directory: &Path) -> PathBuf {
    let program = programs().iter().find(|program| program.name == "leaf_with_frame").expect("a program of this name");
    build(program, directory).expect("the program builds")
}

/// Records a script that runs that chain for so many seconds, until there are enough samples, and checks that nearly
/// all of its stacks are complete under call frame information. The script's preparation is in the recording, too.
fn assert_chain(what: &str, file: &Path, options: &[&str], script: impl Fn(u32) -> String) {
    until_enough(what, |seconds| {
        record(file, &[&OPTIONS, options].concat(), &["sh", "-c", &script(seconds)]);
        assert_balance(&report(file, &[]));
        let found = stacks(file, "dwarf");
        let samples = |is_it: &dyn Fn(&Stack) -> bool| -> u64 {
            found.iter().filter(|stack| is_it(stack)).map(|stack| stack.samples).sum()
        };
        let (all, burn) = (samples(&|_| true), samples(&|stack| stack.names.iter().any(|name| name == "burn")));
        let right = samples(&|stack| {
            let is_chain = stack.names.iter().map(String::as_str).take(4).eq(["burn", "mid", "outer", "main"]);
            is_chain && stack.class == "complete"
        });
        let is_enough = burn >= 100;
        assert!(!is_enough || right * 100 >= burn * 98, "{what}: {right} of {burn} of {all}: {}", commonest(&found));
        (is_enough && right * 2 >= all).then_some(())
    });
}

/// Check that a setuid program has its stacks like any other, on request.
#[test]
fn setuid_programs_are_complete() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = chain(dir.path());
    chown(&program, Some(NOBODY), Some(NOBODY)).expect("these tests run as root");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("its rights");
    let file = dir.path().join("recording");
    assert_chain("setuid", &file, &["--include-privileged"], |seconds| format!("exec {} {seconds}", program.display()));
}

/// Check that programs in separate pid, user and mount namespaces have complete stacks with names, even if their file
/// is in a mount that is gone with them, and they run for a shorter time than their mappings take to be read.
#[test]
fn namespaces_are_complete() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = chain(dir.path());
    let (program, mount) = (program.display(), dir.path().join("mount"));
    std::fs::create_dir(&mount).expect("a directory");
    let mount = mount.display();
    let private = format!("mount -t tmpfs none {mount} && cp {program} {mount}/program && exec {mount}/program");
    let many = format!(
        "mount -t tmpfs none {mount} && cp {program} {mount}/program && \
         for i in `seq $(($0 * 20))`; do {mount}/program 0.05; done"
    );
    let scripts = [
        format!("exec unshare -p -f -m --mount-proc {program}"),
        format!("exec unshare -U -r {program}"),
        format!("exec unshare -U -r -p -f -m {program}"),
        format!("exec unshare -m sh -c '{private} $0'"),
        format!("exec unshare -U -r -m sh -c '{private} $0'"),
        format!("exec unshare -m sh -c '{many}'"),
    ];
    for script in scripts {
        let file = dir.path().join("recording");
        assert_chain(&script, &file, &[], |seconds| format!("{script} {seconds}"));
    }
}

/// Check that processes that are undumpable and forbid themselves nearly every system call have complete stacks when
/// attached to, on request.
#[test]
fn closed_processes_are_complete() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("closed");
    compile("gcc", &["-O1"], &program, &source("closed.c"));
    for more in [None, Some("seccomp")] {
        let started = dir.path().join(more.unwrap_or("plain"));
        let child = Ended(Command::new(&program).arg(&started).args(more).spawn().expect("the program runs"));
        wait_until("the program runs", || started.exists());
        let (file, pid) = (dir.path().join("recording"), child.id().to_string());
        let (all, found) = until_enough("samples", |seconds| {
            let options = ["--include-privileged", "-p", &pid, "--duration", &seconds.to_string(), "-o"];
            let recorded = ran(fpprof().arg("record").args(OPTIONS).args(options).arg(&file));
            assert_eq!(recorded.status, 0, "{}", recorded.stderr);
            assert_balance(&report(&file, &[]));
            let found = stacks(&file, "dwarf");
            let all: u64 = found.iter().map(|stack| stack.samples).sum();
            (all >= 100).then_some((all, found))
        });
        let is_right = |stack: &&Stack| {
            stack.names.starts_with(&["burn".into(), "outer".into(), "main".into()]) && stack.class == "complete"
        };
        let right: u64 = found.iter().filter(is_right).map(|stack| stack.samples).sum();
        assert!(right * 100 >= all * 95, "{more:?}: {right} of {all}: {}", commonest(&found));
    }
}

/// Whether a process is a kernel thread: a child of `kthreadd`, which has pid 2.
fn is_of_kernel(process: &Value) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process["pid"])).unwrap_or_default();
    let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
    parent == Some("2")
}

/// Check that in a recording of the whole system kernel threads are complete, and idle time is skipped, not sampled.
#[test]
fn threads_of_the_kernel_are_complete() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("recording");
    // Work for kernel threads: data to be written to a disk.
    let written = Path::new(env!("CARGO_TARGET_TMPDIR")).join("written");
    let script = format!(
        "for n in 1 2 3 4 5 6; do dd if=/dev/zero of={0} bs=1M count=64 conv=fsync status=none; done; rm {0}; sleep 1",
        written.display()
    );
    let options = ["-q", "-a", "-F", "4999", "--call-graph", "both,4096"];
    record(&file, &options, &["sh", "-c", &script]);
    let report = report(&file, &[]);
    assert_balance(&report);
    assert!(number(&report, "skipped") > 0, "a second of sleep is idle: {report:#}");
    let processes = report["processes"].as_array().expect("processes");
    // With a thousand processes or more, those with few samples are grouped by name, without a pid.
    let is_idle = |process: &&Value| process["pid"] == 0 && process["processes"].is_null();
    assert_eq!(processes.iter().find(is_idle), None, "idle is no process");
    let of_kernel: Vec<&Value> = processes.iter().filter(|process| is_of_kernel(process)).collect();
    let samples: u64 = of_kernel.iter().map(|process| number(process, "samples")).sum();
    assert!(samples > 0, "{processes:?}");
    for process in of_kernel {
        for strategy in ["fp", "dwarf"] {
            let quality = &process["strategies"][strategy];
            assert_eq!(number(quality, "complete"), number(process, "samples"), "{process:#}");
        }
    }
    assert!(report["strategies"]["dwarf"]["roots"]["kernel_thread"].as_u64() >= Some(samples), "{report:#}");
}

/// Check that for a program of another architecture the emulator's own frames are recorded, that its translated code
/// ends a stack with a reason, and that the report says so.
#[test]
fn emulated_programs_are_reported() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("chain");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/programs/chain.c");
    compile("aarch64-linux-gnu-gcc", &["-O2", "-static"], &program, &source);
    let file = dir.path().join("recording");
    let report = until_enough("samples", |seconds| {
        record(&file, &OPTIONS, &["qemu-aarch64", program.to_str().expect("a path"), &seconds.to_string()]);
        Some(report(&file, &[])).filter(|report| number(report, "recorded") >= 200)
    });
    assert_balance(&report);
    let found = stacks(&file, "dwarf");
    let samples = |is_it: &dyn Fn(&Stack) -> bool| -> u64 {
        found.iter().filter(|stack| is_it(stack)).map(|stack| stack.samples).sum()
    };
    let translated = samples(&|stack| (&*stack.class, &*stack.stop) == ("truncated", "no_module"));
    assert!(translated * 100 >= number(&report, "recorded") * 80, "{}", commonest(&found));
    assert_eq!(samples(&|stack| stack.names.iter().any(|name| name == "burn" || name == "mid")), 0);
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("qemu-aarch64 is an emulator"), "{warnings}");
}
