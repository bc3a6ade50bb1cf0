//! The results as JSON and as Markdown.

use crate::end_to_end::EndToEnd;
use crate::engines::Name;
use crate::goals::{self, Reached};
use crate::measured::Measured;
use anyhow::Context as _;
use serde::Serialize;
use std::fmt::Write as _;

/// All results.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) cpu_model: String,
    pub(crate) kernel: String,
    pub(crate) cpus: usize,
    pub(crate) inputs: Vec<InputResult>,
    pub(crate) end_to_end: Vec<EndToEnd>,
}

/// The results for one input.
#[derive(Debug, Serialize)]
pub(crate) struct InputResult {
    pub(crate) name: String,
    pub(crate) samples: u64,
    pub(crate) stack_bytes: u64,
    pub(crate) engines: Vec<EngineResult>,
    pub(crate) goals: Vec<Reached>,
}

/// The results of one engine on one input: the minimum of several processes.
#[derive(Debug, Serialize)]
pub(crate) struct EngineResult {
    pub(crate) engine: Name,
    pub(crate) frames: u64,
    pub(crate) complete: u64,
    /// Samples whose stack equals fpprof's in every frame.
    pub(crate) same_as_ours: u64,
    /// Samples that both report as complete, and those of them with equal stacks.
    pub(crate) both_complete: u64,
    pub(crate) both_complete_same: u64,
    pub(crate) cold_s: f64,
    pub(crate) warm_s: f64,
    pub(crate) cold_wall_s: f64,
    pub(crate) warm_wall_s: f64,
    pub(crate) rss_bytes: u64,
    /// Number of distinct frame addresses.
    pub(crate) addresses: u64,
    /// The measurements of every process, to show the spread.
    pub(crate) rounds: Vec<Measured>,
}

impl EngineResult {
    pub(crate) fn new(engine: Name, results: &[Measured], ours: &[u64], theirs: &[u64]) -> Option<Self> {
        let first = results.first()?;
        let least = |of: fn(&Measured) -> f64| results.iter().map(of).fold(f64::INFINITY, f64::min);
        let pairs = || ours.iter().zip(theirs);
        let n = |holds: fn(u64, u64) -> bool| pairs().filter(|&(&a, &b)| holds(a, b)).count() as u64;
        Some(Self {
            engine,
            frames: first.frames,
            complete: first.complete,
            same_as_ours: n(|a, b| a & !1 == b & !1),
            both_complete: n(|a, b| a & b & 1 == 1),
            both_complete_same: n(|a, b| a & b & 1 == 1 && a == b),
            cold_s: least(|one| one.cold_s),
            warm_s: least(|one| one.warm_s),
            cold_wall_s: least(|one| one.cold_wall_s),
            warm_wall_s: least(|one| one.warm_wall_s),
            rss_bytes: results.iter().map(|one| one.rss_bytes).max().unwrap_or(0),
            addresses: first.addresses,
            rounds: results.to_vec(),
        })
    }

    fn rate(&self, seconds: f64) -> f64 {
        self.frames as f64 / seconds.max(1e-9) / 1e6
    }
}

impl Report {
    /// Creates an empty report for this machine.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let info = std::fs::read_to_string("/proc/cpuinfo")?;
        let model = info.lines().find_map(|line| line.strip_prefix("model name")).context("/proc/cpuinfo")?;
        Ok(Self {
            cpu_model: model.trim_start_matches(['\t', ' ', ':']).to_owned(),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            cpus: std::thread::available_parallelism()?.get(),
            inputs: Vec::new(),
            end_to_end: Vec::new(),
        })
    }

    /// The tables.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "# Unwinders over the same samples\n\n{}, {} CPUs, Linux {}. CPU time of one thread, the least of several \
             processes; cold is the first pass with everything read and built for it, warm the best later one.\n",
            self.cpu_model, self.cpus, self.kernel
        );
        for input in &self.inputs {
            input.write(&mut text);
        }
        if !self.end_to_end.is_empty() {
            text.push_str(
                "\n## From perf.data to folded stacks, CPU seconds of all processes\n\n\
                 | | perf.data | samples | perf script --no-inline, inferno-collapse-perf | fpprof export --no-inline perf.data | less | import, then export --no-inline | less | import, then export with inline frames | less |\n\
                 |---|---|---|---|---|---|---|---|---|---|\n",
            );
        }
        self.end_to_end.iter().for_each(|one| one.write(&mut text));
        text
    }
}

impl InputResult {
    fn write(&self, text: &mut String) {
        let mean = self.stack_bytes / self.samples.max(1);
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            text,
            "\n## {}\n\n{} samples, {mean} bytes of stack each\n\n\
             | | M frames/s cold | warm | ours is, cold | warm | complete | same stack as ours | where both complete | memory |\n\
             |---|---|---|---|---|---|---|---|---|\n",
            self.name, self.samples
        );
        let Some(ours) = self.engines.iter().find(|one| one.engine == Name::Ours) else { return };
        for one in &self.engines {
            let is_parallel = one.engine == Name::OursTwoThreads;
            let (cold, warm) = if is_parallel { (one.cold_wall_s, one.warm_wall_s) } else { (one.cold_s, one.warm_s) };
            // Threads only reduce wall time, so that is compared.
            let (our_cold, our_warm) =
                if is_parallel { (ours.cold_wall_s, ours.warm_wall_s) } else { (ours.cold_s, ours.warm_s) };
            let wall = if is_parallel { " (wall)" } else { "" };
            let _ = writeln!(
                text,
                "| {}{wall} | {:.2} | {:.2} | {:.2}× | {:.2}× | {:.2} % | {:.3} % | {:.3} % of {} | {:.1} MB |",
                one.engine.words(),
                one.rate(cold),
                one.rate(warm),
                cold / our_cold,
                warm / our_warm,
                share(one.complete, self.samples),
                share(one.same_as_ours, self.samples),
                share(one.both_complete_same, one.both_complete),
                one.both_complete,
                one.rss_bytes as f64 / 1e6,
            );
        }
        goals::write(&self.goals, text);
        let _ = writeln!(
            text,
            "\n{} different addresses. Ours keeps 21 bytes for the row of each, in one table for all threads that has \
             room for more, 128 KiB for each thread with those it met last, and nothing more for a module but its \
             sections.",
            ours.addresses
        );
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}
