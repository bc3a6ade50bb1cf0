//! The cost of one interrupt of the sampling event to the interrupted thread.
//!
//! The kernel measures the program's own time inside the interrupt; nothing accounts for the rest (entry, timer, exit,
//! and in a virtual machine the hypervisor). So a thread that does nothing but read the clock is sampled for some
//! milliseconds without any program: each interrupt is a gap between two of its readings.

use crate::event::Event;
use crate::sys::{PerfEvent, monotonic_ns};
use fpprof_recording::model::Sampling;

/// Stop after this many interrupts: some 5 ms.
const ENOUGH_GAPS: usize = 100;
/// Stop after this time at the latest, on a machine where this thread hardly runs.
const MOST_NS: u64 = 50_000_000;
/// Sampling period in nanoseconds, or in cycles of a processor of some 3 GHz.
const PERIOD_NS: u64 = 50_000;
const PERIOD_CYCLES: u64 = 150_000;
/// With fewer gaps there is no result: the event was throttled, or this thread hardly ran.
const MIN_GAPS: usize = 30;
/// Number of readings that determine how long a reading takes.
const READINGS: usize = 1000;

/// Nanoseconds that one interrupt takes from the interrupted thread, without any program; `None` if that cannot be
/// observed, and for events that reading the clock does not trigger. The median, so that neither scheduling nor other
/// interrupts matter.
pub(super) fn interrupt_ns(event: &Event) -> Option<u64> {
    let period = match event.name() {
        _ if event.is_timer() => PERIOD_NS,
        "cycles" => PERIOD_CYCLES,
        _ => return None,
    };
    let event = PerfEvent::of_this_thread(event, Sampling::Period(period)).ok()?;
    let mut steps: Vec<u64> = (0..READINGS).map(|_| step(&mut monotonic_ns())).collect();
    let reading_ns = median(&mut steps)?;
    let is_gap = |ns: u64| ns > reading_ns.saturating_mul(4).max(200);
    let mut gaps: Vec<u64> = Vec::with_capacity(READINGS);
    event.enable().ok()?;
    let mut last = monotonic_ns();
    let end = last.saturating_add(MOST_NS);
    while last < end && gaps.len() < ENOUGH_GAPS {
        let ns = step(&mut last);
        if is_gap(ns) {
            gaps.push(ns.saturating_sub(reading_ns));
        }
    }
    event.disable().ok()?;
    if gaps.len() < MIN_GAPS { None } else { median(&mut gaps) }
}

/// Time since `last`, which is set to now.
fn step(last: &mut u64) -> u64 {
    let now = monotonic_ns();
    now.saturating_sub(std::mem::replace(last, now))
}

fn median(values: &mut [u64]) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an interrupt is observed, and that it takes more than a function call and less than a context switch.
    #[test]
    fn an_interrupt_has_a_price() {
        let found = (0..20).find_map(|_| interrupt_ns(&Event::cpu_clock())).expect("the timer interrupts this thread");
        assert!((200..1_000_000).contains(&found), "{found} ns");
    }
}
