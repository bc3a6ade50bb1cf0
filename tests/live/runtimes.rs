//! Stacks through code that a run-time library compiles, compared with the library's own stack dumps. Loads the real
//! BPF program.

use crate::support::{assert_balance, fpprof, number, ran, record, report, until_enough};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Prints its own stack once, and then computes in the same place, for as many milliseconds as its argument says.
pub(crate) const PROGRAM: &str = "
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

/// The same program for `OpenJDK`.
const JAVA_PROGRAM: &str = "
public class Busy {
    static int inner(int n, boolean tells) {
        if (tells) for (StackTraceElement e : new Throwable().getStackTrace()) System.out.println(\"at \" + e.getMethodName());
        int sum = 0;
        for (int i = 0; i < n; i++) sum = sum * 31 + i;
        return sum;
    }
    static int middle(int n, boolean tells) { return inner(n, tells) + 1; }
    static int outer(int n, boolean tells) { return middle(n, tells) + 1; }
    public static void main(String[] args) {
        System.out.println(\"process \" + ProcessHandle.current().pid());
        int sum = outer(1, true);
        long end = System.currentTimeMillis() + Long.parseLong(args[0]);
        while (System.currentTimeMillis() < end) sum += outer(1000000, false);
        System.out.println(sum);
    }
}
";

/// Options that compile each method when it is first called, by itself and with frame pointers, and write a perf map at
/// the end.
const JAVA: [&str; 7] = [
    "java",
    "-Xcomp",
    "-XX:TieredStopAtLevel=1",
    "-XX:-Inline",
    "-XX:+PreserveFramePointer",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:+DumpPerfMapAtExit",
];

/// The functions of the programs, leaf first.
const FUNCTIONS: [&str; 3] = ["inner", "middle", "outer"];

/// Options that compile each function by itself, when it is first called, and write a perf map.
const NODE: [&str; 4] = ["node", "--perf-basic-prof", "--always-sparkplug", "--no-opt"];

/// The functions of the program, leaf first, from the lines of its library's stack dump.
fn dumped_stack(stdout: &str) -> Vec<String> {
    let functions = stdout.lines().filter_map(|line| line.trim_start().strip_prefix("at ")?.split(' ').next());
    functions.filter(|name| FUNCTIONS.contains(name)).map(str::to_owned).collect()
}

/// The function of a folded frame: V8 writes the kind, a mark of its compiler, the name and the file.
fn by_v8(frame: &str) -> Option<&str> {
    let (kind, rest) = frame.split_once(':')?;
    let is_function = ["JS", "LazyCompile", "Function"].contains(&kind);
    rest.get(1..)?.split(' ').next().filter(|_| is_function)
}

/// The method of a folded frame: `OpenJDK` writes the result type, the class, the name and the argument types.
fn by_java(frame: &str) -> Option<&str> {
    frame.split_once(" Busy.")?.1.split('(').next()
}

/// The functions of the program in a folded stack, leaf first.
fn recorded<'a>(folded: &'a str, name: fn(&'a str) -> Option<&'a str>) -> Vec<&'a str> {
    folded.split(';').rev().filter_map(name).filter(|name| FUNCTIONS.contains(name)).collect()
}

/// (samples in `inner`, those of them whose stacks reach their root with all functions).
fn in_inner<'a>(folded: &'a str, name: fn(&'a str) -> Option<&'a str>) -> (u64, u64) {
    let (mut all, mut right) = (0, 0);
    for (stack, n) in folded.lines().filter_map(|line| line.rsplit_once(' ')) {
        let (functions, n) = (recorded(stack, name), n.parse::<u64>().expect("a number of samples"));
        if functions.first().is_some_and(|leaf| *leaf == "inner") {
            all += n;
            let is_whole = !stack.contains("[truncated") && !stack.contains("[broken");
            right += if functions == FUNCTIONS && is_whole { n } else { 0 };
        }
    }
    (all, right)
}

/// As [`check_mode`], with copied stacks, and then with walks in the kernel: most of the latter are complete.
fn check(file: &Path, command: &[&str], name: fn(&str) -> Option<&str>) -> Option<()> {
    check_mode(file, command, name, "dwarf,64K")?;
    let report = check_mode(file, command, name, "cfi,64K,verify=0")?;
    let complete = number(report.get("kernel_walks").expect("walks in the kernel"), "complete");
    assert!(complete * 2 >= number(&report, "recorded"), "{report}");
    Some(())
}

/// Records a program, and checks that its stacks reach their root with the functions of the library's own stack dump,
/// that they are counted, and that without the frame pointers of compiled code they do not; returns the report. `None`
/// if there are too few samples.
fn check_mode(file: &Path, command: &[&str], name: fn(&str) -> Option<&str>, mode: &str) -> Option<Value> {
    let ran = record(file, &["-F", "999", "--call-graph", mode], command);
    let pid = ran.stdout.lines().find_map(|line| line.strip_prefix("process ")).expect("its number");
    std::fs::remove_file(format!("/tmp/perf-{pid}.map")).expect("the table is there");
    assert_eq!(dumped_stack(&ran.stdout), FUNCTIONS);
    let folded = |options: &[&str]| ran_export(file, options);
    let (with, without) = (folded(&[]), folded(&["--fallback", "none"]));
    let ((all, right), (_, right_without)) = (in_inner(&with, name), in_inner(&without, name));
    assert!(right * 100 >= all * 99 && right_without == 0, "{right} of {all}, {right_without} without frame pointers");
    let report = report(file, &[]);
    assert_balance(&report);
    let strategies = report.get("strategies").and_then(Value::as_object).into_iter().flatten();
    let (_, quality) = strategies.into_iter().next().expect("the strategy of such recordings");
    assert!(number(quality, "fp_in_jit") >= right, "{quality}");
    (all >= 200).then_some(report)
}

fn ran_export(file: &Path, options: &[&str]) -> String {
    ran(fpprof().args(["export", "--format", "folded"]).arg(file).args(options)).stdout
}

/// Check that stacks continue through code that V8 compiles.
#[test]
fn stacks_go_through_v8_as_v8_says() {
    let dir = tempfile::tempdir().unwrap();
    let (program, file) = (dir.path().join("program.js"), dir.path().join("node.fpprof"));
    std::fs::write(&program, PROGRAM).unwrap();
    let program = program.to_str().expect("a path in UTF-8");
    let log = format!("--logfile={}", dir.path().join("v8.log").display());
    until_enough("samples of a function", |seconds| {
        let milliseconds = (2000 * seconds).to_string();
        check(&file, &[&NODE[..], &[&log, program, &milliseconds]].concat(), by_v8)
    });
}

/// Compiles the program for `OpenJDK`, class `Busy`; returns the directory for `-cp`.
pub(crate) fn compile_java(dir: &Path) -> String {
    let program = dir.join("Busy.java");
    std::fs::write(&program, JAVA_PROGRAM).expect("a temporary file is written");
    let compiled = ran(Command::new("javac").arg("-d").args([dir, &program]));
    assert_eq!(compiled.status, 0, "{}", compiled.stderr);
    dir.to_str().expect("a path in UTF-8").to_owned()
}

/// Check that stacks continue through code that `OpenJDK` compiles.
#[test]
fn stacks_go_through_java_as_java_says() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("java.fpprof");
    let classes = compile_java(dir.path());
    until_enough("samples of a function", |seconds| {
        let milliseconds = (2000 * seconds).to_string();
        check(&file, &[&JAVA[..], &["-cp", &classes, "Busy", &milliseconds]].concat(), by_java)
    });
}
