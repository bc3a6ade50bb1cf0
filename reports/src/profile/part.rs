//! A part of a profile, with only the table rows that its samples refer to.

use super::row;
use fpprof_analysis::profile::{Profile, ProfileFrame, ProfileSample, ProfileStack};
use std::collections::HashMap;

/// The profile of only these samples.
pub(super) fn part(profile: &Profile, samples: &[ProfileSample]) -> Profile {
    let [mut frames, mut stacks, mut threads, mut modules] = std::array::from_fn(|_| Table::default());
    let samples = samples.iter().map(|&sample| ProfileSample {
        thread: threads.number(sample.thread),
        stack: stacks.number(sample.stack),
        ..sample
    });
    let samples = samples.collect();
    let stacks = stacks.rows(&profile.stacks).into_iter().map(|stack| ProfileStack {
        frames: stack.frames.iter().map(|&frame| frames.number(frame)).collect(),
        ..stack
    });
    let stacks = stacks.collect();
    let frames = frames
        .rows(&profile.frames)
        .into_iter()
        .map(|frame| ProfileFrame { module: frame.module.map(|module| modules.number(module)), ..frame });
    let frames = frames.collect();
    Profile {
        recorded: profile.recorded.clone(),
        strategy: profile.strategy.clone(),
        events: profile.events.clone(),
        modules: modules.rows(&profile.modules),
        stacks,
        frames,
        threads: threads.rows(&profile.threads),
        samples,
        ..*profile
    }
}

/// The used rows of a table, in order of first use.
#[derive(Debug, Default)]
struct Table {
    used: Vec<u32>,
    numbers: HashMap<u32, u32>,
}

impl Table {
    /// The new index of a row.
    fn number(&mut self, of_whole: u32) -> u32 {
        *self.numbers.entry(of_whole).or_insert_with(|| {
            self.used.push(of_whole);
            u32::try_from(self.used.len()).unwrap_or(u32::MAX).saturating_sub(1)
        })
    }

    fn rows<T: Clone>(&self, whole: &[T]) -> Vec<T> {
        self.used.iter().filter_map(|&number| row(whole, number).cloned()).collect()
    }
}
