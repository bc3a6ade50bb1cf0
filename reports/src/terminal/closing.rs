//! The closing lines of every recording: balance, volume, own cost.

use super::overhead::overhead;
use super::paint::INDENT;
use super::{Paragraph, Style, Tone};
use crate::escape::shown;
use crate::figures::{byte_count, bytes, count, nanoseconds, plural, seconds};
use fpprof_analysis::summary::{Cost, Summary, Waits};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The figures of the closing lines, of a new recording or one read from a file.
#[derive(Debug, Clone, Copy)]
pub struct Closing<'a> {
    /// Ticks of the sampling event.
    pub fired: u64,
    /// Samples recorded.
    pub recorded: u64,
    /// Samples lost, by cause.
    pub lost: &'a BTreeMap<String, u64>,
    /// Ticks in something that is not profiled.
    pub skipped: u64,
    /// Samples that were taken but could not be written.
    pub dropped: u64,
    /// Number of gaps; `None` if unknown.
    pub lost_gaps: Option<u64>,
    /// Process events the kernel lost.
    pub sideband_lost: u64,
    /// Size of the recording in bytes.
    pub file_bytes: u64,
    /// The same per sample of any event; `None` without samples.
    pub file_bytes_per_sample: Option<f64>,
    /// Bytes passed through the ring buffers per sample, before compression; `None` if unknown.
    pub ring_bytes_per_sample: Option<f64>,
    /// Length of the recording in seconds.
    pub duration_s: f64,
    /// The recorder's own cost; `None` if the recording has none (it was cut, or made by another program).
    pub cost: Option<&'a Cost>,
    /// Whether another program recorded.
    pub is_imported: bool,
    /// Whether a BPF program took the samples; then its run time is listed.
    pub is_ebpf: bool,
}

impl<'a> From<&'a Summary> for Closing<'a> {
    fn from(summary: &'a Summary) -> Self {
        let is_imported = summary.environment.collector == "imported";
        Self {
            fired: summary.fired,
            recorded: summary.recorded,
            lost: &summary.lost,
            skipped: summary.skipped,
            dropped: summary.dropped,
            lost_gaps: Some(summary.lost_gaps),
            sideband_lost: summary.sideband_lost,
            file_bytes: summary.file_bytes,
            file_bytes_per_sample: (summary.recorded > 0).then_some(summary.volume.bytes_per_sample),
            ring_bytes_per_sample: summary
                .volume
                .ring_bytes_per_sample
                .filter(|_| summary.recorded > 0 && summary.blocked_ns.is_none() && !is_imported),
            duration_s: summary.duration_s,
            cost: summary.cost.as_ref(),
            is_imported,
            is_ebpf: summary.environment.collector == "ebpf",
        }
    }
}

/// Writes balance, volume, own cost, and the parts of the cost.
///
/// # Errors
/// If the writer fails.
pub fn closing(closing: &Closing<'_>, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    balance(closing).write(style, out)?;
    volume(closing).write(style, out)?;
    own_cost(closing).write(style, out)?;
    closing.cost.map_or(Ok(()), |cost| overhead(&cost.overhead, style, out))
}

/// Writes the balance of waits, which are an event of their own.
///
/// # Errors
/// If the writer fails.
pub fn waits_line(waits: &Waits, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let n_lost = waits.lost.values().fold(0_u64, |sum, &n| sum.saturating_add(n));
    let mut line = Paragraph::new("off-cpu", INDENT);
    line.part(Tone::Plain, format!("left the CPU {}", count(waits.fired)))
        .part(Tone::Plain, format!("= recorded {} ({} blocked)", count(waits.recorded), blocked(waits.blocked_ns)))
        .part(if n_lost > 0 { Tone::Warn } else { Tone::Plain }, format!("+ lost {}", count(n_lost)));
    for (cause, &n) in waits.lost.iter().filter(|&(_, &n)| n > 0) {
        line.part(Tone::Plain, format!("({} {})", shown(cause), count(n)));
    }
    let not_sampled = waits.not_sampled;
    let in_all = match not_sampled.short {
        0 => String::new(),
        _ => format!(", {} in all", blocked(not_sampled.short_ns)),
    };
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let threshold = nanoseconds(waits.threshold_ns as f64);
    line.part(Tone::Plain, format!("+ skipped {}", count(waits.skipped)))
        .part(Tone::Plain, format!("({} shorter than {threshold}{in_all};", count(not_sampled.short)))
        .part(Tone::Plain, format!("{} preempted)", count(not_sampled.preempted)))
        .part(if waits.dropped > 0 { Tone::Warn } else { Tone::Plain }, format!("+ dropped {}", count(waits.dropped)));
    let rest = unaccounted_of(waits.fired, [waits.recorded, n_lost, waits.skipped, waits.dropped]);
    if rest != 0 {
        line.part(Tone::Bad, format!("+ {rest} unaccounted for: the balance does not hold"));
    }
    line.write(style, out)
}

