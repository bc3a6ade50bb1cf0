//! Code that repeats in step with the windows or the stride must still be checked in proportion.

use super::{Program, verify};
use crate::support::number;
use serde_json::Value;

/// The number of checked instructions in a function.
fn checked_in(report: &Value, name: &str) -> u64 {
    let functions = report["functions"].as_array().expect("functions");
    functions.iter().find(|group| group["name"] == name).map_or(0, |group| number(group, "checked"))
}

/// A program without a C library: `_start: mov $ROUNDS, %ebx; 1: BODY; dec %ebx; jnz 1b`, followed by its functions.
fn rounds(rounds: u32, body: &str, functions: &str) -> Program {
    let exit = "mov $60,%eax\n xor %edi,%edi\n syscall";
    let source = format!(
        ".text\n.globl _start\n.type _start,@function\n_start:\n mov ${rounds},%ebx\n1:\n{body}\n dec %ebx\n jnz 1b\n{exit}\n\
         .size _start,.-_start\n{functions}\n.section .note.GNU-stack,\"\"\n"
    );
    Program::compile("gcc", &["-nostdlib", "-static"], "S", &source)
}

/// An assembly function.
fn function_of(name: &str, body: &str) -> String {
    format!(".type {name},@function\n{name}:\n{body}\n.size {name},.-{name}\n")
}

/// Check that a function that runs at every 50th instruction is checked in proportion if one in 50 instructions is, for
/// any seed; that the seed is reported; and that it reproduces the figures.
#[test]
fn what_repeats_with_the_stride_is_met_in_proportion() {
    // 7 of 50 instructions are in `f`: 20, call, 7, 20, dec, jnz.
    let body = " .rept 20\n nop\n .endr\n call f\n .rept 20\n nop\n .endr";
    let program = rounds(1000, body, &function_of("f", " .rept 6\n nop\n .endr\n ret"));
    let mut seeds = vec![];
    for options in [&[][..], &["--seed", "1"], &["--seed", "2"]] {
        let options = [&["--every", "50"], options].concat();
        let report = program.verify(&options);
        // 140 of 1,000 expected, with a standard deviation of 11.
        let n = checked_in(&report, "f");
        assert!((80..=200).contains(&n) && number(&report, "checked") >= 999, "{n} of {}", report["checked"]);
        let seed = number(&report["run"], "seed").to_string();
        assert_eq!(report, program.verify(&["--every", "50", "--seed", &seed]), "the same seed gives the same figures");
        seeds.push(seed);
    }
    assert_eq!(seeds[1..], ["1", "2"]);
    let ran = verify(&["--seed", "1"], &["/bin/true"]);
    assert!(ran.status == 2 && ran.stderr.contains("--leap or --every"), "{}", ran.stderr);
}

/// Check the same for a function that runs at every 50th call if one in 100 transfers, which is the same distance,
/// begins a window; and that code far from the last transfer in a long function is checked, too.
#[test]
fn what_repeats_with_the_leap_is_met_in_proportion() {
    let body = " call f\n mov $49,%ebp\n2:\n call g\n dec %ebp\n jnz 2b";
    let function = " .rept 8\n nop\n .endr\n ret";
    let program = rounds(1000, body, &(function_of("f", function) + &function_of("g", function)));
    for seed in ["1", "2"] {
        let options = ["--leap", "100", "--window", "20", "--seed", seed];
        let report = program.verify(&options);
        let (f, g) = (checked_in(&report, "f"), checked_in(&report, "g"));
        // 20 of 1,000 expected, with a standard deviation of 3.
        assert!((5..=35).contains(&(f * 1000 / (f + g))), "seed {seed}: {f} beside {g}");
        assert_eq!(number(&report["run"], "seed").to_string(), seed);
    }
    let far = function_of("near", " .rept 100\n nop\n .endr") + &function_of("far", " .rept 100\n nop\n .endr\n ret");
    let program = rounds(2000, " call near", &far);
    let report = program.verify(&["--leap", "10", "--window", "40", "--seed", "1"]);
    assert!(checked_in(&report, "far") > 0, "{}", report["functions"]);
    let again = program.verify(&["--leap", "10", "--window", "40", "--seed", "1"]);
    assert_eq!(report, again, "the same seed gives the same figures");
}
