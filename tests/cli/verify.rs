//! `fpprof verify` on programs with known peculiarities: what the oracle must find, and what it must not claim.

mod go;
mod leaps;
mod pace;
mod stacks;
mod tracing;
mod walks;

use crate::support::{Ran, number};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A compiled program; dropping it removes its directory.
struct Program {
    folder: tempfile::TempDir,
}

impl Program {
    /// Compiles `source`, written to `main.EXTENSION`.
    fn compile(compiler: &str, flags: &[&str], extension: &str, source: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the program");
        let file = folder.path().join(format!("main.{extension}"));
        std::fs::write(&file, source).expect("the source is written");
        crate::support::compile(compiler, flags, &folder.path().join("prog"), &file);
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("prog")
    }

    /// `verify --json` of the program with `fp` and `dwarf`.
    fn verify(&self, options: &[&str]) -> Value {
        let options: Vec<&str> = ["--strategies", "fp,dwarf"].iter().chain(options).copied().collect();
        let path = self.path();
        let ran = verify(&options, &[path.to_str().expect("a path of plain characters")]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        json(&ran)
    }
}

fn verify(options: &[&str], command: &[&str]) -> Ran {
    crate::support::ran(crate::support::fpprof().arg("verify").args(options).arg("--json").arg("--").args(command))
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout))
}

