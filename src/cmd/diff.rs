//! `fpprof diff`: compares two recordings, or two strategies on the same samples.

use crate::exit::{DONE, FAILED, Usage};
use crate::gate::{Gate, percent};
use crate::output::{self, print_message};
use crate::recordings::Source;
use crate::worker::Files;
use anyhow::Context as _;
use fpprof_analysis::agreement::{AgreementOptions, Disagreement, disagreement};
use fpprof_analysis::changes::{Changes, Side, changes};
use fpprof_analysis::folded::Folded;
use fpprof_analysis::statistics;
use fpprof_analysis::strategy::Strategy;
use fpprof_analysis::{Analysis, summary::Summary};
use fpprof_reports::{agreement, flamegraph, json};
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Compare two recordings, or two strategies on one recording
///
/// Two files: which functions' shares grew and shrank, with confidence intervals. One file: where two strategies
/// disagree, at which frame first, why, and which is right, as far as the instructions before the return addresses
/// show it. Frames are compared by return address and frame address, so recursion does not confuse them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Strategies: fp, dwarf, dwarf@BYTES (with smaller chunks), cfi (recordings of that mode), sframe, elfutils (or libdw), libunwind.

Examples:
  fpprof diff before.fpprof after.fpprof
  fpprof diff before.fpprof after.fpprof --svg diff.svg
  fpprof diff run.fpprof --strategies dwarf,elfutils
  fpprof diff run.fpprof --strategies dwarf,fp --svg dwarf-to-fp.svg
  fpprof diff run.fpprof --strategies dwarf,elfutils --fail-below agreement=99 --json > diff.json"
)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    /// Second recording: FILE is before, this one after
    #[arg(value_name = "AFTER")]
    after: Option<PathBuf>,
    /// For one recording: two strategies, reference first [default: dwarf,fp]; for two recordings: one strategy
    #[arg(long, alias = "strategy", value_name = "S", value_delimiter = ',')]
    strategies: Vec<Strategy>,
    /// Also draw a differential flame graph: widths from the second, red grew, blue shrank, grey may be chance
    #[arg(long, value_name = "SVG")]
    svg: Option<PathBuf>,
    /// Number of examples to show for each reason to disagree
    #[arg(long, value_name = "N", default_value_t = 2)]
    examples: usize,
    /// Fail if fewer than PERCENT of the stacks complete under both strategies have the same frames
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with = "after")]
    min_same: Option<f64>,
    /// Fail if fewer than PERCENT of the samples have the same frames under both strategies (agreement=99)
    #[arg(long, value_name = "agreement=PERCENT", value_delimiter = ',', conflicts_with = "after")]
    fail_below: Vec<Gate>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// The files it may read and write.
    pub(crate) fn files(&self) -> Files {
        let mut files = self.source.files(self.svg.as_deref(), &self.strategies);
        files.inputs.extend(self.after.clone());
        files
    }
}

/// Runs the subcommand; returns the exit status.
///
/// # Errors
/// If a recording cannot be read or does not support a strategy.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    match &args.after {
        Some(after) => recordings(args, after),
        None => strategies(args),
    }
}

/// Compares two recordings.
fn recordings(args: &Args, after: &Path) -> anyhow::Result<u8> {
    if args.strategies.len() > 1 {
        let words = "two recordings are compared under one strategy; pass one to --strategies";
        return Err(Usage(words.to_owned()).into());
    }
    let sources = [args.source.clone(), Source { file: after.to_owned(), ..args.source.clone() }];
    let [before, after] = sources.each_ref().map(|source| source.analyse_counted(&args.strategies, false));
    let (before, after) = (before?, after?);
    let strategy = common_strategy(&before, &after)?;
    let filter = args.source.only.filter();
    let only = if filter.is_all() { String::new() } else { format!(" {filter}") };
    let labels = sources.each_ref().map(|source| format!("{}{only}", source.file.display()));
    let [old, new] = &labels;
    let sides = (view(&before, &strategy, old)?, view(&after, &strategy, new)?);
    for (side, _) in [&sides.0, &sides.1] {
        anyhow::ensure!(
            side.samples > 0,
            "{} has no samples under {strategy}: there is nothing to compare",
            side.label
        );
    }
    let mut report = changes(sides.0.clone(), sides.1.clone(), false);
    report.warnings = warnings(&before.summary, &after.summary, old, new);
    print(args, &report)?;
    draw(args, (old, sides.0.1), (new, sides.1.1), false)?;
    Ok(DONE)
}

/// The strategy to compare by if none is requested: one that both recordings have.
fn common_strategy(before: &Analysis, after: &Analysis) -> anyhow::Result<String> {
    let is_common = |name: &&String| before.folded.contains_key(*name) && after.folded.contains_key(*name);
    let candidates = [&before.default_strategy, &after.default_strategy];
    let common = candidates.into_iter().find(is_common).or_else(|| before.folded.keys().find(is_common));
    let Some(common) = common else {
        let modes = (&before.summary.environment.mode, &after.summary.environment.mode);
        anyhow::bail!(Usage(format!(
            "the recordings were made in modes {} and {}, whose default strategies differ; \
             pass one that both support, such as --strategies fp",
            modes.0, modes.1
        )));
    };
    Ok(common.clone())
}

