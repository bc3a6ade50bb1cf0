//! The walk by call frame information that also runs in the kernel.

use super::{Program, RECURSION, json, strategy, total, verify};
use crate::support::number;

/// Check that the kernel's walk gives the true stack or a miss at every instruction, and that most walks are no misses.
#[test]
fn walks_by_the_kernels_code_are_never_wrong() {
    // Static, because walks of the dynamic loader are misses: a rule cannot express that the loader's entry is the
    // root.
    let program = Program::compile("gcc", &["-O1", "-g", "-static", "-fomit-frame-pointer"], "c", RECURSION);
    let path = program.path();
    let ran = verify(&["--strategies", "cfi,dwarf"], &[path.to_str().expect("a path of plain characters")]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let report = json(&ran);
    assert_eq!(total(&strategy(&report, "cfi")["wrong"]), 0, "{report}");
    assert_eq!(strategy(&report, "cfi")["exact"], strategy(&report, "dwarf")["exact"]);
    let walks = &report["kernel_walks"];
    assert_eq!(number(walks, "different"), 0, "{walks}");
    let (complete, missed) = (number(walks, "complete"), total(&walks["misses"]));
    assert_eq!(complete + missed, number(&report, "checked"), "{report}");
    assert!(complete > missed && number(walks, "verified") > 0, "{walks}");
}
