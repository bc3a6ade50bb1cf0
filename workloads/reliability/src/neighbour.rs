//! What is recorded of a program while another user starts programs and maps memory without end.

use crate::found::Found;
use crate::place::Place;
use crate::process::{Ended, compiled, printed, spawn};
use crate::storm::{at_rate, seconds};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

/// What the program computes, seconds of the processor.
const CPU_SECONDS: u64 = 10;
const PROGRAM: &str = "computes";
/// The user who floods: nobody.
const OTHER: u32 = 65_534;
/// Files of programs, each another one, and threads that start them.
const FILES: u64 = 500;
const STARTERS: u64 = 4;
/// More than any machine can.
const PROGRAMS: u64 = 20_000;
/// This part of the samples a CPU second, and of complete stacks, must be left.
const LEAST: f64 = 0.8;

/// What a recording has of the program.
struct Seen {
    per_cpu_s: f64,
    complete: f64,
}

pub(crate) fn measure(place: &Place) -> anyhow::Result<Found> {
    let dir = tempfile::tempdir()?;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
    let program = dir.path().join(PROGRAM);
    compiled(&place.root.join("collector/tests/programs/chain.c"), &["-fno-omit-frame-pointer"], &program)?;
    let alone = recorded(place, dir.path(), &program)?;
    let flooding = floods(place, dir.path())?;
    let beside = recorded(place, dir.path(), &program)?;
    drop(flooding);
    let figure = format!(
        "{:.0} samples a CPU second alone, {:.0} beside it; complete stacks {:.1} % and {:.1} %",
        alone.per_cpu_s, beside.per_cpu_s, alone.complete, beside.complete
    );
    let is_met = beside.per_cpu_s >= LEAST * alone.per_cpu_s && beside.complete >= LEAST * alone.complete;
    Ok(Found::new(is_met && alone.complete > 99.0, figure))
}

/// Records everything while the program has its seconds of the processor.
fn recorded(place: &Place, dir: &Path, program: &Path) -> anyhow::Result<Seen> {
    let file = dir.join("recording");
    let mut recorder = place.fpprof();
    recorder.args(["record", "-q", "-a", "--call-graph", "both", "-o"]).arg(&file).arg("--");
    printed(recorder.arg(program).arg((CPU_SECONDS * 1000).to_string()).arg(dir.join("chain")))?;
    let report: Value = serde_json::from_slice(&printed(place.fpprof().args(["report", "--json"]).arg(&file))?)?;
    let processes = report.get("processes").and_then(Value::as_array).context("no processes")?;
    let is_it = |process: &&Value| process.get("comm").and_then(Value::as_str) == Some(PROGRAM);
    let dwarf = processes.iter().find(is_it).and_then(|process| process.pointer("/strategies/dwarf"));
    let n = |key: &str| dwarf.and_then(|dwarf| dwarf.get(key)?.as_f64()).unwrap_or_default();
    ensure!(n("samples") > 0.0, "no sample of the program");
    Ok(Seen { per_cpu_s: n("samples") / CPU_SECONDS as f64, complete: n("complete") / n("samples") * 100.0 })
}

/// Another user's programs, and mappings of memory and of code.
fn floods(place: &Place, dir: &Path) -> anyhow::Result<Vec<Ended>> {
    let (flood, own) = (dir.join("flood"), dir.join("programs"));
    compiled(&place.root.join("collector/tests/programs/flood.c"), &[], &flood)?;
    fs::create_dir(&own)?;
    let bytes = fs::read("/bin/true")?;
    for n in 0..FILES {
        let file = own.join(n.to_string());
        fs::write(&file, [&bytes[..], &n.to_le_bytes()].concat())?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    }
    let this = dir.join("starter");
    fs::copy(place.this(), &this)?;
    let without_end = i64::MAX.to_string();
    let mut programs = Command::new(&this);
    programs.args(["--part", "start", "--", &(1 << 30).to_string()]).arg(&own);
    let mappings = ["data", "code"].map(|what| {
        let mut command = Command::new(&flood);
        command.args([what, "many", &without_end]).arg(dir.join("never"));
        command
    });
    let all = std::iter::once(programs).chain(mappings);
    all.map(|mut command| spawn(command.uid(OTHER).gid(OTHER).stdin(Stdio::null()))).collect()
}

/// Starts programs, as many as it can.
pub(crate) fn start(words: &[OsString]) -> anyhow::Result<()> {
    let (end, dir) = (Instant::now() + seconds(words)?, words.get(1).context("in which directory?")?);
    thread::scope(|scope| {
        for starter in 0..STARTERS {
            scope.spawn(move || {
                let mut n = starter;
                at_rate(PROGRAMS, end, || {
                    n = (n + STARTERS) % FILES;
                    Command::new(Path::new(dir).join(n.to_string())).status().map(drop)
                })
            });
        }
    });
    Ok(())
}
