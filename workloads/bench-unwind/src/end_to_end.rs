//! From a perf recording to folded stacks: perf and inferno's collapser, against `fpprof export` of perf's file and of
//! the recording that `fpprof import` makes of it.

use crate::clock::children_cpu_s;
use crate::inputs::{self, Input};
use crate::progress::print_progress;
use anyhow::{Context as _, ensure};
use inferno::collapse::Collapse as _;
use inferno::collapse::perf::{Folder, Options};
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// CPU seconds, the minimum of several runs.
#[derive(Debug, Serialize)]
pub(crate) struct EndToEnd {
    /// Name of the input.
    pub(crate) name: String,
    pub(crate) perf_data_bytes: u64,
    /// `perf script --no-inline | inferno-collapse-perf`.
    pub(crate) perf_s: f64,
    /// `fpprof export --format folded --no-inline` of perf's file.
    pub(crate) fpprof_in_place_s: f64,
    /// `fpprof import` and `fpprof export --format folded --no-inline`: symbolizes by the same tables as perf.
    pub(crate) fpprof_s: f64,
    /// The same with inline frames from DWARF, the default of `fpprof export`.
    pub(crate) fpprof_inlines_s: f64,
    /// Samples in fpprof's folded stacks.
    pub(crate) samples: u64,
    /// Sum of perf's folded stacks: samples weighted by their periods.
    pub(crate) perf_weight: u64,
    pub(crate) perf_all_s: Vec<f64>,
    pub(crate) fpprof_in_place_all_s: Vec<f64>,
    pub(crate) fpprof_all_s: Vec<f64>,
    pub(crate) fpprof_inlines_all_s: Vec<f64>,
}

/// Folds the output of perf script, as inferno-collapse-perf does by default.
pub(crate) fn collapse() -> anyhow::Result<()> {
    let mut folder = Folder::from(Options::default());
    Ok(folder.collapse(std::io::stdin().lock(), std::io::stdout().lock())?)
}

/// Records with perf unless that was already done, and measures both ways in turn.
pub(crate) fn measure(
    input: &Input,
    dir: &Path,
    fpprof: &Path,
    seconds: u64,
    rounds: usize,
) -> anyhow::Result<EndToEnd> {
    let data = dir.join(format!("{}.perf.data", input.name));
    if !data.exists() {
        print_progress(&format!("recording {} with perf", input.name));
        let mode = format!("dwarf,{}", input.stack_bytes);
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-e", "cpu-clock", "-F", "999", "--call-graph", &mode, "-o"]).arg(&data);
        perf.arg("--").args(inputs::command(input, dir, seconds)?).stdout(Stdio::null());
        run(&mut perf)?;
    }
    let (by_perf, by_fpprof) = (dir.join("perf.folded"), dir.join("fpprof.folded"));
    let imported = dir.join("perf.fpprof");
    let (mut perf_all_s, mut fpprof_in_place_all_s) = (Vec::new(), Vec::new());
    let (mut fpprof_all_s, mut fpprof_inlines_all_s) = (Vec::new(), Vec::new());
    for round in 0..rounds.max(1) {
        print_progress(&format!("{} end to end, round {}", input.name, round + 1));
        let before = children_cpu_s()?;
        let mut perf = Command::new("perf");
        perf.args(["script", "--no-inline", "-i"]).arg(&data).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut script = perf.spawn().context("perf")?;
        let text = script.stdout.take().context("a pipe was asked for")?;
        run(Command::new(std::env::current_exe()?).arg("collapse").stdin(text).stdout(File::create(&by_perf)?))?;
        ensure!(script.wait()?.success(), "perf script failed");
        let after_perf = children_cpu_s()?;
        perf_all_s.push(after_perf - before);
        export(fpprof, &data, &dir.join("fpprof-in-place.folded"), &["--no-inline"])?;
        let between = children_cpu_s()?;
        fpprof_in_place_all_s.push(between - after_perf);
        // Otherwise `import` would move the older recording aside.
        if imported.exists() {
            std::fs::remove_file(&imported)?;
        }
        run(Command::new(fpprof).arg("import").arg(&data).arg("-o").arg(&imported).stderr(Stdio::null()))?;
        let after_import = children_cpu_s()?;
        export(fpprof, &imported, &dir.join("fpprof-inlines.folded"), &[])?;
        let with_inlines = children_cpu_s()?;
        export(fpprof, &imported, &by_fpprof, &["--no-inline"])?;
        let import_s = after_import - between;
        fpprof_inlines_all_s.push(import_s + with_inlines - after_import);
        fpprof_all_s.push(import_s + children_cpu_s()? - with_inlines);
    }
    let in_place = std::fs::read(dir.join("fpprof-in-place.folded"))?;
    ensure!(in_place == std::fs::read(&by_fpprof)?, "{}: other stacks without an import", input.name);
    let least = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(EndToEnd {
        name: input.name.clone(),
        perf_data_bytes: std::fs::metadata(&data)?.len(),
        perf_s: least(&perf_all_s),
        fpprof_in_place_s: least(&fpprof_in_place_all_s),
        fpprof_s: least(&fpprof_all_s),
        fpprof_inlines_s: least(&fpprof_inlines_all_s),
        samples: samples(&by_fpprof)?,
        perf_weight: samples(&by_perf)?,
        perf_all_s,
        fpprof_in_place_all_s,
        fpprof_all_s,
        fpprof_inlines_all_s,
    })
}

fn export(fpprof: &Path, recording: &Path, folded: &Path, more: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(fpprof);
    command.args(["export", "--format", "folded", "--strategy", "dwarf"]).args(more).arg(recording);
    run(command.stdout(File::create(folded)?).stderr(Stdio::null()))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// The sum of the counts at the ends of folded lines.
fn samples(folded: &Path) -> anyhow::Result<u64> {
    let bytes = std::fs::read(folded)?;
    let text = String::from_utf8_lossy(&bytes);
    let counts = text.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    Ok(counts.sum())
}

impl EndToEnd {
    /// A row of the table.
    pub(crate) fn write(&self, text: &mut String) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {:.1} MB | {} | {:.3} | {:.3} | {:.1}× | {:.3} | {:.1}× | {:.3} | {:.1}× |",
            self.name,
            self.perf_data_bytes as f64 / 1e6,
            self.samples,
            self.perf_s,
            self.fpprof_in_place_s,
            self.perf_s / self.fpprof_in_place_s,
            self.fpprof_s,
            self.perf_s / self.fpprof_s,
            self.fpprof_inlines_s,
            self.perf_s / self.fpprof_inlines_s
        );
    }
}
