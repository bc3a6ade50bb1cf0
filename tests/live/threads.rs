//! Processes whose threads exit while they are recorded, from outside.

use crate::support::stacks::{Stack, commonest, stacks};
use crate::support::{Ended, assert_balance, compile, fpprof, ran, report};
use std::path::Path;
use std::process::Command;

/// Checks that all but very few stacks of `burn` are complete, and none is broken.
fn assert_complete(what: &str, file: &Path) {
    assert_balance(&report(file, &[]));
    let found = stacks(file, "dwarf");
    let of_burn = |is_it: &dyn Fn(&Stack) -> bool| -> u64 {
        let of_burn = found.iter().filter(|stack| stack.names.first().is_some_and(|name| name == "burn"));
        of_burn.filter(|stack| is_it(stack)).map(|stack| stack.samples).sum()
    };
    let (all, broken) = (of_burn(&|_| true), of_burn(&|stack| stack.class == "broken"));
    let complete = of_burn(&|stack| {
        let is_chain = stack.names.iter().map(String::as_str).take(4).eq(["burn", "mid", "outer", "main"]);
        is_chain && stack.class == "complete"
    });
    assert!(all >= 300, "{what}: only {all} samples");
    assert_eq!(broken, 0, "{what}: of {all}: {}", commonest(&found));
    assert!(complete * 1000 >= all * 995, "{what}: {complete} of {all}: {}", commonest(&found));
}

/// Check that a process whose other threads exit, at 10 to 2,000 a second, before, while and after the recorder reads
/// `/proc`, has complete stacks: launched, attached to, and system-wide, with either collector.
#[test]
fn threads_that_exit_leave_the_process_known() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("exiting");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("collector/tests/programs/exiting.c");
    compile("gcc", &["-O1", "-pthread"], &program, &source);
    let file = dir.path().join("recording");
    for (rate, n, collector) in [(10, 15, "ebpf"), (100, 150, "ebpf"), (2000, 3000, "ebpf"), (100, 150, "perf-event")] {
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
        // Whose child ended need not be waited for by `tail`: it looks for a process that runs.
        let (mut child, pid) = start();
        let waiter = std::thread::spawn(move || child.wait());
        record(&["-a", "--", "tail", "--pid", &pid, "-f", "/dev/null"]);
        assert!(waiter.join().expect("no panic").expect("its end").success());
        let (_child, pid) = start();
        record(&["-p", &pid]);
    }
}
