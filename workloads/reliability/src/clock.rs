//! Clocks with an offset: time namespaces.

use crate::found::Found;
use crate::place::Place;
use crate::process::{ran, words};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Options for clocks that are more than eleven days ahead.
const AHEAD: [&str; 6] = ["-T", "--fork", "--boottime", "1000000", "--monotonic", "1000000"];
const BUSY: [&str; 5] = ["timeout", "2", "sh", "-c", "while :; do :; done"];
/// The time range in seconds of all samples, even on a busy machine. Samples before the start count as at the start, so
/// the first microsecond is excluded.
const WITHIN: &str = "0.000001..60";

pub(crate) fn measure(place: &Place) -> anyhow::Result<Found> {
    let dir = place.dir()?;
    let (outside, inside) = (dir.path().join("outside"), dir.path().join("inside"));
    let mut record = place.fpprof();
    record.args(["record", "-q", "-o"]).arg(&outside).args(["--", "unshare"]).args(AHEAD).args(BUSY);
    recorded(&mut record)?;
    let mut record = Command::new("unshare");
    record.args(AHEAD).arg(&place.fpprof).args(["record", "-q", "-o"]).arg(&inside).arg("--").args(BUSY);
    recorded(&mut record)?;
    let (from_outside, from_inside) = (counted(place, &outside)?, counted(place, &inside)?);
    let figure = format!(
        "from outside {} of {} samples outside of its time, from inside {} of {}",
        from_outside.0, from_outside.1, from_inside.0, from_inside.1
    );
    Ok(Found::new(from_outside.0 == 0 && from_inside.0 == 0, figure))
}

fn recorded(command: &mut Command) -> anyhow::Result<()> {
    let output = ran(command)?;
    // The exit status of `timeout`, which ends the program.
    ensure!(output.status.code() == Some(124), "{}: {}", output.status, words(&output.stderr));
    Ok(())
}

/// Samples outside the possible time range, and all samples.
fn counted(place: &Place, file: &Path) -> anyhow::Result<(u64, u64)> {
    let report = |options: &[&str]| ran(place.fpprof().args(["report", "--json"]).args(options).arg(file));
    let all = report(&[])?;
    ensure!(all.status.success(), "{}", words(&all.stderr));
    let all = samples(&all.stdout)?;
    ensure!(all > 0, "nothing was recorded");
    let within = report(&["--time", WITHIN])?;
    let within = if within.status.success() {
        samples(&within.stdout)?
    } else {
        let stderr = words(&within.stderr);
        ensure!(stderr.contains("no sample matches"), "{stderr}");
        0
    };
    Ok((all - within, all))
}

fn samples(report: &[u8]) -> anyhow::Result<u64> {
    let report: Value = serde_json::from_slice(report)?;
    report.get("recorded").and_then(Value::as_u64).context("how many were recorded?")
}
