//! Adapts the sampling rate and the size of chunks, to keep the agent below its limits.

use super::config::Limits;
use fpprof_recording::model::CaptureMode;
use std::collections::VecDeque;

/// The smallest size that chunks are reduced to.
const MIN_STACK_BYTES: u32 = 16 << 10;
/// Calm intervals in a row before the effort is increased by a step.
const CALM_INTERVALS: u32 = 10;
/// Share of the CPU time with the configured effort from which on the least effort saves too little.
const SAVES_LITTLE: f64 = 0.75;
/// The cost of the configured effort is the least of so many intervals: one may have cost more for other reasons.
const COMPARED_INTERVALS: usize = 3;
/// Intervals without a step down for CPU time after that.
const HELD_INTERVALS: u32 = 60;

/// The sampling rate, in samples per second on each CPU, and the mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effort {
    pub(crate) rate: u64,
    pub(crate) mode: CaptureMode,
}

/// The agent's own cost of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Used {
    /// Per cent of the CPU time of all CPUs.
    pub(crate) cpu_percent: f64,
    /// Resident memory at the end of the interval.
    pub(crate) rss_bytes: u64,
}

/// The direction of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Down,
    Up,
    /// Back to the configured effort at once, as the least saved too little.
    Undone,
}

/// Decides on steps: down after an interval above a limit, up after [`CALM_INTERVALS`] calm ones: below half of the CPU
/// limit and below the memory limit.
///
/// Where processes start, end and map files all the time, these events may cost more than all samples. If even the least
/// effort is above the CPU limit and takes nearly as much as the configured one did, samples would be lost for nothing: so the
/// configured effort is restored, for [`HELD_INTERVALS`] or until it takes more than that.
#[derive(Debug)]
pub(crate) struct Governor {
    limits: Limits,
    /// The configured effort, which is never exceeded.
    wanted: Effort,
    now: Effort,
    n_calm: u32,
    /// CPU time of the last intervals with the configured effort.
    wanted_cpu_percent: VecDeque<f64>,
    /// How many intervals no step down is taken for CPU time, and what the least effort took before.
    held: Option<(u32, f64)>,
}

impl Governor {
    pub(crate) fn new(wanted: Effort, limits: Limits) -> Self {
        Self { limits, wanted, now: wanted, n_calm: 0, wanted_cpu_percent: VecDeque::new(), held: None }
    }

    /// The current effort.
    pub(crate) fn effort(&self) -> Effort {
        self.now
    }

    /// Records the cost of an interval; returns the step taken, `None` if the effort does not change.
    pub(crate) fn note(&mut self, used: Used) -> Option<Step> {
        let Limits { cpu_percent, memory } = self.limits;
        let is_wanted = self.now == self.wanted;
        if is_wanted {
            self.wanted_cpu_percent.push_front(used.cpu_percent);
            self.wanted_cpu_percent.truncate(COMPARED_INTERVALS);
        }
        // If it takes much more than the least effort did, less effort would save something.
        let is_held = self.held.is_some_and(|(_, least)| !is_wanted || used.cpu_percent * SAVES_LITTLE <= least);
        if self.held.is_some() && !is_held {
            self.wanted_cpu_percent.truncate(1);
        }
        self.held = self.held.filter(|&(left, _)| is_held && left > 1).map(|(left, least)| (left - 1, least));
        let needs_memory = used.rss_bytes > memory;
        let needs_cpu = used.cpu_percent > cpu_percent && !is_held;
        let is_calm = used.cpu_percent < cpu_percent / 2.0 && used.rss_bytes < memory;
        self.n_calm = if is_calm { self.n_calm.saturating_add(1) } else { 0 };
        let before = self.wanted_cpu_percent.iter().copied().fold(f64::INFINITY, f64::min);
        let saves_little = self.now.less() == self.now && used.cpu_percent > SAVES_LITTLE * before;
        let (step, next) = if needs_cpu && !needs_memory && saves_little {
            self.held = Some((HELD_INTERVALS, used.cpu_percent));
            self.wanted_cpu_percent.clear();
            (Step::Undone, self.wanted)
        } else if needs_cpu || needs_memory {
            (Step::Down, self.now.less())
        } else if self.n_calm >= CALM_INTERVALS {
            (Step::Up, self.now.more(self.wanted))
        } else {
            return None;
        };
        self.n_calm = 0;
        let is_change = next != self.now;
        self.now = next;
        is_change.then_some(step)
    }
}

impl Effort {
    /// One step down: halves the chunks first, then the rate.
    fn less(self) -> Self {
        match stack_bytes(self.mode) {
            Some(bytes) if bytes > MIN_STACK_BYTES => self.with_stack_bytes((bytes / 2).max(MIN_STACK_BYTES)),
            _ => Self { rate: (self.rate / 2).max(1), ..self },
        }
    }

    /// One step up, in the reverse order.
    fn more(self, wanted: Self) -> Self {
        match (stack_bytes(self.mode), stack_bytes(wanted.mode)) {
            _ if self.rate < wanted.rate => Self { rate: (self.rate * 2).min(wanted.rate), ..self },
            (Some(bytes), Some(most)) => self.with_stack_bytes(bytes.saturating_mul(2).min(most)),
            _ => self,
        }
    }

