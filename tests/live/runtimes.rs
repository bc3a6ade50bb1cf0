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

/// The same program for `CPython`, for as many seconds. For as many again a thread computes, whose functions Python does not
/// compile.
const PYTHON_PROGRAM: &str = "
import _thread, faulthandler, os, sys, time
def inner(n, tells):
    if tells: faulthandler.dump_traceback(sys.stdout)
    sum = 0
    for i in range(n): sum = (sum * 31 + i) & 0xffff
    return sum
def middle(n, tells): return inner(n, tells) + 1
def outer(n, tells): return middle(n, tells) + 1
def compute():
    end = time.monotonic() + int(sys.argv[1])
    while time.monotonic() < end: outer(100000, False)
print('process', os.getpid(), flush=True)
outer(1, True)
compute()
sys.deactivate_stack_trampoline()
done = _thread.allocate_lock()
done.acquire()
_thread.start_new_thread(lambda: (compute(), done.release()), ())
done.acquire()
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
    let name = |line: &str| match line.trim_start().strip_prefix("at ") {
        Some(rest) => rest.split(' ').next().map(str::to_owned),
        None => line.rsplit_once(" in ").map(|(_, name)| name.to_owned()),
    };
    stdout.lines().filter_map(name).filter(|name| FUNCTIONS.contains(&&**name)).collect()
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

/// The function of a folded frame: `CPython` writes the name and the file.
fn by_python(frame: &str) -> Option<&str> {
    let (name, file) = frame.strip_prefix("py::")?.split_once(':')?;
    file.ends_with("/program.py").then_some(name)
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
    record_program(file, command, mode, |pid| format!("perf-{pid}.map"));
    let ((all, right), (_, right_without)) =
        (in_inner(&ran_export(file, &[]), name), in_inner(&ran_export(file, &["--fallback", "none"]), name));
    assert!(right * 100 >= all * 99 && right_without == 0, "{right} of {all}, {right_without} without frame pointers");
    let report = report(file, &[]);
    assert!(number(quality(&report), "fp_in_jit") >= right, "{report}");
    (all >= 200).then_some(report)
}

/// Records a program, which prints its stack, and removes the file that its library writes to `/tmp`.
fn record_program(file: &Path, command: &[&str], mode: &str, written: impl Fn(&str) -> String) {
    let ran = record(file, &["-F", "999", "--call-graph", mode], command);
    let pid = ran.stdout.lines().find_map(|line| line.strip_prefix("process ")).expect("its number");
    std::fs::remove_file(Path::new("/tmp").join(written(pid))).expect("the file is there");
    assert_eq!(dumped_stack(&ran.stdout), FUNCTIONS);
}

/// How the stacks of such a recording end.
fn quality(report: &Value) -> &Value {
    assert_balance(report);
    let strategies = report.get("strategies").and_then(Value::as_object).into_iter().flatten();
    strategies.into_iter().next().expect("the strategy of such recordings").1
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

/// As [`check_mode`], for Python: without frame pointers; and walks in the kernel, of which there are enough where no compiled
/// code is on the stack, are those of the copied stacks.
fn check_python(file: &Path, command: &[&str], mode: &str) -> Option<()> {
    record_program(file, command, mode, |pid| format!("jit-{pid}.dump"));
    let (all, right) = in_inner(&ran_export(file, &["--fallback", "none"]), by_python);
    let report = report(file, &[]);
    let (quality, walks) = (quality(&report), report.get("kernel_walks"));
    if all < 200 || walks.is_some_and(|walks| number(walks, "verified") < 200) {
        return None;
    }
    assert!(right * 100 >= all * 99, "{right} of {all}");
    assert!(number(quality, "complete") * 100 >= number(quality, "samples") * 99, "{report}");
    assert_eq!((number(quality, "fp_in_jit"), walks.map_or(0, |walks| number(walks, "different"))), (0, 0), "{report}");
    Some(())
}

/// Check that stacks go through what `CPython` compiles for each function, by the call frame information of its jitdump.
#[test]
fn stacks_go_through_python_as_python_says() {
    let target = Path::new(env!("CARGO_BIN_EXE_fpprof")).ancestors().nth(2).expect("the directory of what is built");
    let python = target.join("tools/python3.13/python3.13");
    assert!(python.exists(), "{} is needed: `./dev test` fetches it", python.display());
    let dir = tempfile::tempdir().unwrap();
    let (program, file) = (dir.path().join("program.py"), dir.path().join("python.fpprof"));
    std::fs::write(&program, PYTHON_PROGRAM).unwrap();
    let [python, program] = [&python, &program].map(|path| path.to_str().expect("a path in UTF-8"));
    for mode in ["dwarf,64K", "cfi,64K,verify=1"] {
        until_enough("samples of a function", |seconds| {
            check_python(&file, &[python, "-X", "perf_jit", program, &seconds.to_string()], mode)
        });
    }
}
