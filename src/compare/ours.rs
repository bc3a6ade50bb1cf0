//! The figures of a run from its fpprof recording.

use super::config::RunConfig;
use super::recorded::Recorded;
use super::watch::Watched;
use crate::cmd::flamegraph::draw;
use crate::output;
use crate::recordings::Source;
use fpprof_analysis::Analysis;
use fpprof_analysis::accuracy::Agreement;
use fpprof_analysis::experiment::{Attributed, Measured, Right, Run, StackEnds, Stacks};
use fpprof_recording::model::CaptureMode;
use fpprof_reports::page;
use std::collections::BTreeMap;
use std::path::Path;

/// File name of the page of the first repeat's recording with both kinds of stack.
pub(super) const STACKS: &str = "stacks.html";

/// Fills in the figures of one run from its recording, and draws its flame graphs in the first repeat.
///
/// # Errors
/// If the recording cannot be read or a picture cannot be drawn.
pub(crate) fn fill(
    config: &RunConfig,
    mode: CaptureMode,
    recording: &Path,
    name: &str,
    watched: &Watched,
    run: &mut Run,
) -> anyhow::Result<Recorded> {
    let shows_both = run.repeat == 0 && matches!(mode, CaptureMode::Both { .. });
    let analysis = Source::here(recording).analyse_for(&[], |options| options.page = shows_both)?;
    if shows_both {
        output::write_whole(&config.dir.join(STACKS), |mut out| page::html(&analysis, &mut out))?;
    }
    let summary = &analysis.summary;
    run.bytes = Measured::Value(summary.file_bytes);
    run.fired = Measured::Value(summary.fired);
    run.recorded = Measured::Value(summary.recorded);
    run.lost = Measured::Value(summary.lost.clone());
    run.skipped = Measured::Value(summary.skipped);
    run.dropped = Measured::Value(summary.dropped);
    run.lost_chunks = Measured::Value(summary.lost_gaps);
    let cost = summary.cost.as_ref();
    // Processes that parse for the recorder are not among its threads, so their time is added.
    run.collector_cpu_s = Measured::Value(watched.own_cpu_s + cost.map_or(0.0, |cost| cost.parser_cpu_s));
    let cut = "the recording ends early";
    run.collector_stop_cpu_s = Measured::or_missing(cost.map(|cost| cost.stop_cpu_s), cut);
    let bpf_ns = cost.and_then(|cost| cost.bpf_ns_per_tick);
    run.bpf_ns_per_sample = Measured::or_missing(bpf_ns, "BPF run time could not be measured");
    let attributed = cost.and_then(|cost| Attributed::of(&cost.overhead));
    run.attributed = Measured::or_missing(attributed, "part of the cost could not be measured");
    run.max_rss_bytes = Measured::Value(watched.max_rss_bytes);
    let strategies = strategies(mode).iter().map(|strategy| stacks(config, &analysis, strategy, name, run.repeat));
    run.stacks = Measured::Value(strategies.collect::<anyhow::Result<_>>()?);
    let is_pair = |pair: &&Agreement| ["dwarf", "cfi"].contains(&pair.reference.as_str()) && pair.other == "fp";
    let right = summary.agreements.iter().find(is_pair).map(|pair| {
        let worse = pair.relations.iter().filter(|(relation, _)| relation.is_worse()).map(|(_, &n)| n).sum();
        Right { compared: pair.samples, right: pair.samples.saturating_sub(worse) }
    });
    run.frame_pointers = Measured::or_missing(right, "needs both kinds of stack in the same samples");
    Recorded::read(recording)
}

/// The strategies by which a mode is judged, the main one first.
fn strategies(mode: CaptureMode) -> &'static [&'static str] {
    match mode {
        CaptureMode::Fp => &["fp"],
        CaptureMode::Dwarf { .. } => &["dwarf"],
        CaptureMode::Both { .. } => &["dwarf", "fp"],
        CaptureMode::Cfi { frame_pointers: false, .. } => &["cfi"],
        CaptureMode::Cfi { frame_pointers: true, .. } => &["cfi", "fp"],
    }
}

fn stacks(config: &RunConfig, analysis: &Analysis, strategy: &str, name: &str, repeat: u32) -> anyhow::Result<Stacks> {
    let flame_graph = if repeat == 0 && analysis.summary.recorded > 0 {
        let file = format!("{name}-{strategy}.svg");
        let subject = config.command.join(" ");
        draw(analysis, strategy, &subject, &config.dir.join(&file))?;
        Measured::Value(file)
    } else {
        Measured::missing("drawn for the first round only")
    };
    let mut processes: BTreeMap<String, StackEnds> = BTreeMap::new();
    for process in &analysis.summary.processes {
        if let Some(quality) = process.strategies.get(strategy) {
            processes.entry(process.comm.clone()).or_default().add(&StackEnds::from(quality));
        }
    }
    Ok(Stacks { strategy: strategy.to_owned(), unwound_by: None, processes, flame_graph })
}
