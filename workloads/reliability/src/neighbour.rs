//! Records a program while another user starts programs and maps memory without end.

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

/// CPU seconds that the program computes.
const CPU_SECONDS: u64 = 10;
const PROGRAM: &str = "computes";
/// The uid that floods: nobody.
const OTHER: u32 = 65_534;
/// Number of program files, and of threads that start them.
const FILES: u64 = 500;
const STARTERS: u64 = 4;
/// The flood also ends by itself, in case this program is killed.
const LONGEST_S: &str = "600";
/// Programs per second: more than any machine can start.
const PROGRAMS: u64 = 20_000;
/// The minimum that must remain of samples per CPU second, and of complete stacks.
const LEAST: f64 = 0.8;

/// The recorded samples of the program and of the flood.
struct Seen {
    per_cpu_s: f64,
    /// Share of its stacks that are complete, in per cent.
    complete: f64,
    /// Samples of the other user's programs, which have numbers as names, and of those that only map.
    programs: f64,
    mappings: f64,
}

pub(crate) fn measure(place: &Place) -> anyhow::Result<Found> {
    // The other user needs access to it.
    let dir = tempfile::tempdir()?;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
    let program = dir.path().join(PROGRAM);
    compiled(&place.root.join("collector/tests/programs/chain.c"), &["-fno-omit-frame-pointer"], &program)?;
    let alone = recorded(place, dir.path(), &program)?;
    let flooding = floods(place, dir.path())?;
    let beside = recorded(place, dir.path(), &program)?;
    drop(flooding);
    let figure = format!(
        "{:.0} samples a CPU second alone, {:.0} beside {:.0} samples of those programs and {:.0} of those that map; complete \
         stacks {:.1} % and {:.1} %",
        alone.per_cpu_s, beside.per_cpu_s, beside.programs, beside.mappings, alone.complete, beside.complete
    );
    ensure!(beside.programs > 0.0 && beside.mappings > 0.0, "no flood: {figure}");
    let is_met = beside.per_cpu_s >= LEAST * alone.per_cpu_s && beside.complete >= LEAST * alone.complete;
    Ok(Found::new(is_met && alone.complete > 99.0, figure))
}

/// Records everything until the program has used its CPU seconds.
fn recorded(place: &Place, dir: &Path, program: &Path) -> anyhow::Result<Seen> {
    let file = dir.join("recording");
    let mut recorder = place.fpprof();
    recorder.args(["record", "-q", "-a", "--call-graph", "both", "-o"]).arg(&file).arg("--");
    printed(recorder.arg(program).arg((CPU_SECONDS * 1000).to_string()).arg(dir.join("chain")))?;
    let report: Value = serde_json::from_slice(&printed(place.fpprof().args(["report", "--json"]).arg(&file))?)?;
    let processes = report.get("processes").and_then(Value::as_array).context("no processes")?;
    let sum = |is_it: &dyn Fn(&str) -> bool, key: &str| {
        let of = processes.iter().filter(|process| process.get("comm").and_then(Value::as_str).is_some_and(is_it));
        of.filter_map(|process| process.pointer("/strategies/dwarf")?.get(key)?.as_f64()).sum::<f64>()
    };
    let samples = sum(&|name| name == PROGRAM, "samples");
    ensure!(samples > 0.0, "no sample of the program");
    Ok(Seen {
        per_cpu_s: samples / CPU_SECONDS as f64,
        complete: sum(&|name| name == PROGRAM, "complete") / samples * 100.0,
        programs: sum(&|name| name.bytes().all(|byte| byte.is_ascii_digit()), "samples"),
        mappings: sum(&|name| name == "flood", "samples"),
    })
}

/// Starts the other user's programs, and mappings of memory and of code.
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
    programs.args(["--part", "start", "--", LONGEST_S]).arg(&own);
    let mappings = ["data", "code"].map(|what| {
        let mut command = Command::new(&flood);
        command.args([what, "many", &without_end]).arg(dir.join("never"));
        command
    });
    let all = std::iter::once(programs).chain(mappings);
    all.map(|mut command| spawn(command.uid(OTHER).gid(OTHER).stdin(Stdio::null()))).collect()
}

/// Starts as many programs as possible.
pub(crate) fn start(words: &[OsString]) -> anyhow::Result<()> {
    let (end, dir) = (Instant::now() + seconds(words)?, words.get(1).context("in which directory?")?);
    let start = |starter: u64| {
        let mut n = starter;
        at_rate(PROGRAMS, end, || {
            n = (n + STARTERS) % FILES;
            Command::new(Path::new(dir).join(n.to_string())).status().map(drop)
        })
    };
    thread::scope(|scope| {
        let starters: Vec<_> = (0..STARTERS).map(|starter| scope.spawn(move || start(starter))).collect();
        starters
            .into_iter()
            .try_for_each(|starter| starter.join().ok().context("a thread failed")?.map(drop).map_err(Into::into))
    })
}
