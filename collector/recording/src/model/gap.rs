//! When samples were lost.

use super::LossCause;

/// Consecutive samples that one CPU lost for one cause, with none recorded between them.
///
/// In an undamaged recording that ended in order, the gaps of a CPU, event and cause add up to the losses in its
/// balance ([`super::CpuCounters::lost`]). A recording that broke off lacks the gaps that were open then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The CPU.
    pub cpu: u32,
    /// The event of the samples: index into [`super::Meta::events`].
    pub event: u16,
    /// When the first sample would have been taken, or when the kernel began to throttle; `CLOCK_MONOTONIC`
    /// nanoseconds.
    pub start_ns: u64,
    /// When the last sample would have been taken, or when the kernel stopped throttling. Equal to the start for one
    /// sample.
    pub end_ns: u64,
    /// Number of lost samples.
    pub lost: u64,
    /// The cause.
    pub cause: LossCause,
}
