//! The text format of `perf script`, which many tools read: `inferno-collapse-perf`, the Firefox Profiler, speedscope.
//!
//! Addresses are relative to the file, not to the process. An inlined function has a line of its own.
//!
//! # Sources
//! `perf_sample__fprintf_start` in `tools/perf/builtin-script.c`, `sample__fprintf_callchain` in
//! `tools/perf/util/evsel_fprintf.c`.

use super::{NS_PER_S, event_of, row};
use crate::escape::visible;
use fpprof_analysis::folded::{Origin, marker};
use fpprof_analysis::profile::{Profile, ProfileFrame, ProfileSample};
use std::borrow::Cow;
use std::io::{self, Write};

/// Writes the profile, one paragraph per sample, also of those that an aggregated recording counts together. Times are in
/// `CLOCK_MONOTONIC`.
///
/// # Errors
/// If the writer fails.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let frames: Vec<String> = profile.frames.iter().map(|frame| lines(profile, frame)).collect();
    for (sample, weight) in profile.samples.iter().flat_map(each) {
        head(profile, sample, weight, out)?;
        let stack = row(&profile.stacks, sample.stack);
        for &frame in stack.map_or(&[][..], |stack| &stack.frames) {
            out.write_all(row(&frames, frame).map_or(&[][..], |lines| lines.as_bytes()))?;
        }
        if let Some(end) = stack.and_then(|stack| marker(stack.stop)) {
            writeln!(out, "\t{:16x} {end} ([unknown])", 0)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The samples that were counted together, each with its part of the weight: the last has the rest.
fn each(sample: &ProfileSample) -> impl Iterator<Item = (&ProfileSample, u64)> {
    let n = sample.samples.max(1);
    let part = sample.weight / n;
    (1..=n)
        .map(move |at| (sample, if at == n { sample.weight.saturating_sub(part.saturating_mul(n - 1)) } else { part }))
}

fn head(profile: &Profile, sample: &ProfileSample, weight: u64, out: &mut dyn Write) -> io::Result<()> {
    let (Some(thread), Some(event)) = (row(&profile.threads, sample.thread), event_of(profile, sample)) else {
        return Ok(());
    };
    let time_ns = profile.recorded.start_ns.saturating_add(sample.time_ns);
    writeln!(
        out,
        "{} {}/{} [{:03}] {}.{:06}: {:10} {}: ",
        name(&thread.comm, thread.tid.cast_signed()),
        // An exiting thread does not have them; perf prints -1 then.
        thread.pid.cast_signed(),
        thread.tid.cast_signed(),
        sample.cpu,
        time_ns / NS_PER_S,
        time_ns % NS_PER_S / 1000,
        weight,
        visible(&event.name),
    )
}

/// The name of a thread. Readers take a line that begins with a blank for a frame.
fn name(comm: &str, tid: i32) -> Cow<'_, str> {
    let shown = visible(comm);
    match shown.strip_prefix(' ') {
        _ if shown.trim().is_empty() => format!(":{tid}").into(),
        Some(rest) => format!("\\u{{20}}{rest}").into(),
        None => shown,
    }
}

/// The lines of a frame; inlined functions come first, since stacks are leaf first.
fn lines(profile: &Profile, frame: &ProfileFrame) -> String {
    let module = frame.module.and_then(|module| row(&profile.modules, module));
    let module = match (module, frame.origin, frame.functions.first()) {
        (Some(module), ..) => visible(&module.path),
        (None, Origin::Kernel, Some(function)) if function.module == "[kernel]" => "[kernel.kallsyms]".into(),
        (None, _, Some(function)) if !function.module.is_empty() => visible(&function.module),
        _ => "[unknown]".into(),
    };
    let n_inlined = frame.functions.len().saturating_sub(1);
    let lines = frame.functions.iter().rev().enumerate().map(|(at, function)| {
        let module = if at < n_inlined { "inlined" } else { &*module };
        format!("\t{:16x} {} ({module})\n", frame.address, visible(&function.name))
    });
    lines.collect()
}