/// The verdicts of a strategy over all instructions.
fn strategy<'a>(report: &'a Value, name: &str) -> &'a Value {
    let strategies = report["strategies"].as_array().expect("strategies");
    strategies.iter().find(|strategy| strategy["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

fn total(counts: &Value) -> u64 {
    counts.as_object().expect("counts").values().filter_map(Value::as_u64).sum()
}

/// Counts of one function: `fp` is the first strategy, `dwarf` the second.
struct Function {
    checked: u64,
    fp: Classes,
    dwarf: Classes,
    /// Stacks of `dwarf` that went wrong at a frame of this function.
    dwarf_broke: Classes,
}

#[derive(Debug, PartialEq, Eq)]
struct Classes {
    exact: u64,
    truncated: u64,
    flagged: u64,
    wrong: u64,
}

fn function(report: &Value, name: &str) -> Function {
    let functions = report["functions"].as_array().expect("functions");
    let group = functions.iter().find(|group| group["name"] == name).unwrap_or_else(|| panic!("{name} did not run"));
    let classes = |pointer: &str| {
        let value = group.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {group}"));
        let [exact, truncated, flagged, wrong] =
            ["exact", "truncated", "flagged", "wrong"].map(|class| number(value, class));
        Classes { exact, truncated, flagged, wrong }
    };
    Function {
        checked: number(group, "checked"),
        fp: classes("/leaf/0"),
        dwarf: classes("/leaf/1"),
        dwarf_broke: classes("/broke/1"),
    }
}

/// Checks that the function ran, and that all its stacks are exact under `dwarf`.
fn assert_exact(report: &Value, name: &str) {
    let function = function(report, name);
    assert!(function.checked > 0, "{name} did not run");
    assert_eq!(function.dwarf.exact, function.checked, "{name}: {:?}", function.dwarf);
}

/// Checks that every strategy's counts add up, and that hardly any stack is wrong without a flag.
fn assert_sound(report: &Value) {
    let checked = number(report, "checked");
    assert!(checked > 1000, "{report}");
    for name in ["fp", "dwarf"] {
        let verdicts = strategy(report, name);
        let parts = ["truncated", "flagged", "wrong"].map(|class| total(&verdicts[class]));
        assert_eq!(number(verdicts, "exact") + parts.iter().sum::<u64>(), checked, "{verdicts}");
    }
    // One in a thousand: rows are wrong for an instruction or two where a program jumps out of frames, and the checked
    // instructions are chosen at random.
    let wrong = total(&strategy(report, "dwarf")["wrong"]);
    assert!(wrong * 1000 <= checked, "{wrong} of {checked} wrong without a flag: {}", strategy(report, "dwarf"));
}

const RECURSION: &str = r"
#include <stdlib.h>
static int __attribute__((noinline)) fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static int by(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void) {
    int numbers[8];
    for (int i = 0; i < 8; i++) numbers[i] = fib(7) - i;
    qsort(numbers, 8, sizeof numbers[0], by);
    return numbers[0] != 6;
}
";

/// Check that recursion and callbacks from a library are exact at every instruction, and that two runs give the same
/// figures.
#[test]
fn recursion_is_exact_and_reproducible() {
    let program = Program::compile("gcc", &["-O1", "-g", "-static"], "c", RECURSION);
    let first = program.verify(&[]);
    assert_sound(&first);
    for name in ["fib", "by", "main"] {
        assert_exact(&first, name);
    }
    assert_eq!(first["run"]["ended"], "exited with status 0");
    assert_eq!(first["run"]["instructions"], first["checked"], "all are checked unless asked otherwise");
    assert_eq!(first, program.verify(&[]), "the same input gives the same figures");
}

/// Check that `--every` checks one in N, that `--skip` skips, and that `--max-instructions` ends the program.
#[test]
fn a_part_can_be_checked() {
    let program = Program::compile("gcc", &["-O1", "-static"], "c", RECURSION);
    let report = program.verify(&["--every", "10", "--skip", "100", "--max-instructions", "5000"]);
    assert_eq!(number(&report["run"], "instructions"), 5000);
    assert_eq!(number(&report, "checked") + total(&report["excluded"]), 490);
    assert!(report["run"]["ended"].as_str().is_some_and(|ended| ended.starts_with("killed after 5000")), "{report}");
}

/// Check that frame pointers are found wrong where a compiler omits them in leaf functions in spite of its option, that
/// the flag says so, and that call frame information is right there.
#[test]
fn frame_pointers_drop_the_caller_of_a_leaf() {
    let source = r#"
        int __attribute__((noipa)) leaf(int n) {
            int left = 0;
            for (int i = 0; i < n; i++) { left ^= i; __asm__ volatile("" : "+r"(left)); }
            return left & 0;
        }
        int __attribute__((noipa)) caller(int n) { return leaf(n) + 1; }
        int main(void) { int sum = 0; for (int i = 0; i < 50; i++) sum += caller(i); return sum != 50; }
    "#;
    let flags = ["-O2", "-fno-omit-frame-pointer", "-static"];
    let report = Program::compile("gcc", &flags, "c", source).verify(&[]);
    assert_sound(&report);
    let leaf = function(&report, "leaf");
    assert!(leaf.checked > 1000);
    assert_eq!((leaf.fp.flagged, leaf.fp.exact), (leaf.checked, 0), "{:?}", leaf.fp);
    assert_eq!(leaf.dwarf.exact, leaf.checked);
    assert!(number(&strategy(&report, "fp")["flagged"], "leaf_skip_suspect") >= leaf.checked);
    let skips = &strategy(&report, "fp")["leaf_skips"];
    assert!(number(skips, "both") >= leaf.checked, "{skips}");
}

/// Check that signal handlers are followed in and out, that stacks of handlers on the same stack are exact, and that
/// those on a stack of their own are truncated, not wrong.
#[test]
fn signal_handlers_are_followed() {
    let source = r"
        #include <signal.h>
        #include <stdlib.h>
        static volatile int seen;
        static void plain(int signal) { seen += signal; }
        static void apart(int signal) { seen += signal; }
        static void __attribute__((noinline)) raiser(int signal) { raise(signal); }
        int main(void) {
            stack_t alternate = { .ss_sp = malloc(65536), .ss_size = 65536 };
            sigaltstack(&alternate, 0);
            sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = plain }, 0);
            sigaction(SIGUSR2, &(struct sigaction){ .sa_handler = apart, .sa_flags = SA_ONSTACK }, 0);
            for (int i = 0; i < 3; i++) { raiser(SIGUSR1); raiser(SIGUSR2); }
            return seen != 3 * (SIGUSR1 + SIGUSR2);
        }
    ";
    let report = Program::compile("gcc", &["-O1", "-static"], "c", source).verify(&[]);
    assert_sound(&report);
    assert_eq!(report["run"]["ended"], "exited with status 0");
    assert_eq!(number(&report["run"]["events"], "signals"), 6);
    assert_eq!(number(&report["run"]["events"], "signal_returns"), 6);
    for name in ["plain", "raiser", "main"] {
        assert_exact(&report, name);
    }
    let apart = function(&report, "apart");
    assert_eq!(apart.dwarf.truncated, apart.checked, "the chunk holds the other stack only: {:?}", apart.dwarf);
    assert!(number(&strategy(&report, "dwarf")["truncated"], "stack_switch") >= apart.checked);
}

