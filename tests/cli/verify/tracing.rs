//! What a traced program must not notice: signals without names, flags, children, and memory that is protected.

use super::{Program, assert_exact, json, strategy, total, verify};
use serde_json::Value;

/// Steps only, windows with leaps between them, and hardly anything but leaps.
const PACES: [&[&str]; 3] = [&[], &["--leap", "20", "--window", "60"], &["--leap", "500", "--window", "5"]];

/// Runs a C program with an argument at each pace: it must succeed, and unwinding by call frame information must be right.
/// Returns the reports.
fn assert_unnoticed(source: &str, arguments: &[&str], paces: &[&[&str]]) -> Vec<Value> {
    let program = Program::compile("gcc", &["-O1", "-static", "-pthread"], "c", source);
    let path = program.path();
    let mut reports = Vec::new();
    for argument in arguments {
        for pace in paces {
            let report = json(&verify(pace, &[path.to_str().expect("a path of plain characters"), argument]));
            let ended = report.pointer("/run/ended").and_then(|ended| ended.as_str());
            assert_eq!(ended, Some("exited with status 0"), "{argument} {pace:?}");
            assert_eq!(total(&strategy(&report, "dwarf")["wrong"]), 0, "{argument} {pace:?}: {report}");
            reports.push(report);
        }
    }
    reports
}

/// Check that real-time signals, which have no names, and signals that would stop a program without a handler arrive; and
/// a SIGTRAP that a process sends.
#[test]
fn signals_arrive() {
    let source = r#"
        #include <signal.h>
        #include <stdlib.h>
        #include <unistd.h>
        static volatile int seen;
        static void handler(int signal) { seen = signal; }
        int main(int argc, char **argv) {
            int number = argv[1][0] == 'r' ? SIGRTMIN + 3 : argv[1][0] == 's' ? SIGTSTP : SIGTRAP;
            signal(number, handler);
            kill(getpid(), number);
            return seen != number;
        }
    "#;
    assert_unnoticed(source, &["real-time", "stop", "trap"], &PACES);
}

/// Check that a program that saves and loads its flags, as libraries do that ask for a processor's abilities, does not find
/// the trap flag in them, and that its children are not killed by it.
#[test]
fn the_trap_flag_is_not_seen() {
    let source = r#"
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            unsigned long flags;
            for (int i = 0; i < 3; i++)
                __asm__ volatile("sub $128, %%rsp; pushfq; mov (%%rsp), %0; popfq; add $128, %%rsp" : "=r"(flags) :: "cc");
            pid_t child = fork();
            if (child == 0) { for (volatile int i = 0; i < 100; i++); _exit(7); }
            int status;
            waitpid(child, &status, 0);
            return (flags & 0x100) != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 7;
        }
    "#;
    assert_unnoticed(source, &[""], &PACES);
}

/// Check that of two signals that arrive before the flags are loaded none is lost.
#[test]
fn signals_before_flags_are_loaded_arrive() {
    let source = r#"
        #include <signal.h>
        #include <sys/syscall.h>
        static volatile int n_first, n_second;
        static void first(int signal) { n_first += signal == SIGUSR1; }
        static void second(int signal) { n_second += signal == SIGUSR2; }
        int main(void) {
            unsigned long both = 1ul << (SIGUSR1 - 1) | 1ul << (SIGUSR2 - 1);
            long got = SYS_rt_sigprocmask;
            register long size __asm__("r10") = 8;
            sigset_t set;
            signal(SIGUSR1, first);
            signal(SIGUSR2, second);
            sigemptyset(&set);
            sigaddset(&set, SIGUSR1);
            sigaddset(&set, SIGUSR2);
            sigprocmask(SIG_BLOCK, &set, 0);
            raise(SIGUSR1);
            raise(SIGUSR2);
            __asm__ volatile("sub $128, %%rsp; pushfq; syscall; popfq; add $128, %%rsp"
                             : "+a"(got) : "D"(SIG_UNBLOCK), "S"(&both), "d"(0), "r"(size) : "rcx", "r11", "memory", "cc");
            return got != 0 || n_first != 1 || n_second != 1;
        }
    "#;
    assert_unnoticed(source, &[""], &PACES);
}

