//! A recorder that shares its CPUs with many CPU-bound programs.

use crate::found::Found;
use crate::place::Place;
use crate::process::{Ended, end_of, printed, spawn};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SPINNERS: usize = 100;
/// Also ends by itself, in case this program is killed.
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
    let plain = Recorded::new(place, &file, &[])?;
    let realtime = Recorded::new(place, &file, &["-r", "1"])?;
    drop(spinners);

    let is_met = plain.is_balanced && realtime.is_balanced && realtime.lost * 100 <= realtime.fired;
    Ok(Found::new(is_met, format!("{}; with `-r 1`: {}", plain.words, realtime.words)))
}

/// The outcome of a recording.
struct Recorded {
    words: String,
    fired: u64,
    lost: u64,
    is_balanced: bool,
}

impl Recorded {
    fn new(place: &Place, file: &Path, options: &[&str]) -> anyhow::Result<Self> {
        let mut recorder = place.fpprof();
        recorder.args(["record", "-q", "-a", "-F", "4999", "--call-graph", "both"]).args(options);
        recorder.args(["--duration", &SECONDS.to_string(), "-o"]).arg(file);
        let begun = Instant::now();
        let mut recorder = spawn(&mut recorder)?;
        let status = end_of(&mut recorder, Duration::from_secs(SECONDS * 10))?;
        ensure!(status.success(), "record: {status}");
        let beside_s = begun.elapsed().as_secs_f64() - SECONDS as f64;

        let report = printed(place.fpprof().args(["report", "--json"]).arg(file))?;
        let report: Value = serde_json::from_slice(&report)?;
        let n = |key: &str| report.get(key).and_then(Value::as_u64).unwrap_or_default();
        let lost = report.get("lost").and_then(Value::as_object).context("what was lost?")?;
        let lost: u64 = lost.values().filter_map(Value::as_u64).sum();
        let (fired, recorded, skipped, dropped) = (n("fired"), n("recorded"), n("skipped"), n("dropped"));
        let is_balanced = fired == recorded + lost + skipped + dropped && n("unaccounted") == 0;
        let words = format!(
            "{fired} ticks = {recorded} recorded + {lost} lost + {skipped} skipped + {dropped} dropped; {} chunks made \
             smaller; {beside_s:.0} s to begin and to end",
            n("shed"),
        );
        Ok(Self { words, fired, lost, is_balanced })
    }
}
