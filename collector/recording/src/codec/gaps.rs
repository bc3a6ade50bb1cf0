//! Encodes and decodes gaps.

use super::varint::{Cursor, put, put_delta};
use crate::model::{Gap, LossCause};

/// Causes by their number in a file.
const CAUSES: [LossCause; 9] = [
    LossCause::RingFull,
    LossCause::Throttled,
    LossCause::ExecWindow,
    LossCause::Unwritten,
    LossCause::Unattributed,
    LossCause::Nested,
    LossCause::TableFull,
    LossCause::Woken,
    LossCause::NoRing,
];
/// The event is stored above the cause in the same number: a reader that only supports one event refuses the others.
const EVENT_SHIFT: u32 = 8;

/// Collects the gaps of one block.
#[derive(Debug, Default)]
pub(crate) struct GapEncoder {
    payload: Vec<u8>,
    items: u32,
    start: u64,
}

impl GapEncoder {
    pub(crate) fn items(&self) -> u32 {
        self.items
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    pub(crate) fn clear(&mut self) {
        self.payload.clear();
        self.items = 0;
        self.start = 0;
    }

    pub(crate) fn push(&mut self, gap: &Gap) {
        self.items += 1;
        let out = &mut self.payload;
        put_delta(out, gap.start_ns, self.start);
        self.start = gap.start_ns;
        put(out, gap.end_ns.saturating_sub(gap.start_ns));
        put(out, u64::from(gap.cpu));
        let cause = CAUSES.iter().position(|&cause| cause == gap.cause).unwrap_or(CAUSES.len());
        put(out, u64::from(gap.event) << EVENT_SHIFT | cause as u64);
        put(out, gap.lost);
    }
}

/// Calls `visit` with the gaps of the payload. `Err` is the number of valid gaps, all of which have been visited.
pub(crate) fn decode_gaps(payload: &[u8], items: u32, mut visit: impl FnMut(&Gap)) -> Result<(), u64> {
    let mut bytes = Cursor::new(payload);
    let mut start = 0;
    for item in 0..items {
        visit(&gap(&mut bytes, &mut start).ok_or(item)?);
    }
    if bytes.is_empty() { Ok(()) } else { Err(u64::from(items)) }
}

fn gap(bytes: &mut Cursor<'_>, start: &mut u64) -> Option<Gap> {
    *start = bytes.delta(*start)?;
    let end_ns = start.checked_add(bytes.varint()?)?;
    let cpu = bytes.u32()?;
    let number = bytes.varint()?;
    let event = u16::try_from(number >> EVENT_SHIFT).ok()?;
    let cause = *CAUSES.get(usize::try_from(number & ((1 << EVENT_SHIFT) - 1)).ok()?)?;
    Some(Gap { cpu, event, start_ns: *start, end_ns, lost: bytes.varint()?, cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps() -> Vec<Gap> {
        let gap = |(i, &cause): (u64, &LossCause)| {
            let start_ns = 1_000_000 * (CAUSES.len() as u64 - i);
            let cpu = u32::try_from(i).unwrap() % 2;
            let event = [0, 1, u16::MAX][usize::try_from(i % 3).unwrap()];
            Gap { cpu, event, start_ns, end_ns: start_ns + i * 1000, lost: i + 1, cause }
        };
        (0..).zip(&CAUSES).map(gap).collect()
    }

    /// Check that gaps of every cause are decoded again, in any order of time, also after the encoder was reused.
    #[test]
    fn gaps_round_trip() {
        let mut encoder = GapEncoder::default();
        encoder.push(&gaps()[3]);
        encoder.clear();
        gaps().iter().for_each(|gap| encoder.push(gap));
        let mut found = Vec::new();
        assert_eq!(decode_gaps(encoder.payload(), encoder.items(), |gap| found.push(*gap)), Ok(()));
        assert_eq!(found, gaps());
    }

    /// Check that truncated payloads, unknown causes and excessive end times are refused after the valid gaps.
    #[test]
    fn nonsense_is_refused() {
        let mut encoder = GapEncoder::default();
        gaps().iter().take(2).for_each(|gap| encoder.push(gap));
        let payload = encoder.payload();
        for len in 0..payload.len() {
            let mut n_visited = 0;
            let good = decode_gaps(&payload[..len], 2, |_| n_visited += 1).unwrap_err();
            assert_eq!(good, n_visited, "cut to {len} bytes");
        }
        assert_eq!(decode_gaps(payload, 1, |_| {}), Err(1));
        let unknown_cause = [0, 0, 0, u8::try_from(CAUSES.len()).unwrap(), 1];
        assert_eq!(decode_gaps(&unknown_cause, 1, |_| {}), Err(0));
        let mut late = Vec::new();
        put_delta(&mut late, u64::MAX, 0);
        late.extend_from_slice(&[1, 0, 0, 1]);
        assert_eq!(decode_gaps(&late, 1, |_| {}), Err(0));
    }
}
