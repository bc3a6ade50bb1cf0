//! Go, whose run-time library manages its own stacks.

use super::{Program, assert_exact, assert_sound};
use crate::support::number;

/// Check that goroutines and what runs on the scheduler's stack are judged up to where Go ends their stacks, and that
/// the number of such ends is reported: the scheduler runs below an unrelated goroutine.
#[test]
fn go_ends_its_stacks_itself() {
    let source = r#"
        package main
        //go:noinline
        func burn(n int) int { s := 0; for i := 0; i < n; i++ { s += i * n }; return s }
        //go:noinline
        func outer(n int) int { return burn(n) + 1 }
        func main() {
            sums := make(chan int)
            for g := 0; g < 3; g++ {
                go func() { for i := 0; i < 20; i++ { sums <- outer(g + i%7) } }()
            }
            total := 0
            for i := 0; i < 60; i++ { total += <-sums }
            println(total)
        }
    "#;
    let report = Program::compile("go", &["build"], "go", source).verify(&["--every", "7"]);
    assert_sound(&report);
    assert_eq!(report["run"]["ended"], "exited with status 0");
    for name in ["main.burn", "main.outer", "runtime.schedule"] {
        assert_exact(&report, name);
    }
    let (checked, partly) = (number(&report, "checked"), number(&report, "partly_judged"));
    assert!(partly * 10 >= checked, "{partly} of {checked}");
}

/// Check that a call that a signal handler adds to what it interrupted is a frame: Go preempts loops so.
#[test]
fn preempted_goroutines_are_followed() {
    let source = r#"
        package main
        //go:noinline
        func burn(n int) int { s := 0; for i := 0; i < n; i++ { s += i * n; s ^= s >> 3 }; return s }
        func main() {
            sums := make(chan int)
            for g := 0; g < 3; g++ { go func() { sums <- burn(4000 + g) }() }
            println(<-sums + <-sums + <-sums)
        }
    "#;
    let report = Program::compile("go", &["build"], "go", source).verify(&["--every", "7"]);
    assert_sound(&report);
    assert_exact(&report, "main.burn");
    assert_exact(&report, "runtime.asyncPreempt.abi0");
    assert_ne!(number(&report["excluded"], "interrupted_registers_changed"), 0, "{report}");
}

/// Check that stacks that Go moves and jumps back into, when they grow and when a panic is recovered, are not taken for
/// new ones, in single steps and between leaps, where the inspected code has breakpoints.
#[test]
fn stacks_that_go_moves_are_no_new_ones() {
    let source = r#"
        package main
        //go:noinline
        func grow(n int) int {
            var here [64]int
            here[n%64] = n
            if n == 0 { return here[0] }
            return grow(n-1) + here[n%64]
        }
        func recovered(n int) (length int) {
            defer func() { recover(); length = 1 }()
            var numbers []int
            return numbers[n]
        }
        func main() {
            results := make(chan int)
            for g := 1; g < 3; g++ { go func() { results <- grow(12*g) + recovered(g) }() }
            println(<-results + <-results)
        }
    "#;
    let program = Program::compile("go", &["build"], "go", source);
    for options in [["--every", "31"], ["--leap", "200"]] {
        let report = program.verify(&options);
        assert_sound(&report);
        assert_ne!(number(&report["excluded"], "beginning_not_seen"), 0, "{report}");
    }
}
