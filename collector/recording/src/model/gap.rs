//! When samples were lost.

use super::LossCause;

/// Samples that one CPU lost one after the other for one cause, with none recorded between them.
///
/// In a recording that ended in order and is undamaged, the gaps of a CPU, event and cause add up to what its balance
/// ([`super::CpuCounters::lost`]) says was lost. A recording that broke off lacks the gaps that were open then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Which CPU.
    pub cpu: u32,
    /// Samples of which event: index into [`super::Meta::events`].
    pub event: u16,
    /// When the first of them would have been taken, or when the kernel began to throttle; `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// When the last of them would have been taken, or when the kernel throttled no more. Equal to the start for one
    /// sample.
    pub end_ns: u64,
    /// Samples.
    pub lost: u64,
    /// Why.
    pub cause: LossCause,
}
