//! Adapts the sampling rate and the size of chunks, to keep the agent below its limits.

use super::config::Limits;
use fpprof_recording::model::CaptureMode;

/// The smallest size that chunks are reduced to.
const MIN_STACK_BYTES: u32 = 16 << 10;
/// Calm intervals in a row before the effort is increased by a step.
const CALM_INTERVALS: u32 = 10;

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
}

/// Decides on steps: down after an interval above a limit, up after [`CALM_INTERVALS`] calm ones: below half of the CPU
/// limit and below the memory limit.
#[derive(Debug)]
pub(crate) struct Governor {
    limits: Limits,
    /// The configured effort, which is never exceeded.
    wanted: Effort,
    now: Effort,
    n_calm: u32,
}

impl Governor {
    pub(crate) fn new(wanted: Effort, limits: Limits) -> Self {
        Self { limits, wanted, now: wanted, n_calm: 0 }
    }

    /// The current effort.
    pub(crate) fn effort(&self) -> Effort {
        self.now
    }

    /// Records the cost of an interval; returns the step taken, `None` if the effort does not change.
    pub(crate) fn note(&mut self, used: Used) -> Option<Step> {
        let Limits { cpu_percent, memory } = self.limits;
        let is_above = used.cpu_percent > cpu_percent || used.rss_bytes > memory;
        let is_calm = used.cpu_percent < cpu_percent / 2.0 && used.rss_bytes < memory;
        self.n_calm = if is_calm { self.n_calm.saturating_add(1) } else { 0 };
        let (step, next) = match (is_above, self.n_calm >= CALM_INTERVALS) {
            (true, _) => (Step::Down, self.now.less()),
            (false, true) => (Step::Up, self.now.more(self.wanted)),
            (false, false) => return None,
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
        assert_eq!(steps(&mut governor, BUSY, 2), [Step::Down; 2]);
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

    /// Check that the memory limit holds, and that in a mode without chunks only the rate changes.
    #[test]
    fn memory_counts() {
        let wanted = Effort { rate: 19, mode: CaptureMode::Fp };
        let mut governor = Governor::new(wanted, LIMITS);
        assert_eq!(governor.note(Used { cpu_percent: 0.0, rss_bytes: 2 << 30 }), Some(Step::Down));
        assert_eq!(governor.effort(), Effort { rate: 9, mode: CaptureMode::Fp });
    }
}
