//! Records the whole machine for a long time, while programs are started, replaced and deleted.

use crate::cost;
use crate::found::Found;
use crate::place::Place;
use crate::process::{Ended, cpu_s, end_of, parsers, pss_mb, spawn};
use crate::storm::{at_rate, seconds};
use crate::suite::figures;
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Programs replaced per second.
const UPGRADES: u64 = 10;
/// A shell script that computes for some 20 ms.
const WORK: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
/// Share of the time that is ignored at the start, while caches fill up.
const WARM_PART: f64 = 0.25;
const MOST_MB_AN_HOUR: f64 = 1.0;
const MOST_MB: f64 = 64.0;

/// The recorder's figures at one time.
struct Seen {
    hours: f64,
    mb: f64,
    descriptors: usize,
}

pub(crate) fn measure(place: &Place) -> anyhow::Result<Found> {
    let (dir, lasts) = (place.dir()?, place.sizes.soak_seconds);
    let file = dir.path().join("recording");
    let mut recorder = place.fpprof();
    recorder.args(["record", "-q", "-a", "--call-graph", "both", "--duration", &lasts.to_string(), "-o"]).arg(&file);
    let longer = (lasts + 5).to_string();
    let storm = spawn(place.part("storm").arg(&longer).stderr(Stdio::piped()))?;
    let upgrades = spawn(place.part("upgrades").arg(&longer).arg(dir.path()).stderr(Stdio::piped()))?;
    let mut recorder = spawn(&mut recorder)?;
    let (begun, pid) = (Instant::now(), recorder.id());
    let (mut seen, mut cpu) = (Vec::new(), 0.0);
    while recorder.try_wait()?.is_none() {
        ensure!(begun.elapsed().as_secs() < lasts * 2 + 60, "the recorder does not end");
        let at = begun.elapsed().as_secs_f64();
        let mb = pss_mb(pid).map(|mb| mb + parsers(pid).into_iter().filter_map(pss_mb).sum::<f64>());
        if let (Some(mb), Ok(descriptors)) = (mb, descriptors(pid, dir.path()))
            && (WARM_PART * lasts as f64..lasts as f64).contains(&at)
        {
            seen.push(Seen { hours: at / 3600.0, mb, descriptors });
        }
        cpu = cpu_s(pid).unwrap_or(cpu);
        sleep(Duration::from_millis(500));
    }
    ensure!(recorder.wait()?.success(), "the recorder failed");
    let figures_of = |mut part: Ended| -> anyhow::Result<_> {
        end_of(&mut part, Duration::from_secs(60))?;
        Ok(figures(&std::io::read_to_string(part.stderr.take().context("its stderr")?)?))
    };
    let (storm, upgrades) = (figures_of(storm)?, figures_of(upgrades)?);
    let (Some(first), Some(last)) = (seen.first(), seen.last()) else { anyhow::bail!("it ended too soon") };
    let peak_mb = seen.iter().map(|seen| seen.mb).fold(0.0, f64::max);
    let growth = slope(&seen);

    let json = dir.path().join("report");
    let cost = cost::of_fpprof(place, &["report", "--json", file.to_str().context("a path that is text")?], &json)?;
    let report: Value = serde_json::from_slice(&fs::read(&json)?)?;
    let n = |key: &str| report.get(key).and_then(Value::as_u64).unwrap_or_default();
    let figure = format!(
        "{lasts} s of {} programs, {} threads and {} replaced files a second: {:.1} MB at first, {:.1} MB at the end, \
         {peak_mb:.1} MB at most, {growth:+.1} MB an hour; {} descriptors \
         at first, {} at the end, beside those of files that are there; {:.1} % CPU; {} process \
         events lost; report {:.1} s CPU, {:.0} MB",
        storm.text("programs")?,
        storm.text("threads")?,
        upgrades.text("replaced")?,
        first.mb,
        last.mb,
        first.descriptors,
        last.descriptors,
        cpu / lasts as f64 * 100.0,
        n("sideband_lost"),
        cost.cpu_s,
        cost.peak_mb,
    );
    let is_flat = growth <= MOST_MB_AN_HOUR && last.descriptors <= first.descriptors + 16;
    Ok(Found::new(is_flat && n("unaccounted") == 0 && peak_mb <= MOST_MB, figure))
}

/// Open descriptors of the recorder, excluding existing files outside `dir`: it keeps one for every program and library
/// that runs on the machine.
fn descriptors(pid: u32, dir: &Path) -> std::io::Result<usize> {
    let targets = fs::read_dir(format!("/proc/{pid}/fd"))?.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Ok(targets.filter(|target| target.starts_with(dir) || !target.is_file()).count())
}

/// Growth in MB per hour, by least squares.
fn slope(seen: &[Seen]) -> f64 {
    let mean = |of: &dyn Fn(&Seen) -> f64| seen.iter().map(of).sum::<f64>() / seen.len() as f64;
    let (hours, mb) = (mean(&|seen| seen.hours), mean(&|seen| seen.mb));
    mean(&|seen| (seen.hours - hours) * (seen.mb - mb)) / mean(&|seen| (seen.hours - hours).powi(2))
}

/// Starts a program from a new file each time, and deletes the file while the program runs.
pub(crate) fn upgrade(words: &[OsString]) -> anyhow::Result<()> {
    let (begun, lasts) = (Instant::now(), seconds(words)?);
    let dir = Path::new(words.get(1).context("in which directory?")?);
    let mut n = 0_u64;
    let replaced = at_rate(UPGRADES, begun + lasts, || {
        n += 1;
        let program = dir.join(format!("program-{n}"));
        fs::copy("/bin/sh", &program)?;
        let mut child = Command::new(&program).args(["-c", WORK]).stdin(Stdio::null()).spawn()?;
        fs::remove_file(&program)?;
        child.wait().map(drop)
    })?;
    writeln!(std::io::stderr(), "figures replaced={}", replaced / lasts.as_secs().max(1))?;
    Ok(())
}
