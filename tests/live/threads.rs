//! Processes whose threads exit while they are recorded.

use crate::support::stacks::{Stack, commonest, stacks_in};
use crate::support::{Ended, assert_balance, compile, fpprof, ran, report};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;

/// Checks that nearly all of the program's stacks are complete, none is broken, and those of `burn` are the known ones.
fn assert_complete(what: &str, file: &Path) {
    assert_balance(&report(file, &[]));
    let found = stacks_in(file, "dwarf", &["--comm".as_ref(), "exiting".as_ref()]);
    let samples = |is_it: &dyn Fn(&Stack) -> bool| -> u64 {
        found.iter().filter(|stack| is_it(stack)).map(|stack| stack.samples).sum()
    };
    let (all, broken) = (samples(&|_| true), samples(&|stack| stack.class == "broken"));
    let complete = samples(&|stack| stack.class == "complete");
    let is_burn = |stack: &Stack| stack.names.first().is_some_and(|name| name == "burn");
    let is_chain = |stack: &Stack| {
        let is_named = stack.names.iter().map(String::as_str).take(4).eq(["burn", "mid", "outer", "main"]);
        is_named && stack.class == "complete"
    };
    let (burn, chains) = (samples(&is_burn), samples(&is_chain));
    assert!(burn >= 300, "{what}: only {burn} samples");
    assert_eq!(broken, 0, "{what}: of {all}: {}", commonest(&found));
    assert!(complete * 1000 >= all * 995, "{what}: {complete} of {all}: {}", commonest(&found));
    // In a new thread, only the instruction after the system call is known to be its start; nearly all samples are
    // there.
    let is_cut =
        |stack: &Stack| stack.class == "truncated" && stack.names.first().is_some_and(|name| name.contains("clone"));
    let cut = samples(&is_cut);
    assert!(cut * 1000 <= all + 1000, "{what}: {cut} of {all} are cut where they begin");
    assert!(chains * 1000 >= burn * 995, "{what}: {chains} of {burn}: {}", commonest(&found));
}

/// Check that a process whose other threads exit, at 10 to 2,000 per second, before, while and after the recorder reads
/// `/proc`, has complete stacks: launched, attached to, and system-wide, with either collector. `FPPROF_EXITS_ROUNDS`
/// sets the number of rounds.
#[test]
fn threads_that_exit_leave_the_process_known() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("exiting");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("collector/tests/programs/exiting.c");
    compile("gcc", &["-O1", "-pthread"], &program, &source);
    let file = dir.path().join("recording");
    let rounds: NonZeroUsize =
        std::env::var("FPPROF_EXITS_ROUNDS").map_or(NonZeroUsize::MIN, |rounds| rounds.parse().expect("from 1 on"));
    let ebpf = [(10, 15), (100, 150), (1000, 1500), (2000, 3000)].map(|(rate, n)| (rate, n, "ebpf"));
    let cases = ebpf.into_iter().chain([(100, 150, "perf-event")]);
    for (rate, n, collector) in std::iter::repeat_n(cases, rounds.get()).flatten() {
        let arguments = [rate, n, 500].map(|number: u32| number.to_string());
        let record = |target: &[&str]| {
            let mut recorder = fpprof();
            recorder.args(["record", "-q", "-F", "997", "--call-graph", "dwarf,4096", "--collector", collector, "-o"]);
            let ran = ran(recorder.arg(&file).args(target));
            let what = format!("{collector}, {rate} a second, {target:?}");
            assert_eq!(ran.status, 0, "{what}: {}", ran.stderr);
            assert_complete(&what, &file);
        };
        let start = || {
            let child = Command::new(&program).args(&arguments).spawn().expect("the program starts");
            let pid = child.id().to_string();
            (Ended(child), pid)
        };
        let [rate, n, ms] = &arguments;
        record(&["--", program.to_str().expect("a path"), rate, n, ms]);
        // `tail` must not wait for an unreaped child: it looks for a running process.
        let (mut child, pid) = start();
        let waiter = std::thread::spawn(move || child.wait());
        record(&["-a", "--", "tail", "--pid", &pid, "-f", "/dev/null"]);
        assert!(waiter.join().expect("no panic").expect("its end").success());
        let (_child, pid) = start();
        record(&["-p", &pid]);
    }
}

/// Check that a process whose first thread has ended before the others is recorded, with either collector.
#[test]
fn processes_outlive_their_first_thread() {
    const PROGRAM: &str = "
#include <pthread.h>
#include <unistd.h>
__attribute__((noinline)) void burn(void) { for (;;) __asm__ volatile(\"\"); }
static void *run(void *none) { burn(); return none; }
int main(void) {
	pthread_t thread;
	alarm(200);
	pthread_create(&thread, NULL, run, NULL);
	pthread_exit(NULL);
}
";
    let dir = tempfile::tempdir().expect("a directory");
    let (source, program) = (dir.path().join("outlived.c"), dir.path().join("outlived"));
    std::fs::write(&source, PROGRAM).expect("written");
    compile("gcc", &["-O1", "-pthread"], &program, &source);
    let running = Ended(Command::new(&program).spawn().expect("it runs"));
    let pid = running.id().to_string();
    let has_ended = |stat: String| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z"));
    while !std::fs::read_to_string(format!("/proc/{pid}/stat")).map(has_ended).expect("a process") {
        std::thread::yield_now();
    }
    let file = dir.path().join("recording");
    for collector in ["ebpf", "perf-event"] {
        let options = ["-q", "-F", "499", "--collector", collector, "--duration", "1", "-p", &pid, "-o"];
        let ran = ran(fpprof().arg("record").args(options).arg(&file));
        assert_eq!(ran.status, 0, "{collector}: {}", ran.stderr);
        assert_balance(&report(&file, &[]));
        let found = stacks_in(&file, "dwarf", &[]);
        assert!(found.iter().any(|stack| stack.names.iter().any(|name| name == "burn")), "{}", commonest(&found));
    }
}
