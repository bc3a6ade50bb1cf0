//! Prints the closing lines of a recording.

use crate::output::{print_drawn, print_message, stderr_style};
use fpprof_analysis::overhead::{Setting, Ticks};
use fpprof_analysis::summary::{Cost, Waits, lost_by_cause};
use fpprof_collector::Outcome;
use fpprof_recording::model::{Collector, CpuCounters, EndReason};
use fpprof_reports::terminal::{Closing, closing, waits_line};
use std::path::Path;

/// What the samples were written to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Destination<'a> {
    /// A file, or `-`.
    Recording(&'a Path),
    /// A directory.
    Store(&'a Path),
}

/// Why a recording is not whole, if its file could not be written to the end.
pub(crate) fn write_failure(outcome: &Outcome, file: &Path) -> Option<String> {
    let EndReason::WriteFailed(errno) = outcome.end.reason else { return None };
    let error = std::io::Error::from_raw_os_error(errno);
    let dropped: u64 = outcome.end.cpus.iter().map(|cpu| cpu.dropped).sum();
    let file = file.display();
    Some(format!("fpprof: {file}: {error}; {dropped} samples were dropped; the recording up to there can be read"))
}

/// Prints the balance, the volume, the own cost and every note to stderr; `tick_s` is the time that a tick represents,
/// for events that count time.
///
/// # Errors
/// If stderr cannot be written.
pub(crate) fn print_outcome(
    outcome: &Outcome,
    tick_s: Option<f64>,
    destination: Destination<'_>,
) -> anyhow::Result<()> {
    let end = &outcome.end;
    let of_event = |event| end.cpus.iter().filter(move |cpu| cpu.event == event);
    let cpus: Vec<&CpuCounters> = of_event(0).collect();
    let lost = lost_by_cause(cpus.iter().copied());
    let total = |count: fn(&CpuCounters) -> u64| cpus.iter().map(|cpu| count(cpu)).sum::<u64>();
    let recorded = total(|cpu| cpu.recorded);
    let duration_s = outcome.duration.as_secs_f64();
    let (fired, skipped) = (total(|cpu| cpu.fired), total(|cpu| cpu.skipped));
    let setting = Setting { cpus: u32::try_from(cpus.len()).unwrap_or(u32::MAX), tick_s, duration_s };
    let cost = Cost::new(&end.own_cost, Ticks { fired, skipped }, setting);
    let words = Closing {
        fired,
        recorded,
        lost: &lost,
        skipped,
        dropped: total(|cpu| cpu.dropped),
        lost_gaps: None,
        sideband_lost: end.sideband_lost.events,
        file_bytes: outcome.bytes_written,
        file_bytes_per_sample: (outcome.samples > 0).then(|| as_f64(outcome.bytes_written) / as_f64(outcome.samples)),
        ring_bytes_per_sample: (recorded > 0).then(|| as_f64(end.own_cost.ring_bytes) / as_f64(recorded)),
        duration_s,
        cost: Some(&cost),
        is_imported: false,
        is_ebpf: outcome.collector == Collector::Ebpf,
    };
    let mut text = Vec::new();
    closing(&words, &stderr_style(), &mut text)?;
    if let Some(waits) = Waits::new(&outcome.events, &end.cpus, outcome.blocked_ns) {
        waits_line(&waits, &stderr_style(), &mut text)?;
    }
    print_drawn(String::from_utf8_lossy(&text).trim_end());
    for note in &outcome.notes {
        print_message(&format!("note      {note}"));
    }
    match destination {
        Destination::Recording(file) if file == Path::new("-") => {}
        Destination::Recording(file) => {
            print_message(&format!("recorded  {0} (fpprof report {0}; fpprof flamegraph {0})", file.display()));
        }
        Destination::Store(directory) => {
            print_message(&format!("stored    {0} (fpprof serve {0})", directory.display()))
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "figures for the eye; nanoseconds and bytes of a run are below 2^53")]
fn as_f64(value: u64) -> f64 {
    value as f64
}