    fn with_stack_bytes(self, bytes: u32) -> Self {
        let mode = match self.mode {
            CaptureMode::Dwarf { .. } => CaptureMode::Dwarf { stack_bytes: bytes },
            CaptureMode::Both { every, .. } => CaptureMode::Both { stack_bytes: bytes, every },
            other => other,
        };
        Self { mode, ..self }
    }
}

/// The size of chunks, for modes that copy every stack.
fn stack_bytes(mode: CaptureMode) -> Option<u32> {
    match mode {
        CaptureMode::Dwarf { stack_bytes } | CaptureMode::Both { stack_bytes, .. } => Some(stack_bytes),
        CaptureMode::Fp | CaptureMode::Cfi { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { cpu_percent: 1.0, memory: 1 << 30 };
    const BUSY: Used = Used { cpu_percent: 1.1, rss_bytes: 0 };
    const CALM: Used = Used { cpu_percent: 0.4, rss_bytes: 0 };

    fn steps(governor: &mut Governor, used: Used, n: usize) -> Vec<Step> {
        (0..n).filter_map(|_| governor.note(used)).collect()
    }

    /// Check that chunks shrink before the rate drops, that there is a floor, and that the configured effort returns,
    /// one step after every ten calm intervals.
    #[test]
    fn effort_follows_the_limits() {
        let wanted = Effort { rate: 19, mode: CaptureMode::Both { stack_bytes: 64 << 10, every: 1 } };
        let mut governor = Governor::new(wanted, LIMITS);
        let busier = Used { cpu_percent: 2.0, rss_bytes: 0 };
        assert_eq!(steps(&mut governor, busier, 2), [Step::Down; 2]);
        let small = CaptureMode::Both { stack_bytes: 16 << 10, every: 1 };
        assert_eq!(governor.effort(), Effort { rate: 19, mode: small });
        // Rates 9, 4, 2, 1, then no more steps.
        assert_eq!(steps(&mut governor, BUSY, 9), [Step::Down; 4]);
        assert_eq!(governor.effort(), Effort { rate: 1, mode: small });
        assert_eq!(steps(&mut governor, CALM, 9), []);
        // Above half of the CPU limit is not calm: the count restarts.
        assert_eq!(governor.note(Used { cpu_percent: 0.6, rss_bytes: 0 }), None);
        // Rates 2, 4, 8, 16, 19, then two steps of the chunks.
        assert_eq!(steps(&mut governor, CALM, 100), [Step::Up; 7]);
        assert_eq!(governor.effort(), wanted);
    }

    /// Check that the configured effort is restored if the least takes as much, that this is tried again after a while, and
    /// that it is not restored while memory is above its limit.
    #[test]
    fn effort_that_saves_nothing_is_restored() {
        let wanted = Effort { rate: 19, mode: CaptureMode::Fp };
        let mut governor = Governor::new(wanted, LIMITS);
        let descent = [Step::Down, Step::Down, Step::Down, Step::Down, Step::Undone];
        assert_eq!(steps(&mut governor, BUSY, 5), descent);
        assert_eq!(governor.effort(), wanted);
        assert_eq!(steps(&mut governor, BUSY, 60), []);
        assert_eq!(steps(&mut governor, BUSY, 5), descent);
        let full = Used { rss_bytes: 2 << 30, ..BUSY };
        assert_eq!(steps(&mut governor, full, 9), [Step::Down; 4]);
        assert_eq!(governor.effort().rate, 1);
    }

    /// Check that a single costly interval is no measure of what the configured effort costs, and that the effort is reduced
    /// again as soon as that costs more than the least did.
    #[test]
    fn restored_effort_is_compared_again() {
        let costs = |cpu_percent| Used { cpu_percent, rss_bytes: 0 };
        let wanted = Effort { rate: 19, mode: CaptureMode::Fp };
        let mut governor = Governor::new(wanted, LIMITS);
        assert_eq!(steps(&mut governor, costs(0.9), 3), []);
        assert_eq!(governor.note(costs(40.0)), Some(Step::Down));
        let back = [Step::Down, Step::Down, Step::Down, Step::Undone];
        assert_eq!(steps(&mut governor, costs(1.1), 4), back);
        assert_eq!(steps(&mut governor, costs(1.2), 9), []);
        assert_eq!(governor.note(costs(9.0)), Some(Step::Down));
        assert_eq!(steps(&mut governor, costs(1.1), 9), [Step::Down; 3], "of 1.2, it saves little; of 9, much");
    }

    /// Check that the memory limit holds, and that in a mode without chunks only the rate changes.
    #[test]
    fn memory_counts() {
        let wanted = Effort { rate: 19, mode: CaptureMode::Fp };
        let mut governor = Governor::new(wanted, LIMITS);
        assert_eq!(governor.note(Used { cpu_percent: 0.0, rss_bytes: 2 << 30 }), Some(Step::Down));
        assert_eq!(governor.effort(), Effort { rate: 9, mode: CaptureMode::Fp });
    }
}
