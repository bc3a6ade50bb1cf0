//! Waits: times when threads were blocked, off their CPUs. A separate event beside the sampled one.

use fpprof_recording::model::{Event, Measure, Sampling};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::time::Duration;

/// Index of the wait event in the recording.
pub(super) const WAITS: u16 = 1;

/// The most frames before the one that waited: those in which the kernel runs our program.
const MAX_OWN_FRAMES: usize = 8;

/// The wait event as the recording describes it.
pub(super) fn wait_event(threshold: Duration) -> Event {
    let threshold_ns = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
    Event { name: "off-cpu".to_owned(), sampling: Sampling::Period(1), measure: Measure::Blocked { threshold_ns } }
}

/// Address range of the kernel's scheduling function, from which our program runs; `None` if the kernel hides its
/// addresses.
pub(super) fn switching_code() -> Option<Range<u64>> {
    code_of("__schedule", BufReader::new(File::open("/proc/kallsyms").ok()?))
}

/// The range from a function to the next symbol with another address, in a table sorted by address.
fn code_of(name: &str, table: impl BufRead) -> Option<Range<u64>> {
    let symbols = table.lines().map_while(Result::ok).filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((address, words.nth(1)? == name))
    });
    let mut start = None;
    for (address, is_it) in symbols {
        match start {
            Some(start) if address > start => return Some(start..address),
            None if is_it && address > 0 => start = Some(address),
            _ => {}
        }
    }
    None
}

/// Removes the frames of our program from a kernel chain, so that it starts at the frame that waited.
pub(super) fn leave_out_own(chain: &mut Vec<u64>, switching: &Range<u64>) {
    if let Some(n) = chain.iter().take(MAX_OWN_FRAMES).position(|address| switching.contains(address)) {
        chain.drain(..n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a function ends where the next begins, that a hidden or missing one has no range, and that the real
    /// one is found if addresses are readable, as they may be for whoever runs these tests.
    #[test]
    fn code_ends_at_the_next_symbol() {
        let table =
            "00000000000000f0 T before\n0000000000000100 t it\n0000000000000100 t same\n0000000000000180 T next [m]\n";
        assert_eq!(code_of("it", table.as_bytes()), Some(0x100..0x180));
        assert_eq!(code_of("next", table.as_bytes()), None);
        assert_eq!(code_of("it", "0000000000000000 t it\n0000000000000000 t x\n".as_bytes()), None);
    }

    /// Check that only frames before the scheduling function are removed, and none if it is not near the leaf.
    #[test]
    fn own_frames_are_left_out() {
        let left = |chain: &[u64]| {
            let mut chain = chain.to_vec();
            leave_out_own(&mut chain, &(0x100..0x180));
            chain
        };
        assert_eq!(left(&[0x900, 0x800, 0x120, 0x700, 0x130]), [0x120, 0x700, 0x130]);
        assert_eq!(left(&[0x120, 0x700]), [0x120, 0x700]);
        let far: Vec<u64> = (0x200..0x220).chain([0x120]).collect();
        assert_eq!(left(&far), far);
    }
}
