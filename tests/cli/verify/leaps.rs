//! Leaps from one window of steps to the next, and the ends of programs that would not end.

use super::{Program, assert_exact, assert_sound, json, strategy, total, verify};
use crate::support::{Ended, cpu_time, number, until_enough, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

const EVERYTHING: &str = r#"
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
extern char **environ;
static volatile int seen;
static jmp_buf target;
static ucontext_t back, there;
static char stack[65536], alternate[65536];
static int __attribute__((noinline)) fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static void handler(int signal) { seen += fib(5) == 5 ? signal : 0; }
static void __attribute__((noinline)) raiser(int signal) { raise(signal); }
static void __attribute__((noinline)) deep(int n) { if (n == 0) longjmp(target, 1); deep(n - 1); seen = seen + 1; }
static void __attribute__((noinline)) jumper(void) { if (setjmp(target) == 0) deep(5); }
static void routine(void) { for (;;) { fib(6); swapcontext(&there, &back); } }
static int __attribute__((noinline)) child(void) {
    int status;
    pid_t pid = fork();
    if (pid == 0) _exit(fib(10) == 55 ? 7 : 1);
    return waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7;
}
static int __attribute__((noinline)) sharing_child(void) {
    int status;
    pid_t pid = vfork();
    if (pid == 0) _exit(fib(10) == 55 ? 7 : 1);
    return waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7;
}
static int __attribute__((noinline)) spawned(void) {
    char *arguments[] = { "true", 0 };
    int status;
    pid_t pid;
    return !posix_spawn(&pid, "/bin/true", 0, 0, arguments, environ) && waitpid(pid, &status, 0) == pid && !status;
}
static int by(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void) {
    stack_t other = { .ss_sp = alternate, .ss_size = sizeof alternate };
    sigaltstack(&other, 0);
    sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = handler }, 0);
    sigaction(SIGUSR2, &(struct sigaction){ .sa_handler = handler, .sa_flags = SA_ONSTACK }, 0);
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    makecontext(&there, routine, 0);
    for (int i = 0; i < 8; i++) {
        int numbers[16];
        struct timespec now;
        for (int j = 0; j < 16; j++) numbers[j] = fib(8) * j % 11;
        qsort(numbers, 16, sizeof numbers[0], by);
        raiser(SIGUSR1);
        raiser(SIGUSR2);
        jumper();
        swapcontext(&back, &there);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (!child() || !sharing_child() || !spawned()) return 1;
    }
    return seen != 8 * (SIGUSR1 + SIGUSR2);
}
"#;

/// Check that a program with leaps behaves as usual: signals, jumps, coroutines, children with and without its memory;
/// and that its true stack is always known.
#[test]
fn leaps_follow_everything() {
    let program = Program::compile("gcc", &["-O1", "-fno-optimize-sibling-calls"], "c", EVERYTHING);
    let report = program.verify(&["--leap", "3", "--window", "10"]);
    assert_sound(&report);
    assert_eq!(report["run"]["ended"], "exited with status 0", "{}", report["run"]);
    let events = &report["run"]["events"];
    for (name, n) in [("signals", 16), ("signal_returns", 16), ("processes_not_followed", 24)] {
        assert_eq!(number(events, name), n, "{name} of {events}");
    }
    assert!(number(events, "stack_switches") >= 16 && number(events, "turns_passed") > 1000, "{events}");
    // Without `fib`, which runs on the alternate stack too.
    for name in ["raiser", "jumper", "routine", "child", "sharing_child", "spawned", "by"] {
        assert_exact(&report, name);
    }
    let all = program.verify(&[]);
    assert_sound(&all);
    assert_eq!(number(&all["run"]["events"], "turns_passed"), 0, "no leaps unless asked for");
    let share = |report: &Value| {
        let excluded = number(report, "checked") + total(&report["excluded"]);
        total(&report["excluded"]) * 1000 / excluded
    };
    assert!(share(&report) <= share(&all) + 20, "{} {}", report["excluded"], all["excluded"]);
}

/// Check that threads which wait for each other continue through leaps, even if they spin, with or without telling the
/// processor.
#[test]
fn leaping_threads_do_not_wait_for_ever() {
    let source = r"
        #include <pthread.h>
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static volatile int sum, turn;
        static int __attribute__((noinline)) step(int n) { return n ? 1 + step(n - 1) : 0; }
        static void *work(void *number) {
            for (int i = 0; i < 20; i++) {
                while (turn != (int)(long)number) SPIN;
                pthread_mutex_lock(&lock); sum += step(5); pthread_mutex_unlock(&lock);
                turn = (turn + 1) % 3;
            }
            return 0;
        }
        int main(void) {
            pthread_t threads[3];
            for (long i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, (void *)i);
            for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
            return sum != 300;
        }
    ";
    for spin in ["-DSPIN=__builtin_ia32_pause()", "-DSPIN="] {
        let flags = ["-O1", "-fno-optimize-sibling-calls", "-pthread", spin];
        let report = Program::compile("gcc", &flags, "c", source).verify(&["--leap", "20", "--window", "60"]);
        assert_sound(&report);
        assert_eq!(report["run"]["ended"], "exited with status 0");
        assert_eq!(number(&report["run"]["events"], "threads"), 4);
        assert_eq!(number(&report["run"]["events"], "stops_ignored"), 0);
        assert_exact(&report, "step");
    }
}