/// Check that children are not killed by breakpoints, whichever flags of `clone` make them: with the same memory or a copy; also
/// if they are made in the first leap.
#[test]
fn children_of_any_flags_go_on() {
    let source = r#"
        #define _GNU_SOURCE
        #include <sched.h>
        #include <signal.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static char stack[65536] __attribute__((aligned(16)));
        static int __attribute__((noinline)) next(int n) { __asm__ volatile(""); return n + 1; }
        static int child(void *unused) { volatile int n = 0; while (n < 100000) n = next(n); return 7; }
        int main(int argc, char **argv) {
            int flags[] = { 0, SIGCHLD, CLONE_VFORK | SIGCHLD, CLONE_VM | SIGCHLD, CLONE_VM | CLONE_VFORK | SIGCHLD };
            int pid = clone(child, stack + sizeof stack, flags[argv[1][0] - '0'], 0), status;
            for (volatile int n = 0; n < 300;) n = next(n);
            waitpid(pid, &status, __WALL);
            return !WIFEXITED(status) || WEXITSTATUS(status) != 7;
        }
    "#;
    let first_leap: &[&str] = &["--leap", "5000", "--window", "5"];
    assert_unnoticed(source, &["0", "1", "2", "3", "4"], &[PACES[1], PACES[2], first_leap]);
}

/// Check that no thread runs past transfers while the breakpoints are removed for another one's `vfork`, and that none is
/// led astray when they return. The tracer has priority, so that it often comes before a thread that it has just resumed.
#[test]
fn threads_go_on_beside_vfork() {
    let source = r#"
        #include <pthread.h>
        #include <spawn.h>
        #include <sys/wait.h>
        #include <unistd.h>
        extern char **environ;
        static int n_wrong;
        static int __attribute__((noinline)) next(int n) { volatile int copy = n; return copy + 1; }
        static void *work(void *unused) {
            char *arguments[] = { "/bin/sleep", "0.02", 0 };
            for (int i = 0; i < 6; i++) {
                pid_t child;
                int status;
                if (posix_spawn(&child, arguments[0], 0, 0, arguments, environ)) { n_wrong++; continue; }
                waitpid(child, &status, 0);
                n_wrong += status != 0;
                for (int n = 0; n < 200;) n = next(n);
            }
            return unused;
        }
        int main(void) {
            pthread_t threads[3];
            nice(19);
            for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, 0);
            for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
            return n_wrong;
        }
    "#;
    let seeds: Vec<String> = (1..=20).map(|seed| seed.to_string()).collect();
    let leaps: Vec<_> = seeds.iter().map(|seed| ["--leap", "1000", "--window", "5", "--seed", seed]).collect();
    for report in assert_unnoticed(source, &[""], &leaps.iter().map(|leaps| &leaps[..]).collect::<Vec<_>>()) {
        assert_eq!(report["run"]["events"]["returns_without_call"], 0, "{report}");
    }
}

