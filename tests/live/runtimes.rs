//! Stacks through code that a run-time library compiles while a program runs, against the library's own stack dumps. Loads
//! the real BPF program.

use crate::support::{assert_balance, fpprof, number, ran, record, report, until_enough};
use std::path::Path;

/// Says its own stack once, and then spends its time in the same place.
const PROGRAM: &str = "
'use strict';
function inner(n, tells) {
    if (tells) console.log(`${new Error().stack}\\nprocess ${process.pid}`);
    let sum = 0;
    for (let i = 0; i < n; i++) sum = (sum * 31 + i) | 0;
    return sum;
}
function middle(n, tells) { return inner(n, tells) + 1; }
function outer(n, tells) { return middle(n, tells) + 1; }
outer(1, true);
const end = Date.now() + Number(process.argv[2]);
while (Date.now() < end) outer(1e6, false);
";

/// Compiles each function by itself, when it is first called, and names it in a perf map.
const NODE: [&str; 4] = ["node", "--perf-basic-prof", "--always-sparkplug", "--no-opt"];

/// The functions of the program, leaf first, by the lines of V8's `Error.stack`.
fn told(stdout: &str) -> Vec<String> {
    let functions = stdout.lines().filter_map(|line| line.trim_start().strip_prefix("at ")?.split(' ').next());
    functions.filter(|name| ["inner", "middle", "outer"].contains(name)).map(str::to_owned).collect()
}

/// The same of a folded stack: V8 names a function by its kind, a mark of its compiler, its name and its file.
fn recorded(folded: &str) -> Vec<String> {
    let function = |frame: &str| {
        let (kind, rest) = frame.split_once(':')?;
        let is_function = ["JS", "LazyCompile", "Function"].contains(&kind);
        rest.get(1..)?.split(' ').next().filter(|_| is_function).map(str::to_owned)
    };
    let functions = folded.split(';').rev().filter_map(function);
    functions.filter(|name| ["inner", "middle", "outer"].contains(&name.as_str())).collect()
}

/// Samples in `inner`, and those of them whose stacks reach their root with the functions that V8 has told of.
fn in_inner(file: &Path, options: &[&str], told: &[String]) -> (u64, u64) {
    let folded = ran(fpprof().args(["export", "--format", "folded"]).arg(file).args(options)).stdout;
    let (mut all, mut right) = (0, 0);
    for (stack, n) in folded.lines().filter_map(|line| line.rsplit_once(' ')) {
        let (functions, n) = (recorded(stack), n.parse::<u64>().expect("a number of samples"));
        if functions.first().is_some_and(|leaf| leaf == "inner") {
            all += n;
            right +=
                if functions == told && !stack.contains("[truncated") && !stack.contains("[broken") { n } else { 0 };
        }
    }
    (all, right)
}

/// Check that stacks of node reach their root through V8's code, with the functions that V8 itself says are there, that
/// they are counted, and that without the frame pointers of that code they do not.
#[test]
fn stacks_go_through_v8_as_v8_says() {
    let dir = tempfile::tempdir().unwrap();
    let (program, file) = (dir.path().join("program.js"), dir.path().join("node.fpprof"));
    std::fs::write(&program, PROGRAM).unwrap();
    let program = program.to_str().expect("a path in UTF-8");
    let log = format!("--logfile={}", dir.path().join("v8.log").display());
    let right = until_enough("samples of a function", |seconds| {
        let milliseconds = (2000 * seconds).to_string();
        let command = [&NODE[..], &[&log, program, &milliseconds]].concat();
        let ran = record(&file, &["-F", "999", "--call-graph", "dwarf,64K"], &command);
        let pid = ran.stdout.lines().find_map(|line| line.strip_prefix("process ")).expect("its number");
        std::fs::remove_file(format!("/tmp/perf-{pid}.map")).expect("the table is there");
        let own = told(&ran.stdout);
        assert_eq!(own, ["inner", "middle", "outer"]);
        let (all, right) = in_inner(&file, &[], &own);
        let (_, without) = in_inner(&file, &["--fallback", "none"], &own);
        assert!(right * 100 >= all * 99 && without == 0, "{right} of {all}, {without} without frame pointers");
        (all >= 200).then_some(right)
    });
    let report = report(&file, &[]);
    assert_balance(&report);
    let dwarf = &report["strategies"]["dwarf"];
    assert!(number(dwarf, "fp_in_jit") >= right, "{dwarf}");
}
