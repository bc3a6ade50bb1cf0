//! Stacks of coroutines, and frames that set the stack pointer.

use super::{Program, assert_exact, assert_sound, function};
use crate::support::number;

/// Check that coroutines are followed from stack to stack, each with its own root.
#[test]
fn coroutines_are_followed() {
    let source = r"
        #include <stdlib.h>
        #include <ucontext.h>
        static ucontext_t back, there;
        static volatile int turns;
        static void __attribute__((noinline)) inner(void) { turns = turns + 1; swapcontext(&there, &back); }
        static void routine(void) { for (int i = 0; i < 4; i++) inner(); }
        static void __attribute__((noinline)) switcher(void) { swapcontext(&back, &there); turns = turns + 10; }
        int main(void) {
            getcontext(&there);
            there.uc_stack.ss_sp = malloc(65536);
            there.uc_stack.ss_size = 65536;
            there.uc_link = &back;
            makecontext(&there, routine, 0);
            for (int i = 0; i < 5; i++) switcher();
            return turns != 54;
        }
    ";
    let flags = ["-O1", "-fno-optimize-sibling-calls", "-static"];
    let report = Program::compile("gcc", &flags, "c", source).verify(&[]);
    assert_sound(&report);
    assert_eq!(report["run"]["ended"], "exited with status 0");
    assert!(number(&report["run"]["events"], "stack_switches") >= 10, "{}", report["run"]);
    for name in ["inner", "routine", "switcher", "main"] {
        assert_exact(&report, name);
    }
}

/// Check that coroutine stacks next to each other in one array are distinguished, switched by a few instructions of the
/// program, as coroutine libraries do it; and that a stack that was moved is not judged.
#[test]
fn coroutines_in_one_mapping_are_distinguished() {
    let source = r#"
        static char stacks[4][2048] __attribute__((aligned(16)));
        static void *here, *there[4];
        static volatile int turns;
        void change(void **from, void *to);
        __asm__(".globl change\nchange: .cfi_startproc\npush %rbp\n.cfi_adjust_cfa_offset 8\npush %rbx\n"
                ".cfi_adjust_cfa_offset 8\nmov %rsp,(%rdi)\nmov %rsi,%rsp\npop %rbx\n.cfi_adjust_cfa_offset -8\n"
                "pop %rbp\n.cfi_adjust_cfa_offset -8\nret\n.cfi_endproc\n"
                "nop\nfinished: .cfi_startproc\n.cfi_undefined %rip\nud2\n.cfi_endproc");
        extern char finished[];
        static int __attribute__((noinline)) fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
        static void __attribute__((noinline)) inner(int i) { turns += fib(4) == 3; change(&there[i], here); }
        static void __attribute__((noinline)) work(int i) { for (;;) inner(i); }
        static void first(void) { work(0); }
        static void second(void) { work(1); }
        static void third(void) { work(2); }
        static void fourth(void) { work(3); }
        int main(void) {
            void (*entries[])(void) = { first, second, third, fourth };
            for (int i = 0; i < 4; i++) {
                void **top = (void **)(stacks[i] + sizeof stacks[i]) - 2;
                *top = finished;
                *--top = (void *)entries[i];
                there[i] = top - 2;
            }
            for (int turn = 0; turn < 50; turn++)
                for (int i = 0; i < 4; i++) change(&here, there[i]);
            return turns != 200;
        }
    "#;
    let flags = ["-O1", "-fno-optimize-sibling-calls", "-fno-pie", "-no-pie"];
    for options in [&[][..], &["--leap", "3", "--window", "10"]] {
        let report = Program::compile("gcc", &flags, "c", source).verify(options);
        assert_sound(&report);
        assert_eq!(report["run"]["ended"], "exited with status 0");
        assert_eq!(number(&report["run"]["events"], "stack_switches"), 400, "{}", report["run"]);
        for name in ["inner", "work", "main"] {
            assert_exact(&report, name);
        }
    }
}

/// Check that frames of variable size keep their callers, even if a compiler sets the stack pointer for them.
#[test]
fn frames_of_variable_size_are_followed() {
    let source = r"
        static volatile int sum;
        static void __attribute__((noinline)) fill(char *room, int n) { for (int i = 0; i < n; i++) room[i] = i; }
        static void __attribute__((noinline)) roomy(int n) {
            for (int i = 1; i < n; i++) { char room[i * 700]; fill(room, i); sum += room[i - 1]; }
        }
        int main(void) { for (int i = 2; i < 9; i++) roomy(i); return sum == 0; }
    ";
    for compiler in ["gcc", "clang"] {
        let report = Program::compile(compiler, &["-O1", "-fno-optimize-sibling-calls"], "c", source).verify(&[]);
        assert_sound(&report);
        assert_exact(&report, "fill");
        assert!(function(&report, "roomy").checked > 100, "{compiler}");
    }
}