/// Check that a call at the end of a stack meets the guard page, although the tracer that emulates it could write there.
#[test]
fn guard_pages_are_met() {
    let source = r#"
        #define _GNU_SOURCE
        #include <pthread.h>
        #include <signal.h>
        #include <sys/mman.h>
        #include <unistd.h>
        static char *below, alternate[65536];
        static void handler(int signal) { int n = 0; for (int i = 0; i < 4096; i++) n += below[i] != 0; _exit(n != 0); }
        static long __attribute__((noinline, optimize("no-optimize-sibling-calls"))) deep(long n) { return n ? deep(n - 1) + 1 : 1; }
        static void *work(void *unused) {
            sigaltstack(&(stack_t){ .ss_sp = alternate, .ss_size = sizeof alternate }, 0);
            return deep(4700) ? unused : 0;
        }
        int main(void) {
            char *memory = mmap(0, 4096 * 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            pthread_attr_t attributes;
            pthread_t thread;
            mprotect(memory, 4096, PROT_NONE);
            below = memory + 4096;
            mprotect(memory + 2 * 4096, 4096, PROT_NONE);
            sigaction(SIGSEGV, &(struct sigaction){ .sa_handler = handler, .sa_flags = SA_ONSTACK }, 0);
            pthread_attr_init(&attributes);
            pthread_attr_setstack(&attributes, memory + 3 * 4096, 4096 * 17);
            pthread_create(&thread, &attributes, work, 0);
            pthread_join(thread, 0);
            return 2;
        }
    "#;
    assert_unnoticed(source, &[""], &PACES[2..]);
}

/// Check that code is followed that a program has changed while it could be written, moved, or dropped.
#[test]
fn changed_code_is_followed() {
    let source = r#"
        #define _GNU_SOURCE
        #include <string.h>
        #include <sys/mman.h>
        #include <unistd.h>
        int __attribute__((noinline)) one(void) { __asm__ volatile(""); return 1; }
        int __attribute__((noinline)) two(void) { __asm__ volatile(""); return 2; }
        extern int site(void);
        extern char call_site[];
        __asm__(".balign 4096\nsite: .cfi_startproc\n sub $8,%rsp\n.cfi_adjust_cfa_offset 8\ncall_site: call one\n"
                " add $8,%rsp\n.cfi_adjust_cfa_offset -8\n ret\n.cfi_endproc\n.balign 4096");
        int main(int argc, char **argv) {
            int before = 0, after = 0, to_two = (char *)two - (call_site + 5);
            for (int i = 0; i < 100; i++) before += site();
            mprotect((void *)site, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
            memcpy(call_site + 1, &to_two, 4);
            mprotect((void *)site, 4096, PROT_READ | PROT_EXEC);
            for (int i = 0; i < 100; i++) after += site();
            if (argv[1][0] == 'm') {
                // Back and forth: the call is relative.
                void *there = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (mremap((void *)site, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, there) != there) return 2;
                if (mremap(there, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)site) != (void *)site) return 3;
                for (int i = 0; i < 100; i++) after += site() - 2;
            }
            if (argv[1][0] == 'd') {
                // The whole page is that of the file again.
                madvise((void *)site, 1, MADV_DONTNEED);
                for (int i = 0; i < 100; i++) after += site() - 1;
            }
            return before != 100 || after != 200;
        }
    "#;
    assert_unnoticed(source, &["changed", "moved", "dropped"], &PACES);
}

/// Check that the stacks of the other threads are known after the first one has ended, whose memory the kernel no longer
/// shows under its number.
#[test]
fn stacks_are_known_after_the_first_thread() {
    let source = r#"
        #include <pthread.h>
        #include <unistd.h>
        static int __attribute__((noinline)) leaf(int n) { __asm__ volatile(""); return n + 1; }
        static int __attribute__((noinline)) caller(int n) { int sum = 0; for (int i = 0; i < 50; i++) sum += leaf(n + i); return sum; }
        static void *work(void *unused) { int sum = 0; sleep(1); for (int i = 0; i < 50; i++) sum += caller(i); _exit(sum != 125000); }
        int main(void) { pthread_t thread; pthread_create(&thread, 0, work, 0); pthread_exit(0); }
    "#;
    let program = Program::compile("gcc", &["-O1", "-static", "-pthread"], "c", source);
    for pace in &PACES[..2] {
        let report = program.verify(pace);
        assert_eq!(report["run"]["ended"], "exited with status 0", "{pace:?}");
        assert_exact(&report, "leaf");
        assert_exact(&report, "caller");
    }
}

/// Check that a call of the next instruction, by which code finds its own address, is no call in leaps, either.
#[test]
fn calls_of_the_next_instruction_are_none() {
    let source = r#"
        extern long own_address(void);
        __asm__(".globl own_address\nown_address: .cfi_startproc\n call 1f\n.cfi_adjust_cfa_offset 8\n1: pop %rax\n"
                ".cfi_adjust_cfa_offset -8\n nop\n nop\n nop\n ret\n.cfi_endproc\n");
        int main(void) { for (int i = 0; i < 1000; i++) if (own_address() == 0) return 1; return 0; }
    "#;
    assert_unnoticed(source, &[""], &PACES[1..]);
}
