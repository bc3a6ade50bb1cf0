//! How much is sampled, so that the agent stays below its limits.

use super::config::Limits;
use fpprof_recording::model::CaptureMode;

/// Smallest chunks that copied stacks are reduced to.
const MIN_STACK_BYTES: u32 = 16 << 10;
/// So many intervals below half of the limits, and it goes up a step.
const CALM_INTERVALS: u32 = 10;

/// Samples per second, and what is copied of each stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effort {
    pub(crate) rate: u64,
    pub(crate) mode: CaptureMode,
}

/// What an interval took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Used {
    /// Of the CPU time of the machine.
    pub(crate) cpu_percent: f64,
    /// Resident memory at its end.
    pub(crate) rss_bytes: u64,
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Down,
    Up,
}

/// Knows when to take a step: down after an interval above a limit, and up after [`CALM_INTERVALS`] below half of each.
#[derive(Debug)]
pub(crate) struct Governor {
    limits: Limits,
    /// What was asked for.
    wanted: Effort,
    now: Effort,
    n_calm: u32,
}

impl Governor {
    pub(crate) fn new(wanted: Effort, limits: Limits) -> Self {
        Self { limits, wanted, now: wanted, n_calm: 0 }
    }

    /// What is to be done now.
    pub(crate) fn effort(&self) -> Effort {
        self.now
    }

    /// Takes note of an interval; gives the step that it asks for, if there is one left.
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
    /// Smaller chunks first, then half the rate.
    fn less(self) -> Self {
        match stack_bytes(self.mode) {
            Some(bytes) if bytes > MIN_STACK_BYTES => self.with_stack_bytes((bytes / 2).max(MIN_STACK_BYTES)),
            _ => Self { rate: (self.rate / 2).max(1), ..self },
        }
    }

    /// The way back.
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
            CaptureMode::Both { .. } => CaptureMode::Both { stack_bytes: bytes },
            other => other,
        };
        Self { mode, ..self }
    }
}

/// Of modes that copy each stack.
fn stack_bytes(mode: CaptureMode) -> Option<u32> {
    match mode {
        CaptureMode::Dwarf { stack_bytes } | CaptureMode::Both { stack_bytes } => Some(stack_bytes),
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

    /// Check that chunks become smaller before the rate falls, that there is a floor, and that it comes back to what was asked
    /// for, one step after ten calm intervals.
    #[test]
    fn effort_follows_the_limits() {
        let wanted = Effort { rate: 19, mode: CaptureMode::Both { stack_bytes: 64 << 10 } };
        let mut governor = Governor::new(wanted, LIMITS);
        assert_eq!(steps(&mut governor, BUSY, 2), [Step::Down; 2]);
        let small = CaptureMode::Both { stack_bytes: 16 << 10 };
        assert_eq!(governor.effort(), Effort { rate: 19, mode: small });
        // 9, 4, 2, 1 and no further.
        assert_eq!(steps(&mut governor, BUSY, 9), [Step::Down; 4]);
        assert_eq!(governor.effort(), Effort { rate: 1, mode: small });
        assert_eq!(steps(&mut governor, CALM, 9), []);
        // Above half of the limit is not calm, and the count begins anew.
        assert_eq!(governor.note(Used { cpu_percent: 0.6, rss_bytes: 0 }), None);
        // 2, 4, 8, 16, 19, then the two of the chunks.
        assert_eq!(steps(&mut governor, CALM, 100), [Step::Up; 7]);
        assert_eq!(governor.effort(), wanted);
    }

    /// Check that memory has its limit, and that a mode without chunks has only its rate.
    #[test]
    fn memory_counts() {
        let wanted = Effort { rate: 19, mode: CaptureMode::Fp };
        let mut governor = Governor::new(wanted, LIMITS);
        assert_eq!(governor.note(Used { cpu_percent: 0.0, rss_bytes: 2 << 30 }), Some(Step::Down));
        assert_eq!(governor.effort(), Effort { rate: 9, mode: CaptureMode::Fp });
    }
}