/// Check that frames left by longjmp and by a C++ exception are removed, and that what runs afterwards is exact.
#[test]
fn jumps_and_exceptions_leave_frames() {
    let source = r"
        #include <csetjmp>
        static jmp_buf target;
        static int volatile depth;
        __attribute__((noinline)) void after() { depth = depth + 1; }
        __attribute__((noinline)) void deep(int n, bool jumps) {
            if (n > 0) { deep(n - 1, jumps); depth = depth + 1; return; }
            if (jumps) longjmp(target, 1);
            throw 7;
        }
        __attribute__((noinline)) void jumper() { if (setjmp(target) == 0) deep(5, true); else after(); }
        __attribute__((noinline)) void thrower() { try { deep(5, false); } catch (int) { after(); } }
        int main() { jumper(); thrower(); return depth != 2; }
    ";
    // Symbol look-up at start with a shared libstdc++ would take 1.5 million instructions.
    let flags = ["-O1", "-fno-optimize-sibling-calls", "-static-libgcc", "-static-libstdc++"];
    let report = Program::compile("g++", &flags, "cpp", source).verify(&[]);
    assert_sound(&report);
    assert_eq!(report["run"]["ended"], "exited with status 0");
    assert!(number(&report["run"]["events"], "unwinds") >= 2, "{}", report["run"]);
    for name in ["after()", "jumper()", "thrower()", "main"] {
        assert_exact(&report, name);
    }
}

/// Check that a tail call leaves no frame that could be missing.
#[test]
fn tail_calls_leave_no_frame() {
    let source = r"
        static int volatile state;
        int __attribute__((noinline)) target(int n) { state += n; return state; }
        int __attribute__((noinline)) passing_on(int n) { return target(n + 1); }
        int main(void) { for (int i = 0; i < 20; i++) passing_on(i); return state != 210; }
    ";
    let report = Program::compile("clang", &["-O2", "-static"], "c", source).verify(&[]);
    assert_sound(&report);
    assert_exact(&report, "target");
    assert_exact(&report, "passing_on");
}

/// Check that assembly without call frame information truncates a stack, and that wrong information is found, with the
/// function, the row, and both stacks.
#[test]
fn wrong_call_frame_information_is_found() {
    let source = r#"
        __asm__(".text\n.globl silent\n.type silent,@function\nsilent:\n push %rbx\n mov $9,%eax\n pop %rbx\n ret\n"
                ".size silent,.-silent\n"
                ".globl lying\n.type lying,@function\nlying:\n .cfi_startproc\n"
                " push %rdi\n"          /* no .cfi_adjust_cfa_offset: the word at sp is taken for the return address */
                " mov $8,%eax\n pop %rdi\n ret\n .cfi_endproc\n.size lying,.-lying\n");
        int silent(void);
        int lying(void *);
        int main(void);
        int __attribute__((noinline)) caller(void) { return silent() + lying((char *)main + 4); }
        int main(void) { return caller() != 17; }
    "#;
    let program = Program::compile("gcc", &["-O1", "-static"], "c", source);
    let report = program.verify(&["--show", "50"]);
    assert_sound(&report);
    let silent = function(&report, "silent");
    assert_eq!(silent.dwarf.truncated, silent.checked, "{:?}", silent.dwarf);
    assert!(number(&strategy(&report, "dwarf")["truncated"], "no_cfi") >= silent.checked);
    let lying = function(&report, "lying");
    let mistaken = lying.dwarf.wrong + lying.dwarf.flagged;
    assert_eq!((mistaken, lying.dwarf.exact), (2, 2), "wrong between push and pop: {:?}", lying.dwarf);
    assert_eq!(lying.dwarf_broke.wrong + lying.dwarf_broke.flagged, 2);
    let shown = report["disagreements"].as_array().expect("disagreements");
    let lie = shown.iter().find(|shown| shown["culprit"].as_str().is_some_and(|culprit| culprit.starts_with("lying")));
    let lie = lie.unwrap_or_else(|| panic!("not shown: {shown:?}"));
    assert!(lie["row"].as_str().is_some_and(|row| row.contains("rsp+8")), "{lie}");
    assert!(lie["truth"][1]["name"].as_str().is_some_and(|name| name.starts_with("caller")), "{lie}");
    let got = &lie["stacks"].as_array().expect("stacks")[1];
    assert_eq!(got["strategy"], "dwarf");
    assert_ne!(got["frames"][1]["address"], lie["truth"][1]["address"], "{lie}");
}

