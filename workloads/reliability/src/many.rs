//! Records a program with many libraries, and many processes.

use crate::cost;
use crate::found::Found;
use crate::place::Place;
use crate::process::{Ended, compiled, end_of, mb, spawn, wait_for_samples};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const LIBRARIES: &str = "2000";
const PROCESSES: usize = 500;
const MOST_MB: f64 = 256.0;
const SECONDS: u64 = 30;

pub(crate) fn measure(place: &Place) -> anyhow::Result<Found> {
    let dir = place.dir()?;
    let (program, library, file) =
        (dir.path().join("many"), dir.path().join("libcall.so"), dir.path().join("recording"));
    let source = place.root.join("tests/programs/many_modules.c");
    compiled(&source, &["-DLIBRARY", "-shared", "-fPIC"], &library)?;
    compiled(&source, &[], &program)?;
    // They also end by themselves, in case this program is killed.
    let longest = (SECONDS * 3).to_string();
    let spinning: Vec<Ended> =
        (0..PROCESSES).map(|_| spawn(place.part("spin").arg(&longest))).collect::<anyhow::Result<_>>()?;
    let mut recorder = place.fpprof();
    recorder.args(["record", "-q", "-a", "--call-graph", "both", "--duration", &SECONDS.to_string(), "-o"]).arg(&file);
    let mut recorder = spawn(&mut recorder)?;
    wait_for_samples(&file)?;
    let mut many = spawn(Command::new(&program).arg(dir.path()).arg(LIBRARIES))?;
    let (begun, mut peak_mb) = (Instant::now(), 0.0_f64);
    while recorder.try_wait()?.is_none() {
        ensure!(begun.elapsed().as_secs() < SECONDS * 4, "the recorder does not end");
        peak_mb = peak_mb.max(mb(recorder.id(), "VmHWM").unwrap_or(0.0));
        sleep(Duration::from_millis(100));
    }
    ensure!(recorder.wait()?.success(), "the recorder failed");
    let ended = end_of(&mut many, Duration::from_secs(60))?;
    ensure!(ended.success(), "the program of many libraries: {ended}");

    let json = dir.path().join("report");
    let cost = cost::of_fpprof(place, &["report", "--json", file.to_str().context("a path that is text")?], &json)?;
    let report: Value = serde_json::from_slice(&fs::read(&json)?)?;
    let processes = report.get("processes").and_then(Value::as_array).context("no processes")?;
    let sampled: BTreeSet<u64> = processes.iter().filter_map(|process| process.get("pid")?.as_u64()).collect();
    let is_sampled = |process: &&Ended| sampled.contains(&u64::from(process.id()));
    let n_spinning = spinning.iter().filter(is_sampled).count();
    let with_many = if is_sampled(&&many) { "the" } else { "not the" };
    let figure = format!(
        "{n_spinning} of {PROCESSES} processes and {with_many} program of {LIBRARIES} libraries sampled: recorder {peak_mb:.0} MB, \
         report {:.0} MB",
        cost.peak_mb
    );
    let is_whole = n_spinning == PROCESSES && is_sampled(&&many);
    Ok(Found::new(is_whole && peak_mb <= MOST_MB && cost.peak_mb <= MOST_MB, figure))
}
