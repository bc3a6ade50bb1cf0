//! The results of fuzzing so far: `just fuzz` adds a line to a file for each target it runs.

use crate::found::Found;
use crate::place::Place;
use anyhow::{Context as _, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;

const ENOUGH_H: f64 = 3.0;

pub(crate) fn measure(place: &Place) -> anyhow::Result<Found> {
    let file = place.root.join("target/fuzz/totals");
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::new(false, "nothing fuzzed here yet")),
        Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
    };
    let (mut seconds, mut executions, mut failures, mut targets) = (0.0, 0.0, 0, BTreeSet::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[target, s, n, result] = words.as_slice() else { anyhow::bail!("{}: {line:?}", file.display()) };
        ensure!(["passed", "failed"].contains(&result), "{}: {line:?}", file.display());
        let number = |word: &str| word.parse::<f64>().with_context(|| format!("{}: {line:?}", file.display()));
        (seconds, executions) = (seconds + number(s)?, executions + number(n)?);
        failures += usize::from(result == "failed");
        targets.insert(target.to_owned());
    }
    let hours = seconds / 3600.0;
    let figure =
        format!("{hours:.1} h in all, {} targets, {executions:.0} executions, {failures} failures", targets.len());
    Ok(Found::new(hours >= ENOUGH_H && failures == 0, figure))
}
