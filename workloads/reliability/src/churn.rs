//! Records the whole machine while processes, threads and mappings come and go.

use crate::cost;
use crate::found::Found;
use crate::place::Place;
use crate::process::{Ended, compiled, cpu_s, end_of, parsers, pss_mb, spawn};
use crate::suite::figures;
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Seconds after which the recorder's caches are filled.
const WARM: u64 = 20;
const MOST_MB: f64 = 64.0;
/// A larger difference counts as growth, in MB.
const GROWTH_MB: f64 = 4.0;
const MOST_CPU: f64 = 10.0;
/// The programs of the storm; the kernel keeps 15 bytes of a name.
const OURS: [&str; 3] = ["fpprof-reliabil", "true", "flood"];
const REPORT_CPU_S: f64 = 4.0;
const REPORT_MB: f64 = 300.0;

pub(crate) fn measure(place: &Place) -> anyhow::Result<Found> {
    let (dir, seconds) = (place.dir()?, place.sizes.storm_seconds);
    let file = dir.path().join("recording");
    let path = file.to_str().context("a path that is text")?;
    let longer = (seconds + 5).to_string();
    let mut storm = spawn(place.part("storm").arg(&longer).stderr(Stdio::piped()))?;
    let floods = floods(place, dir.path())?;
    let mut recorder = place.fpprof();
    recorder.args(["record", "-q", "-a", "--call-graph", "both", "--duration", &seconds.to_string(), "-o"]).arg(&file);
    let mut recorder = spawn(recorder.stderr(Stdio::piped()))?;
    let begun = Instant::now();
    let pid = recorder.id();
    let (mut warm, mut last, mut peak_mb) = (None, None, 0.0_f64);
    while recorder.try_wait()?.is_none() {
        ensure!(begun.elapsed().as_secs() < seconds * 2 + 60, "the recorder does not end");
        let parsers = parsers(pid);
        let all =
            |of: &dyn Fn(u32) -> Option<f64>| Some(of(pid)? + parsers.iter().filter_map(|&pid| of(pid)).sum::<f64>());
        if let (Some(mb), Some(cpu)) = (all(&pss_mb), all(&cpu_s)) {
            let at = begun.elapsed();
            if at.as_secs() >= WARM && warm.is_none() {
                warm = Some((at, mb, cpu));
            }
            // Later measurements are of its end phase.
            if at.as_secs() < seconds {
                peak_mb = peak_mb.max(mb);
                last = Some((at, mb, cpu));
            }
        }
        sleep(Duration::from_millis(200));
    }
    let status = recorder.wait()?;
    ensure!(status.success(), "record: {status}");
    end_of(&mut storm, Duration::from_secs(60))?;
    drop(floods);
    let output = std::io::read_to_string(storm.stderr.take().context("its stderr")?)?;
    let made = figures(&output);
    let ((from, warm_mb, warm_cpu), (to, end_mb, end_cpu)) = warm.zip(last).context("it ended too soon")?;
    let cpu = (end_cpu - warm_cpu) / (to - from).as_secs_f64() * 100.0;

    let (report, costs) = reports(place, path, dir.path())?;
    let n = |key: &str| report.get(key).and_then(Value::as_u64).unwrap_or_default();
    let (samples, n_broken) = of_storm(&report)?;
    #[expect(clippy::cast_precision_loss, reason = "a size of megabytes")]
    let file_mb = fs::metadata(&file)?.len() as f64 / 1e6;
    let figure = format!(
        "{seconds} s of {} programs, {} threads and {} mappings a second, and two floods of mappings: {warm_mb:.0} MB after {WARM} s, {end_mb:.0} MB at \
         the end, {peak_mb:.0} MB at most; {cpu:.1} % CPU; {file_mb:.1} MB written; {} process events lost; \
         {n_broken} of its {samples} stacks broken; report {}",
        made.text("programs")?,
        made.text("threads")?,
        made.text("maps")?,
        n("sideband_lost"),
        costs.each_ref().map(|cost| format!("{:.1} s CPU, {:.0} MB", cost.cpu_s, cost.peak_mb)).join(", with --json "),
    );
    let is_small = peak_mb <= MOST_MB && end_mb <= warm_mb + GROWTH_MB && cpu <= MOST_CPU;
    let is_read = costs.iter().all(|cost| cost.cpu_s <= REPORT_CPU_S && cost.peak_mb <= REPORT_MB);
    Ok(Found::new(is_small && is_read && n_broken == 0, figure))
}

/// The report of a recording, and the cost of `report` as text and as JSON.
fn reports(place: &Place, recording: &str, dir: &Path) -> anyhow::Result<(Value, [cost::Cost; 2])> {
    let json = dir.join("report");
    let as_json = cost::of_fpprof(place, &["report", "--json", recording], &json)?;
    let as_text = cost::of_fpprof(place, &["report", recording], &dir.join("text"))?;
    Ok((serde_json::from_slice(&fs::read(&json)?)?, [as_text, as_json]))
}

/// Starts programs that map memory and their own code at random places without end.
fn floods(place: &Place, dir: &Path) -> anyhow::Result<Vec<Ended>> {
    let program = dir.join("flood");
    compiled(&place.root.join("collector/tests/programs/flood.c"), &[], &program)?;
    let flood = |what| {
        let without_end = i64::MAX.to_string();
        spawn(Command::new(&program).args([what, "many", &without_end]).arg(dir.join("never")))
    };
    ["data", "code"].map(flood).into_iter().collect()
}

/// Samples of the storm's own programs, and how many of their stacks are broken.
fn of_storm(report: &Value) -> anyhow::Result<(u64, u64)> {
    let processes = report.get("processes").and_then(Value::as_array).context("no processes")?;
    // Other programs on this machine may have stacks that are really broken.
    let is_ours =
        |process: &&Value| process.get("comm").and_then(Value::as_str).is_some_and(|name| OURS.contains(&name));
    let (mut samples, mut n_broken) = (0, 0);
    for dwarf in processes.iter().filter(is_ours).filter_map(|process| process.pointer("/strategies/dwarf")) {
        samples += dwarf.get("samples").and_then(Value::as_u64).unwrap_or_default();
        let broken = dwarf.get("broken").and_then(Value::as_object).context("how many are broken?")?;
        n_broken += broken.values().filter_map(Value::as_u64).sum::<u64>();
    }
    ensure!(samples > 0, "no sample of the storm");
    Ok((samples, n_broken))
}