/// Check that a system call that a signal interrupts is repeated or fails, as without `verify`, although what follows it is
/// a transfer, and that another thread goes on meanwhile.
#[test]
fn interrupted_system_calls_are_repeated() {
    let source = r#"
        #include <errno.h>
        #include <pthread.h>
        #include <signal.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        __asm__(".globl raw_read\nraw_read: .cfi_startproc\n xor %eax,%eax\n syscall\n ret\n.cfi_endproc\n");
        extern long raw_read(int, void *, size_t);
        static volatile int seen;
        static int ends[2];
        static void handler(int signal) { seen += signal == SIGCHLD; }
        static void *work(void *unused) { usleep(900000); return write(ends[1], "x", 1) == 1 ? unused : 0; }
        int main(int argc, char **argv) {
            int has_handler = argv[1][0] != 'i', restarts = argv[1][0] != 'f';
            struct sigaction action = { .sa_handler = handler, .sa_flags = restarts ? SA_RESTART : 0 };
            pthread_t thread;
            char byte = 0;
            if (pipe(ends) || (has_handler && sigaction(SIGCHLD, &action, 0))) return 1;
            pthread_create(&thread, 0, work, 0);
            // Its end interrupts the call.
            pid_t child = fork();
            if (child == 0) { usleep(200000); _exit(0); }
            long got = raw_read(ends[0], &byte, 1);
            waitpid(child, 0, 0);
            pthread_join(thread, 0);
            return got != (restarts ? 1 : -EINTR) || seen != has_handler;
        }
    "#;
    let program = Program::compile("gcc", &["-O1", "-static", "-pthread"], "c", source);
    let path = program.path();
    for (signal, n_signals) in [("ignored", 0), ("restarts", 1), ("fails", 1)] {
        for options in [&[][..], &["--leap", "20", "--window", "60"], &["--leap", "500", "--window", "5"]] {
            let report = json(&verify(options, &[path.to_str().expect("a path of plain characters"), signal]));
            assert_eq!(total(&strategy(&report, "dwarf")["wrong"]), 0, "{signal} {options:?}: {report}");
            assert_eq!(report["run"]["ended"], "exited with status 0", "{signal} {options:?}");
            assert_eq!(number(&report["run"]["events"], "signals"), n_signals, "{signal} {options:?}");
        }
    }
}

/// Check that SIGTERM ends the check of a program that is in a loop without calls, or in a system call that does not
/// return.
#[test]
fn endless_programs_can_be_interrupted() {
    let looping = "_start: jmp _start";
    let waiting = "_start: mov $34,%eax\n syscall";
    for (code, options) in [(looping, &["--leap", "20"][..]), (waiting, &["--leap", "20"]), (waiting, &[])] {
        let source = format!(".globl _start\n{code}\n.section .note.GNU-stack,\"\"\n");
        let program = Program::compile("gcc", &["-nostdlib", "-static"], "S", &source);
        let mut verify = crate::support::fpprof();
        verify.arg("verify").args(options).args(["--json", "--"]).arg(program.path()).stdout(Stdio::piped());
        let mut verify = Ended(verify.spawn().expect("it starts"));
        let children = format!("/proc/{0}/task/{0}/children", verify.id());
        let is_there = || {
            let child = std::fs::read_to_string(&children).unwrap_or_default();
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
            stat.contains("(prog) S ")
                || (stat.contains("(prog)") && cpu_time(child.trim()) > Duration::from_millis(50))
        };
        wait_until("the program runs or waits", is_there);
        kill(Pid::from_raw(verify.id().cast_signed()), Signal::SIGTERM).expect("it runs");
        let mut report = String::new();
        verify.stdout.take().expect("its output").read_to_string(&mut report).expect("text");
        assert!(report.contains("instructions: interrupted"), "{code} {options:?}: {report}");
    }
}

/// Check that threads which end while another one is stepped do not affect it: a former bug resumed it one byte too
/// late.
#[test]
fn leaps_survive_threads_that_end() {
    let source = include_str!("../../../workloads/many/threads.c");
    let program = Program::compile("gcc", &["-O2", "-pthread", "-DTHREADS=1000"], "c", source);
    let report = program.verify(&["--leap", "1000"]);
    assert_sound(&report);
    assert_eq!(report["run"]["ended"], "exited with status 0");
    assert_eq!(number(&report["run"]["events"], "threads"), 1001);
    assert_exact(&report, "fib");
}

/// Check that libraries loaded in turn at one address, with breakpoints in them, are distinguished.
#[test]
fn leaps_survive_libraries_that_go() {
    let all = fpprof_workloads::programs();
    let dlopen = all.iter().find(|program| program.name == "dlopen").expect("it is there");
    let folder = tempfile::tempdir().expect("a folder for the program");
    let built = fpprof_workloads::build(dlopen, folder.path()).expect("the program can be built");
    let built = built.to_str().expect("a path of plain characters");
    let options = ["--strategies", "fp,dwarf", "--leap", "50", "--window", "50"];
    until_enough("libraries that come and go", |seconds| {
        let ran = verify(&options, &[built, &seconds.to_string()]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        let report = json(&ran);
        // The program exits with another status unless the libraries had the same address.
        assert_eq!(report["run"]["ended"], "exited with status 0");
        let is_enough = number(&report["run"]["events"], "mapping_changes") >= 7 && number(&report, "checked") > 1000;
        is_enough.then(|| assert_sound(&report))
    });
}
