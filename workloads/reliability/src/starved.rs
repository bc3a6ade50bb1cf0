//! A recorder that has to share its processors with many programs that compute.

use crate::found::Found;
use crate::place::Place;
use crate::process::{Ended, end_of, printed, spawn};
use anyhow::Context as _;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SPINNERS: usize = 100;
/// Ends by itself if this program is killed.
const SPIN: &str = "while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done";
const SECONDS: u64 = 20;

pub(crate) fn measure(place: &Place) -> anyhow::Result<Found> {
    let dir = place.dir()?;
    let file = dir.path().join("recording");
    let spinner = || {
        let mut command = Command::new("sh");
        command.args(["-c", SPIN]).stdin(Stdio::null()).stderr(Stdio::null());
        spawn(&mut command)
    };
    let spinners: Vec<Ended> = (0..SPINNERS).map(|_| spinner()).collect::<anyhow::Result<_>>()?;
    let mut recorder = place.fpprof();
    recorder.args(["record", "-q", "-a", "-F", "4999", "--call-graph", "both"]);
    recorder.args(["--duration", &SECONDS.to_string(), "-o"]).arg(&file);
    let begun = Instant::now();
    let mut recorder = spawn(&mut recorder)?;
    let status = end_of(&mut recorder, Duration::from_secs(SECONDS * 10))?;
    let beside_s = begun.elapsed().as_secs_f64() - SECONDS as f64;
    drop(spinners);

    let report = printed(place.fpprof().args(["report", "--json"]).arg(&file))?;
    let report: Value = serde_json::from_slice(&report)?;
    let n = |key: &str| report.get(key).and_then(Value::as_u64).unwrap_or_default();
    let lost = report.get("lost").and_then(Value::as_object).context("what was lost?")?;
    let lost: u64 = lost.values().filter_map(Value::as_u64).sum();
    let is_balanced = n("fired") == n("recorded") + lost + n("skipped") + n("dropped") && n("unaccounted") == 0;
    let figure = format!(
        "{} ticks = {} recorded + {lost} lost + {} skipped + {} dropped; {} chunks made smaller; {beside_s:.0} s to \
         begin and to end",
        n("fired"),
        n("recorded"),
        n("skipped"),
        n("dropped"),
        n("shed"),
    );
    Ok(Found::new(is_balanced && status.success(), figure))
}
