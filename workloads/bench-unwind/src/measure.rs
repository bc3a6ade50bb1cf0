//! Measures one engine on one input, and all engines on it in turn.

use crate::clock;
use crate::engines::{Name, Pass, make};
use crate::goals;
use crate::load::Input;
use crate::measured::Measured;
use crate::progress::print_progress;
use crate::report::{EngineResult, InputResult};
use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Passes after the first, per process.
const WARM: usize = 4;

/// Measures an engine in this process.
pub(crate) fn measure(name: Name, file: &Path, hashes: Option<&Path>, warm: usize) -> anyhow::Result<Measured> {
    let input = Input::read(file)?;
    let before = clock::reset_peak()?;
    let timed = |run: &mut dyn FnMut() -> anyhow::Result<Pass>| -> anyhow::Result<(Pass, Duration, Duration)> {
        let (cpu, wall) = (clock::process_cpu()?, Instant::now());
        let pass = run()?;
        Ok((pass, clock::process_cpu()?.saturating_sub(cpu), wall.elapsed()))
    };
    let mut engine = None;
    let (first, cold, cold_wall) = timed(&mut || {
        let engine = engine.insert(make(name, &input)?);
        let mut pass = Pass::default();
        engine.pass(&input, &mut pass).map(|()| pass)
    })?;
    let mut engine = engine.context("the engine was made")?;
    let (mut best, mut best_wall) = (cold, cold_wall);
    for _ in 0..warm {
        let (pass, cpu, wall) = timed(&mut || {
            let mut pass = Pass::default();
            engine.pass(&input, &mut pass).map(|()| pass)
        })?;
        ensure!(pass == first, "{} gives other stacks the second time", name.words());
        best = best.min(cpu);
        best_wall = best_wall.min(wall);
    }
    let rss_bytes = clock::peak()?.saturating_sub(before);
    let mut pass = Pass { hashes: Some(Vec::new()), ..Pass::default() };
    if let Some(path) = hashes {
        engine.pass(&input, &mut pass)?;
        let bytes: Vec<u8> = pass.hashes.iter().flatten().flat_map(|hash| hash.to_le_bytes()).collect();
        std::fs::write(path, bytes)?;
    }
    Ok(Measured {
        samples: input.samples.len() as u64,
        stack_bytes: input.samples.iter().map(|one| one.stack.len() as u64).sum(),
        frames: first.frames,
        complete: first.complete,
        addresses: pass.addresses.len() as u64,
        cold_s: cold.as_secs_f64(),
        warm_s: best.as_secs_f64(),
        cold_wall_s: cold_wall.as_secs_f64(),
        warm_wall_s: best_wall.as_secs_f64(),
        rss_bytes,
    })
}

/// Measures every engine on one input, each in `rounds` processes, taking turns.
pub(crate) fn compare(input: &str, file: &Path, dir: &Path, rounds: usize) -> anyhow::Result<InputResult> {
    let mut measured: Vec<(Name, Vec<Measured>)> = Name::ALL.iter().map(|&name| (name, Vec::new())).collect();
    for round in 0..rounds.max(1) {
        for (name, results) in &mut measured {
            print_progress(&format!("{input}, round {}: {}", round + 1, name.words()));
            results.push(in_child(*name, file, &hashes_path(dir, *name))?);
        }
    }
    let ours = read_hashes(&hashes_path(dir, Name::Ours))?;
    let engines = measured.iter().map(|(name, results)| {
        let theirs = read_hashes(&hashes_path(dir, *name))?;
        EngineResult::new(*name, results, &ours, &theirs).context("no result")
    });
    let engines = engines.collect::<anyhow::Result<Vec<_>>>()?;
    let goals = goals::reached(&measured);
    let (_, results) = measured.first().context("no engine")?;
    let first = results.first().context("no result")?;
    Ok(InputResult { name: input.to_owned(), samples: first.samples, stack_bytes: first.stack_bytes, engines, goals })
}

fn in_child(name: Name, file: &Path, hashes: &Path) -> anyhow::Result<Measured> {
    let engine = clap::ValueEnum::to_possible_value(&name).context("every engine has a name")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["measure", engine.get_name()]).arg(file).arg("--hashes").arg(hashes);
    command.args(["--warm", &WARM.to_string()]);
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{}: {}", name.words(), output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn hashes_path(dir: &Path, name: Name) -> PathBuf {
    dir.join(format!("{}.hashes", name.words().replace([',', ' '], "-")))
}

fn read_hashes(path: &Path) -> anyhow::Result<Vec<u64>> {
    let bytes = std::fs::read(path)?;
    Ok(bytes.chunks_exact(8).filter_map(|word| word.first_chunk().map(|word| u64::from_le_bytes(*word))).collect())
}
