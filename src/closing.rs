//! The words a recording closes with.

use crate::output::{say, stderr_style};
use fpprof_analysis::summary::Cost;
use fpprof_collector::Outcome;
use fpprof_reports::terminal::{Closing, closing};
use std::collections::BTreeMap;
use std::path::Path;

/// Says the balance, the volume, the own cost and every note, on stderr.
///
/// # Errors
/// If stderr cannot be written.
pub(crate) fn say_outcome(outcome: &Outcome, file: &Path) -> anyhow::Result<()> {
    let end = &outcome.end;
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    for (cause, n) in end.cpus.iter().flat_map(|cpu| &cpu.lost) {
        *lost.entry(cause.name().to_owned()).or_default() += n;
    }
    let total = |count: fn(&fpprof_recording::model::CpuCounters) -> u64| end.cpus.iter().map(count).sum::<u64>();
    let recorded = total(|cpu| cpu.recorded);
    let duration_s = outcome.sampled_for.as_secs_f64();
    let cost = cost(outcome, total(|cpu| cpu.fired), duration_s);
    let words = Closing {
        fired: total(|cpu| cpu.fired),
        recorded,
        lost: &lost,
        skipped: total(|cpu| cpu.skipped),
        dropped: total(|cpu| cpu.dropped),
        lost_gaps: None,
        sideband_lost: end.sideband_lost.events,
        file_bytes: outcome.bytes_written,
        ring_bytes_per_sample: (recorded > 0).then(|| as_f64(end.own_cost.ring_bytes) / as_f64(recorded)),
        duration_s,
        cost: Some(&cost),
    };
    let mut text = Vec::new();
    closing(&words, &stderr_style(), &mut text)?;
    say(String::from_utf8_lossy(&text).trim_end());
    for note in &outcome.notes {
        say(&format!("note      {note}"));
    }
    if file != Path::new("-") {
        say(&format!("recorded  {0} (fpprof report {0}; fpprof flamegraph {0})", file.display()));
    }
    Ok(())
}

fn cost(outcome: &Outcome, fired: u64, duration_s: f64) -> Cost {
    let own = &outcome.end.own_cost;
    let all_ns = own.user_ns.saturating_add(own.system_ns);
    let collector_cpu_s = as_f64(all_ns.saturating_sub(own.after_stop_ns)) / 1e9;
    let per_tick = |ns: u64| if fired > 0 { Some(as_f64(ns) / as_f64(fired)) } else { None };
    Cost {
        collector_cpu_s,
        collector_cpu_percent: if duration_s > 0.0 { collector_cpu_s / duration_s * 100.0 } else { 0.0 },
        stop_cpu_s: as_f64(own.after_stop_ns) / 1e9,
        max_rss_bytes: own.max_rss_bytes,
        bpf_ns_per_tick: own.bpf_run_ns.and_then(per_tick),
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for the eye; nanoseconds and bytes of a run are below 2^53")]
fn as_f64(value: u64) -> f64 {
    value as f64
}