fn view<'a>(analysis: &'a Analysis, strategy: &str, label: &str) -> anyhow::Result<(Side, &'a Folded)> {
    let folded = analysis.folded.get(strategy).context("the strategy was analysed")?;
    let quality = analysis.summary.strategies.get(strategy).context("the strategy was analysed")?;
    let no_stack = quality.no_stack.values().fold(0_u64, |sum, &n| sum.saturating_add(n));
    let side = Side {
        label: label.to_owned(),
        strategy: strategy.to_owned(),
        samples: quality.samples.saturating_add(no_stack),
        no_stack,
        complete: quality.complete,
    };
    Ok((side, folded))
}

/// Differences that make two recordings hard to compare, and the warnings of each.
fn warnings(before: &Summary, after: &Summary, old: &str, new: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    let (a, b) = (&before.environment, &after.environment);
    for (what, of_a, of_b) in [
        ("sampling event", &a.event, &b.event),
        ("rate", &a.rate, &b.rate),
        ("mode", &a.mode, &b.mode),
        ("kernel", &a.kernel, &b.kernel),
        ("CPU", &a.cpu_model, &b.cpu_model),
    ] {
        if of_a != of_b {
            warnings.push(format!("different {what}: {of_a} before, {of_b} after"));
        }
    }
    for (summary, label) in [(before, old), (after, new)] {
        let own = summary.damage.iter().chain(&summary.warnings);
        warnings.extend(own.map(|warning| format!("{label}: {warning}")));
    }
    warnings
}

fn print(args: &Args, report: &Changes) -> anyhow::Result<()> {
    output::write_whole(Path::new("-"), |mut out| match args.json {
        true => json::value(report, &mut out),
        false => fpprof_reports::changes::terminal(report, &output::style(), &mut out),
    })
}

/// Compares two strategies on one recording.
fn strategies(args: &Args) -> anyhow::Result<u8> {
    let asked = if args.strategies.is_empty() { &[Strategy::Dwarf, Strategy::Fp][..] } else { &args.strategies };
    let &[reference, other] = asked else {
        let words = "pass two strategies, such as --strategies dwarf,elfutils, or a second recording";
        return Err(Usage(words.to_owned()).into());
    };
    if args.fail_below.iter().any(Gate::is_about_completeness) {
        return Err(
            Usage("`diff` checks agreement=PERCENT only; `fpprof report` checks complete=PERCENT".to_owned()).into()
        );
    }
    let modules = args.source.modules();
    let mut recording = args.source.open()?;
    let options = AgreementOptions {
        reference,
        other,
        max_examples: args.examples,
        event: args.source.event.as_deref(),
        filter: args.source.only.filter(),
        resolver: &modules,
        unwinding: args.source.unwinding.options(),
        n_threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
    };
    let report = disagreement(&mut recording, &options).with_context(|| args.source.file.display().to_string())?;
    let mut failures: Vec<String> = args.min_same.and_then(|min| failure(&report, min)).into_iter().collect();
    for gate in &args.fail_below {
        failures.extend(gate.agreement(std::slice::from_ref(&report.agreement))?);
    }
    output::write_whole(Path::new("-"), |mut out| match args.json {
        true => json::value(&report, &mut out),
        false => agreement::terminal(&report, &output::style(), &mut out),
    })?;
    if args.svg.is_some() {
        let analysis = args.source.analyse_counted(&[reference, other], false)?;
        let (reference, other) = (reference.to_string(), other.to_string());
        let view = |name: &str| analysis.folded.get(name).context("the strategy was analysed");
        draw(args, (&reference, view(&reference)?), (&other, view(&other)?), true)?;
    }
    for failure in &failures {
        print_message(&format!("fpprof: {failure}"));
    }
    Ok(if failures.is_empty() { DONE } else { FAILED })
}

fn draw(args: &Args, before: (&str, &Folded), after: (&str, &Folded), same_samples: bool) -> anyhow::Result<()> {
    let Some(path) = &args.svg else { return Ok(()) };
    let side = |(label, folded)| flamegraph::Side { label, folded };
    output::write_whole(path, |mut out| {
        flamegraph::svg_difference(side(before), side(after), same_samples, &mut out).map_err(io::Error::from)
    })?;
    if path != Path::new("-") {
        print_message(&format!("{} (open it in a browser: click to zoom, Ctrl-F to search)", path.display()));
    }
    Ok(())
}

/// A failure if the share of equal stacks is below `min`, or if there is nothing to compare.
fn failure(report: &Disagreement, min: f64) -> Option<String> {
    let (same, all) = (report.agreement.both_complete_same, report.agreement.both_complete);
    let Some(percent) = statistics::percent(same, all) else {
        return Some("no stack is complete under both strategies".to_owned());
    };
    (percent < min).then(|| {
        format!("{same} of {all} stacks complete under both have the same frames ({percent:.3} %, required: {min} %)")
    })
}