/// Check that every thread has a stack of its own, and that locks between threads do not block stepping.
#[test]
fn threads_have_their_own_stacks() {
    let source = r"
        #include <pthread.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static int sum;
        static int __attribute__((noinline)) step(int n) { return n ? 1 + step(n - 1) : 0; }
        static void *work(void *unused) {
            for (int i = 0; i < 20; i++) {
                pthread_mutex_lock(&lock); sum += step(5); pthread_mutex_unlock(&lock);
            }
            return unused;
        }
        int main(void) {
            pthread_t threads[3];
            for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, 0);
            for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
            return sum != 300;
        }
    ";
    let flags = ["-O1", "-fno-optimize-sibling-calls", "-static", "-pthread"];
    let report = Program::compile("gcc", &flags, "c", source).verify(&[]);
    assert_sound(&report);
    assert_eq!(report["run"]["ended"], "exited with status 0");
    assert_eq!(number(&report["run"]["events"], "threads"), 4);
    assert_exact(&report, "step");
    assert_exact(&report, "work");
}

/// Check that a thread that waits for another one, which was in a system call by then, does not keep it from going on.
#[test]
fn threads_in_system_calls_go_on() {
    let source = r"
        #include <pthread.h>
        #include <unistd.h>
        static int __attribute__((noinline)) step(int n) { return n ? 1 + step(n - 1) : 0; }
        static void *work(void *sum) { sleep(2); *(int *)sum = step(5); return 0; }
        int main(void) {
            pthread_t thread;
            int in_thread = 0, sum = 0;
            pthread_create(&thread, 0, work, &in_thread);
            // More than a turn, so that the thread sleeps when it is waited for.
            for (int i = 0; i < 300; i++) sum += step(5);
            pthread_join(thread, 0);
            return in_thread != 5 || sum != 1500;
        }
    ";
    let flags = ["-O1", "-fno-optimize-sibling-calls", "-static", "-pthread"];
    let program = Program::compile("gcc", &flags, "c", source);
    for options in [&[][..], &["--leap", "20", "--window", "60"]] {
        let report = program.verify(options);
        assert_sound(&report);
        assert_eq!(report["run"]["ended"], "exited with status 0");
        assert_exact(&report, "step");
    }
}

/// Check that return addresses replaced on the stack are excluded and counted, and that the rest is exact.
#[test]
fn replaced_return_addresses_are_excluded() {
    let source = r"
        static int volatile state;
        static void __attribute__((noinline)) target(int n) { state += n; }
        int main(void) {
            void (*volatile pointer)(int) = target;
            for (int i = 0; i < 10; i++) pointer(i);
            return state != 45;
        }
    ";
    let flags = ["-O1", "-mindirect-branch=thunk", "-fcf-protection=none", "-static"];
    let report = Program::compile("gcc", &flags, "c", source).verify(&[]);
    assert_sound(&report);
    assert!(number(&report["excluded"], "return_address_overwritten") >= 10, "{}", report["excluded"]);
    assert_exact(&report, "target");
}

