//! Reports, flame graphs and differences of one recording have the same totals.

use crate::support::{fpprof, number, ran, record, report, until_enough};
use serde_json::Value;
use std::path::Path;

/// Records short-lived programs until a sample hits one without a user stack; returns the report.
fn recorded(file: &Path) -> Value {
    until_enough("threads without a user stack", |seconds| {
        let script = format!("end=$(($(date +%s) + {seconds})); while [ $(date +%s) -lt $end ]; do /bin/true; done");
        record(file, &["--call-graph", "dwarf"], &["sh", "-c", &script]);
        Some(report(file, &[])).filter(|report| report.pointer("/strategies/dwarf/no_stack").is_some())
    })
}

/// Check that samples without a user stack count everywhere, but in no class.
#[test]
fn samples_without_a_stack_are_counted_alike() {
    let dir = tempfile::tempdir().expect("a directory");
    let (file, svg) = (dir.path().join("run.fpprof"), dir.path().join("run.svg"));
    let whole = recorded(&file);
    let (all, stacks) = (number(&whole, "recorded"), &whole["strategies"]["dwarf"]);
    let (complete, unwound) = (number(stacks, "complete"), number(stacks, "samples"));
    assert!(unwound < all);

    let drawn = ran(fpprof().arg("flamegraph").arg(&file).arg("-o").arg(&svg));
    assert_eq!(drawn.status, 0, "{}", drawn.stderr);
    let title = std::fs::read_to_string(&svg).expect("a picture").replace(',', "");
    let without = all - unwound;
    assert!(title.contains(&format!("{all} samples")), "{all} samples");
    assert!(title.contains(&format!("{without} sample")) && title.contains("without a user stack"), "{without}");
    assert_eq!(title.contains("100 % complete"), complete == unwound, "{complete} of {unwound}");

    let compared = ran(fpprof().arg("diff").args([&file, &file]).arg("--svg").arg(&svg));
    assert_eq!(compared.status, 0, "{}", compared.stderr);
    let picture = std::fs::read_to_string(&svg).expect("a picture").replace(',', "");
    let words = compared.stdout.replace(',', "");
    assert_eq!(words.matches(&format!("· {all} samples")).count(), 2, "{words}");
    assert!(picture.contains(&format!(">before: {all} samples · after: {all} samples")), "{all} samples");
}
