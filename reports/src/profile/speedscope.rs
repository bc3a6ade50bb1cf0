//! speedscope's own format: one profile per thread and event, with its stacks in order of time and their weights.
//!
//! # Sources
//! `src/lib/file-format-spec.ts` of github.com/jlfwong/speedscope.

use super::{NANOSECONDS, row, value_type};
use crate::escape::visible;
use fpprof_analysis::folded::marker;
use fpprof_analysis::profile::{Function, Profile, ProfileSample};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'p> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    shared: Shared<'p>,
    profiles: Vec<Sampled>,
    active_profile_index: usize,
    exporter: String,
}

#[derive(Serialize)]
struct Shared<'p> {
    frames: Vec<Frame<'p>>,
}

#[derive(Serialize, Clone, PartialEq, Eq, Hash)]
struct Frame<'p> {
    name: Cow<'p, str>,
    /// The source file if known, else the module.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<Cow<'p, str>>,
}

/// The stacks of a thread.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Indices of frames, root first.
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

/// Writes the profile as JSON.
///
/// # Errors
/// If the writer fails.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut frames = Frames::default();
    let stacks = stacks(profile, &mut frames);
    let mut by_thread: BTreeMap<(u32, u32), Vec<&ProfileSample>> = BTreeMap::new();
    for sample in &profile.samples {
        by_thread.entry((sample.thread, sample.event)).or_default().push(sample);
    }
    let profiles = by_thread.iter().map(|(&of, samples)| sampled(profile, of, samples, &stacks));
    let mut profiles: Vec<Sampled> = profiles.collect();
    profiles.sort_by_key(|sampled| std::cmp::Reverse(sampled.end_value));
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        shared: Shared { frames: frames.values },
        profiles,
        active_profile_index: 0,
        exporter: profile.recorded.recorder.clone(),
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

/// The table of frames, without duplicates: frames that differ only in their address are one.
#[derive(Default)]
struct Frames<'p> {
    values: Vec<Frame<'p>>,
    numbers: HashMap<Frame<'p>, u32>,
}

impl<'p> Frames<'p> {
    fn number(&mut self, frame: Frame<'p>) -> u32 {
        *self.numbers.entry(frame).or_insert_with_key(|frame| {
            self.values.push(frame.clone());
            u32::try_from(self.values.len()).unwrap_or(u32::MAX).saturating_sub(1)
        })
    }

    fn function(&mut self, function: &'p Function) -> u32 {
        let file = function.line.as_ref().map_or(&function.module, |line| &line.file);
        let file = (!file.is_empty()).then(|| visible(file));
        self.number(Frame { name: visible(&function.name), file })
    }
}

/// The frames of every stack, root first.
fn stacks<'p>(profile: &'p Profile, frames: &mut Frames<'p>) -> Vec<Vec<u32>> {
    let stack = |stack: &'p fpprof_analysis::profile::ProfileStack| {
        let end = marker(stack.stop).map(|end| frames.number(Frame { name: Cow::Owned(end), file: None }));
        let rows = stack.frames.iter().rev().filter_map(|&frame| row(&profile.frames, frame));
        let functions = rows.flat_map(|frame| &frame.functions).map(|function| frames.function(function));
        end.into_iter().chain(functions.collect::<Vec<_>>()).collect()
    };
    profile.stacks.iter().map(stack).collect()
}

fn sampled(profile: &Profile, (thread, event): (u32, u32), samples: &[&ProfileSample], stacks: &[Vec<u32>]) -> Sampled {
    let event = row(&profile.events, event);
    let is_time = event.is_some_and(|event| value_type(event).1 == NANOSECONDS);
    let mut name = row(&profile.threads, thread).map_or_else(String::new, |of| {
        // 0 of a thread that a store does not have.
        let tid = if of.tid == 0 { String::new() } else { format!(" ({})", of.tid) };
        format!("{} ({}): {}{tid}", visible(&of.process), of.pid, visible(&of.comm))
    });
    if let (Some(event), true) = (event, profile.events.len() > 1) {
        name = format!("{name}, {}", visible(&event.name));
    }
    let mut runs: Vec<(u32, u64)> = Vec::new();
    for sample in samples {
        match runs.last_mut().filter(|(stack, _)| *stack == sample.stack) {
            Some((_, weight)) => *weight = weight.saturating_add(sample.weight),
            None => runs.push((sample.stack, sample.weight)),
        }
    }
    Sampled {
        r#type: "sampled",
        name,
        unit: if is_time { NANOSECONDS } else { "none" },
        start_value: 0,
        end_value: runs.iter().fold(0, |sum, &(_, weight)| sum.saturating_add(weight)),
        samples: runs.iter().map(|&(stack, _)| row(stacks, stack).cloned().unwrap_or_default()).collect(),
        weights: runs.iter().map(|&(_, weight)| weight).collect(),
    }
}
