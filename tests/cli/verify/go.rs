//! Go, whose run-time library has stacks of its own.

use super::{Program, assert_exact, assert_sound};
use crate::support::number;

/// Check that goroutines and what runs on the scheduler's stack are judged up to where Go ends their stacks, and that it is said
/// how often that was: the scheduler runs below a goroutine that it has nothing to do with.
#[test]
fn go_ends_its_stacks_itself() {
    let source = r#"
        package main
        import "fmt"
        //go:noinline
        func burn(n int) int { s := 0; for i := 0; i < n; i++ { s += i * n }; return s }
        //go:noinline
        func outer(n int) int { return burn(n) + 1 }
        func main() {
            sums := make(chan int)
            for g := 0; g < 3; g++ {
                go func() { for i := 0; i < 60; i++ { sums <- outer(g + i%7) } }()
            }
            total := 0
            for i := 0; i < 180; i++ { total += <-sums }
            fmt.Println(total)
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
