//! Checks that the same recording gives the same output bytes.

use crate::found::Found;
use crate::place::Place;
use crate::process::{printed, ran, words};
use crate::suite::{Suite, run};
use anyhow::ensure;
use std::process::Command;

/// The outputs to compare.
const OUTPUTS: [(&str, &[&str]); 5] = [
    ("report", &["report"]),
    ("JSON", &["report", "--json"]),
    ("HTML", &["report", "--html", "-"]),
    ("SVG", &["flamegraph", "-o", "-"]),
    ("folded", &["export", "--format", "folded", "-o", "-"]),
];

/// Number of runs: an order that depends on threads differs in some runs only.
const TIMES: usize = 6;

pub(crate) fn measure(place: &Place) -> anyhow::Result<Found> {
    let dir = place.dir()?;
    let file = dir.path().join("recording");
    let mut record = place.fpprof();
    record.args(["record", "-q", "--call-graph", "both", "-o"]).arg(&file);
    let recorded = ran(record.args(["--", "timeout", "5", "sh", "-c", "while :; do ls -lR /etc >/dev/null; done"]))?;
    ensure!(recorded.status.code() == Some(124), "{}: {}", recorded.status, words(&recorded.stderr));
    let n_cpus = std::thread::available_parallelism()?;
    let (mut differ, mut bytes) = (Vec::new(), 0);
    for (name, args) in OUTPUTS {
        let on = |cpus: String| {
            let mut analysis = Command::new("taskset");
            printed(analysis.args(["-c", &cpus]).arg(&place.fpprof).args(args).arg(&file))
        };
        let all = format!("0-{}", n_cpus.get() - 1);
        let first = on(all.clone())?;
        ensure!(!first.is_empty(), "{name}: nothing was printed");
        bytes += first.len();
        let again = (1..TIMES).map(|_| all.clone()).chain(["0".to_owned()]);
        let others = again.map(on).collect::<anyhow::Result<Vec<_>>>()?;
        if others.iter().any(|other| *other != first) {
            differ.push(name);
        }
    }
    let threads = Suite { programs: &["--lib"], tests: &["the_result_does_not_depend_on_threads_or_blocks"] };
    let tested = run(place, &[threads], &[])?;
    let which = if differ.is_empty() { String::new() } else { format!(" ({})", differ.join(", ")) };
    let figure = format!(
        "{} outputs of {bytes} bytes, {TIMES} times on {n_cpus} CPUs and once on 1: {} differ{which}; 1, 2 and 16 threads: {}",
        OUTPUTS.len(),
        differ.len(),
        tested.words()
    );
    Ok(Found::new(differ.is_empty() && tested.is_good(), figure))
}
