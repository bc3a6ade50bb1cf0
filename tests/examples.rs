//! Runs the libraries' examples as their first lines say.

#[path = "support/mod.rs"]
mod support;

use crate::support::crash::Crash;
use crate::support::{Ended, Ran, compile, ran, record, source, wait_until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const QEMU: &[&str] = &["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"];
/// Number of the system call on x86-64.
const CLOCK_NANOSLEEP: u32 = 230;

/// Runs an example, which cargo puts next to the directory of the tests.
fn example(name: &str, arguments: &[&Path]) -> Ran {
    let tests = std::env::current_exe().expect("this test");
    let path: PathBuf = tests.ancestors().nth(2).expect("the build's folder").join("examples").join(name);
    assert!(path.exists(), "{} is made by `cargo test --workspace`", path.display());
    let ran = ran(Command::new(path).args(arguments));
    assert_eq!(ran.status, 0, "{name}: {}", ran.stderr);
    ran
}

/// Check that a sleeping process is unwound to its start, through libraries without frame pointers.
#[test]
fn a_running_process() {
    let mut sleep = Command::new("sleep");
    let child = Ended(sleep.arg("600").stdout(Stdio::null()).spawn().expect("sleep starts"));
    let call = format!("/proc/{}/syscall", child.id());
    let sleeps = format!("{} ", CLOCK_NANOSLEEP);
    wait_until("it sleeps", || std::fs::read_to_string(&call).is_ok_and(|call| call.starts_with(&sleeps)));
    let stack = example("process", &[Path::new(&child.id().to_string())]).stdout;
    assert!(stack.ends_with("complete (_start)\n") || stack.ends_with("complete (undefined_ra)\n"), "{stack}");
    assert!(stack.lines().count() >= 5, "{stack}");
}

/// Check that a recording, a perf.data file and a core can be read by the short examples.
#[test]
fn files() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = dir.path().join("callers");
    compile("gcc", &["-O1", "-g", "-pthread"], &program, &source("callers.c"));
    let command = [program.to_str().expect("a path"), "200"];
    let recording = dir.path().join("run.fpprof");
    record(&recording, &["--call-graph", "dwarf"], &command);
    let read = example("read", &[&recording]).stdout;
    assert_eq!(read.lines().filter(|line| line.starts_with("process ")).count(), 2, "{read}");

    let perf_data = dir.path().join("perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-F", "499", "--call-graph", "dwarf,4096", "-o"]).arg(&perf_data);
    let status = perf.arg("--").args(command).status().expect("perf runs");
    assert!(status.success());
    let folded = example("perf_data", &[&perf_data]).stdout;
    assert!(folded.lines().any(|line| line.starts_with("callers;") && line.contains(";main;often;burn ")), "{folded}");
}

/// Check that the crashed thread of a core has its call chain.
#[test]
fn a_core() {
    // An emulator writes it to the working directory; the kernel follows its administrator's settings.
    let crash = Crash::new("aarch64-linux-gnu-gcc", &["-static"], QEMU);
    let core = crash.core("qsort");
    let stacks = example("core", &[&core, &crash.program]).stdout;
    let functions = |name: &str| stacks.lines().filter(|line| line.ends_with(&format!(" {name}"))).count();
    assert_eq!((functions("leaf"), functions("deep"), functions("main")), (1, 4, 1), "{stacks}");
    assert!(stacks.contains("complete (_start)"), "{stacks}");
}

/// Check that a program outside the workspace builds with both libraries, by path, and unwinds a recording.
#[test]
fn a_program_of_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let (program, recording) = (dir.path().join("callers"), dir.path().join("run.fpprof"));
    compile("gcc", &["-O1", "-static", "-no-pie", "-pthread"], &program, &source("callers.c"));
    record(&recording, &["--call-graph", "dwarf"], &[program.to_str().expect("a path"), "200"]);
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--quiet", "--locked", "--manifest-path"]);
    cargo.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outside/Cargo.toml"));
    cargo.arg("--target-dir").arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside"));
    let outside = ran(cargo.arg("--").arg(&recording).arg(&program));
    assert_eq!(outside.status, 0, "{}", outside.stderr);
    let count = |line: &str| line.split_once(' ').and_then(|(n, _)| n.parse::<u64>().ok()).expect("a count");
    let all: u64 = outside.stdout.lines().map(count).sum();
    let complete: u64 = outside.stdout.lines().filter(|line| line.contains(" complete ")).map(count).sum();
    assert!(all > 20 && complete * 10 >= all * 9, "{}", outside.stdout);
}