/// Formats the duration of waits.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) fn blocked(ns: u64) -> String {
    match ns {
        0..1_000_000 => nanoseconds(ns as f64),
        _ => seconds(ns as f64 / 1e9),
    }
}

/// The balance with all its terms, so that a reader can check the sum.
fn balance(closing: &Closing<'_>) -> Paragraph {
    let n_lost = closing.lost.values().fold(0_u64, |sum, &n| sum.saturating_add(n));
    let mut line = Paragraph::new("balance", INDENT);
    // perf does not count the ticks that fired.
    if closing.is_imported {
        line.part(Tone::Dim, "fired unknown").part(Tone::Plain, format!("· recorded {}", count(closing.recorded)));
    } else {
        line.part(Tone::Plain, format!("fired {}", count(closing.fired)))
            .part(Tone::Plain, format!("= recorded {}", count(closing.recorded)));
    }
    line.part(if n_lost > 0 { Tone::Warn } else { Tone::Plain }, format!("+ lost {}", count(n_lost)));
    let causes: Vec<_> = closing.lost.iter().filter(|&(_, &n)| n > 0).collect();
    if !causes.is_empty() {
        // Without an end, it is not known how many of the last ticks were skipped.
        let is_end_missing = !closing.is_imported && closing.cost.is_none();
        let at_most = |cause: &str| if is_end_missing && cause == "unwritten" { "at most " } else { "" };
        let by_cause = causes.iter().map(|&(cause, &n)| format!("{} {}{}", shown(cause), at_most(cause), count(n)));
        line.part(Tone::Plain, format!("({})", by_cause.collect::<Vec<_>>().join(", ")));
    }
    if !closing.is_imported {
        line.part(Tone::Plain, format!("+ skipped {}", count(closing.skipped)));
        let tone = if closing.dropped > 0 { Tone::Warn } else { Tone::Plain };
        line.part(tone, format!("+ dropped {}", count(closing.dropped)));
    }
    let rest = unaccounted(closing, n_lost);
    if rest != 0 {
        line.part(Tone::Bad, format!("+ {rest} unaccounted for: the balance does not hold"));
    }
    if let Some(gaps) = closing.lost_gaps.filter(|&gaps| gaps > 0) {
        line.part(Tone::Dim, format!("· lost in {} gap{}", count(gaps), plural(gaps)));
    }
    if closing.sideband_lost > 0 {
        let events = count(closing.sideband_lost);
        line.part(Tone::Warn, format!("· {events} process events lost; some mappings may be unknown"));
    }
    line
}

/// The difference between the two sides of the balance, from the printed numbers.
fn unaccounted(closing: &Closing<'_>, n_lost: u64) -> i128 {
    unaccounted_of(closing.fired, [closing.recorded, n_lost, closing.skipped, closing.dropped])
}

fn unaccounted_of(fired: u64, parts: [u64; 4]) -> i128 {
    parts.into_iter().fold(i128::from(fired), |rest, n| rest - i128::from(n))
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn volume(closing: &Closing<'_>) -> Paragraph {
    let mut line = Paragraph::new("volume", INDENT);
    line.part(Tone::Plain, byte_count(closing.file_bytes));
    if let Some(per_sample) = closing.file_bytes_per_sample {
        line.part(Tone::Plain, format!("· {} per sample", bytes(per_sample)));
    }
    if closing.duration_s > 0.0 {
        let per_minute = closing.file_bytes as f64 * 60.0 / closing.duration_s;
        line.part(Tone::Plain, format!("· {} per minute", bytes(per_minute)));
    }
    if let Some(ring) = closing.ring_bytes_per_sample {
        line.part(Tone::Plain, format!("· {} per sample before compression", bytes(ring)));
    }
    line
}

fn own_cost(closing: &Closing<'_>) -> Paragraph {
    let mut line = Paragraph::new("own cost", INDENT);
    let Some(cost) = closing.cost else {
        match closing.is_imported {
            true => line.words(Tone::Dim, "unknown: recorded by another program"),
            false => line.words(Tone::Warn, "unknown: the recording ends early"),
        };
        return line;
    };
    line.part(Tone::Plain, format!("{} CPU while sampling", seconds(cost.collector_cpu_s)))
        .part(Tone::Plain, format!("({:.1} % of one CPU)", cost.collector_cpu_percent))
        .part(
            Tone::Plain,
            format!("· {} to start, {} after the last sample", seconds(cost.start_cpu_s), seconds(cost.stop_cpu_s)),
        )
        .part(Tone::Plain, format!("· max RSS {}", byte_count(cost.max_rss_bytes)));
    if let Some(bytes) = cost.map_bytes {
        line.part(Tone::Plain, format!("· BPF maps {}", byte_count(bytes)));
    }
    match cost.bpf_ns_per_tick {
        Some(ns) => line.part(Tone::Plain, format!("· BPF {} per tick", nanoseconds(ns))),
        None if closing.is_ebpf => line.part(Tone::Dim, "· BPF time unknown (record with --stats)"),
        None => &mut line,
    };
    line
}