/// Check that the program is followed through exec, and that child processes are detached and counted.
#[test]
fn exec_is_followed_and_processes_are_let_go() {
    let program = Program::compile("gcc", &["-O1", "-static"], "c", RECURSION);
    let path = program.path();
    let script = format!("/bin/true; /bin/true; exec {}", path.display());
    let ran = verify(&["--strategies", "fp,dwarf"], &["/bin/sh", "-c", &script]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let report = json(&ran);
    assert_eq!(report["run"]["ended"], "exited with status 0");
    assert_eq!(number(&report["run"]["events"], "execs"), 1);
    assert_eq!(number(&report["run"]["events"], "processes_not_followed"), 2);
    assert_exact(&report, "fib");
}

/// Check that the command's output is separate from the report, and that its status is reported.
#[test]
fn output_of_the_command_stays_apart() {
    let ran = verify(&["--strategies", "dwarf", "--leap", "1000"], &["/bin/echo", "spoken"]);
    assert_eq!(json(&ran)["run"]["ended"], "exited with status 0");
    assert!(ran.stderr.contains("spoken") && !ran.stdout.contains("spoken\n"), "{ran:?}");
    let folder = tempfile::tempdir().expect("a folder for the report");
    let file = folder.path().join("report.json");
    let file = file.to_str().expect("a path of plain characters");
    let ran = verify(&["--strategies", "dwarf", "--leap", "1000", "-o", file], &["/bin/echo", "spoken"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (0, "spoken\n"), "{ran:?}");
    assert!(Path::new(file).exists());
}

/// Check that missed limits fail with a message, and that invalid options are refused before anything runs.
#[test]
fn missed_limits_and_invalid_options_fail() {
    let program = Program::compile("gcc", &["-O2", "-static"], "c", RECURSION);
    let path = program.path();
    let path = path.to_str().expect("a path of plain characters");
    let ran = verify(&["--strategies", "fp", "--of", "fp", "--min-exact", "99.5", "--every", "50"], &[path]);
    assert_eq!(ran.status, 1, "code without frame pointers cannot be exact: {}", ran.stderr);
    assert!(ran.stderr.contains("fp: ") && ran.stderr.contains("required: 99.5 %"), "{}", ran.stderr);
    let ran = verify(&["--strategies", "dwarf", "--max-wrong", "0.05", "--every", "50"], &[path]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    for options in [&["--strategies", "guess"][..], &["--every", "0"], &["--strategies", "fp", "--show", "1"]] {
        let ran = verify(options, &[path]);
        assert_eq!(ran.status, 2, "{options:?}: {}", ran.stderr);
    }
    let ran = verify(&[], &["/nowhere/at/all"]);
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("/nowhere/at/all"), "{}", ran.stderr);
}

/// Check that thunks for returns and for indirect calls, which push return addresses without a call, affect only their
/// own stacks, in steps and in leaps.
#[test]
fn return_thunks_are_followed() {
    let source = r"
        static int volatile state;
        static int __attribute__((noinline)) inner(int n) { state += n; return state; }
        static int __attribute__((noinline)) middle(int n) { return inner(n) + 1; }
        int main(void) {
            int (*volatile pointer)(int) = middle;
            for (int i = 0; i < 40; i++) pointer(i);
            return state != 780;
        }
    ";
    let flags = ["-O1", "-mfunction-return=thunk", "-mindirect-branch=thunk", "-fcf-protection=none", "-static"];
    let program = Program::compile("gcc", &flags, "c", source);
    for options in [&[][..], &["--leap", "10", "--window", "40"]] {
        let report = program.verify(options);
        assert_eq!(report["run"]["ended"], "exited with status 0", "{options:?}");
        assert!(number(&report["excluded"], "return_address_overwritten") >= 5, "{options:?}: {}", report["excluded"]);
        for name in ["inner", "middle"] {
            assert_exact(&report, name);
        }
        // A thunk calls a place of its own that nothing returns to. Its rows omit that frame; the oracle does not.
        for group in report["functions"].as_array().expect("functions") {
            let is_thunk = group["name"].as_str().is_some_and(|name| name.starts_with("__x86_"));
            assert!(is_thunk || number(&group["leaf"][1], "wrong") == 0, "{options:?}: {group}");
        }
    }
}

/// Check that a recording of what is checked has a sample of each instruction, and that the report finds the oracle's
/// shares in it.
#[test]
fn what_is_checked_can_be_recorded() {
    let source = "static int __attribute__((noinline)) leaf(int n) { return n * 3 + 1; }
int main(void) { int sum = 0; for (int i = 0; i < 50; i++) sum += leaf(i); return sum & 1; }";
    let program = Program::compile("cc", &["-O1"], "c", source);
    let recording = program.folder.path().join("checked.fpprof");
    let verified = program.verify(&["--recording", recording.to_str().expect("a path")]);
    let mut report = crate::support::fpprof();
    let ran = crate::support::ran(report.args(["report", "--json", "--strategies", "fp,dwarf"]).arg(&recording));
    let report = json(&ran);
    assert_eq!(number(&report, "recorded"), number(&verified, "checked"), "{}", ran.stderr);
    assert_eq!(report["environment"]["mode"], "dwarf,16777216");
    let dwarf = strategy(&verified, "dwarf");
    let recognised = number(dwarf, "exact") - number(dwarf, "roots_missed");
    assert_eq!(number(&report["strategies"]["dwarf"], "complete"), recognised);
    // Where call frame information ends a stack, frame pointers may end it as well.
    let relations = &report["agreements"][0]["relations"];
    let (exact, truncated) = (number(strategy(&verified, "fp"), "exact"), number(&verified, "checked") - recognised);
    assert!((exact..=exact + truncated).contains(&number(relations, "same")), "{exact}, {truncated}: {relations}");
}
