//! Analyses recordings made on aarch64 (`tests/aarch64/`, Linux 6.12 in QEMU) on any machine.

mod support;

use std::path::{Path, PathBuf};
use support::stacks::{Stack, stacks_in};
use support::{fpprof, ran};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/aarch64")
}

/// The stacks in a recording of `signed.c`; the program has its original path, relative to the folder.
fn stacks(mode: &str, strategy: &str) -> Vec<Stack> {
    stacks_in(&folder().join(format!("{mode}.recording")), strategy, &["--symfs".as_ref(), folder().as_ref()])
}

/// Whether `signed.c` has this stack at some time: a prefix of the whole call chain, in order.
fn is_true(stack: &Stack) -> bool {
    let levels = stack.names.iter().filter(|name| *name == "level").count();
    let rest: Vec<&str> = stack.names.iter().map(String::as_str).filter(|name| *name != "level").collect();
    match rest[..] {
        ["leaf", "run", "_start"] => levels == 12 && is_in_leaf(stack),
        ["run", "_start"] => levels <= 12,
        _ => false,
    }
}

fn is_in_leaf(stack: &Stack) -> bool {
    stack.names.first().is_some_and(|name| name == "leaf")
}

/// Check that a program that signs its return addresses is unwound to its root, with and without frame pointers, and
/// that the leaf's caller, which only the link register has, is found in mode `fp` as well.
#[test]
fn signed_return_addresses() {
    for (mode, strategy) in [("fp", "fp"), ("both", "fp"), ("both", "dwarf"), ("both", "dwarf@2048")] {
        let stacks = stacks(mode, strategy);
        let leaves: u64 = stacks.iter().filter(|stack| is_in_leaf(stack)).map(|stack| stack.samples).sum();
        assert!(leaves > 20, "{mode} {strategy}: {leaves} samples in the leaf");
        for stack in &stacks {
            assert!(is_true(stack) && stack.class == "complete", "{mode} {strategy}: {:?} {}", stack.names, stack.stop);
        }
    }
}

/// Check that external unwinders are not used for an architecture they do not support.
#[test]
fn external_unwinders_are_refused() {
    let recording = folder().join("both.recording");
    for strategy in ["elfutils", "libunwind"] {
        let ran = ran(fpprof().arg("report").arg(&recording).args(["--strategy", strategy]));
        assert_ne!(ran.status, 0);
        assert!(ran.stderr.contains("supports x86-64 only") && ran.stderr.contains("aarch64"), "{}", ran.stderr);
    }
}
