//! Encodes the frames of a walk by call frame information as the words of a chain.
//!
//! ```text
//! address 0, address 1, size 1, address 2, size 2 ...     size n = CFA n - CFA n-1 mod 2^64, or 0 where CFA n is 0
//! ```
//!
//! A size is a multiple of eight; how the frame was found is added to it.
//!
//! With sizes of frames instead of positions, a stack is the same chain at any depth. The leaf's CFA and the numbers of
//! the frames that signals interrupted are stored separately.

use super::state::MAX_CHAIN_FRAMES;
use crate::model::{CfiEnd, CfiFrame, FoundBy};

/// The most frames of a walk by call frame information: each frame except the leaf takes two words of a chain.
pub const MAX_CFI_FRAMES: usize = MAX_CHAIN_FRAMES / 2;

/// Added to the number of a walk's end if signals interrupted frames of it.
pub(super) const HAS_INTERRUPTED: u64 = 32;
const _: () = assert!(CfiEnd::ALL.len() as u64 <= HAS_INTERRUPTED, "no end has the number of another with it");

const _: () = assert!(2 * MAX_CFI_FRAMES - 1 <= MAX_CHAIN_FRAMES, "a reader takes the chain of the longest walk");

/// The bits of a size that say how the frame was found.
const UNIT_MASK: u64 = 7;

/// The words of the chain.
pub(super) fn words(frames: &[CfiFrame]) -> impl Iterator<Item = u64> + '_ {
    let leaf = frames.first().map(|leaf| leaf.address);
    let callers = frames.iter().zip(frames.iter().skip(1)).flat_map(|(callee, frame)| {
        let size = if frame.cfa == 0 { 0 } else { frame.cfa.wrapping_sub(callee.cfa) };
        [frame.address, size | frame.found_by.number()]
    });
    leaf.into_iter().chain(callers)
}

/// Decodes the frames of a non-empty chain; `None` if [`words`] cannot have encoded it.
pub(super) fn add_frames(chain: &[u64], leaf_cfa: u64, frames: &mut Vec<CfiFrame>) -> Option<()> {
    let (&address, callers) = chain.split_first()?;
    let (callers, []) = callers.as_chunks::<2>() else { return None };
    let mut callee = CfiFrame { address, cfa: leaf_cfa, is_instruction: true, found_by: FoundBy::Row };
    frames.push(callee);
    for &[address, word] in callers {
        if callee.cfa == 0 {
            return None;
        }
        let size = word & !UNIT_MASK;
        let found_by = *FoundBy::ALL.get(usize::try_from(word & UNIT_MASK).ok()?)?;
        let cfa = if size == 0 { 0 } else { Some(callee.cfa.wrapping_add(size)).filter(|&cfa| cfa != 0)? };
        callee = CfiFrame { address, cfa, is_instruction: false, found_by };
        frames.push(callee);
    }
    Some(())
}

/// The numbers of the frames after the leaf that signals interrupted, ascending.
pub(super) fn interrupted(frames: &[CfiFrame]) -> impl Iterator<Item = u64> + '_ {
    (0u64..).zip(frames).skip(1).filter(|(_, frame)| frame.is_instruction).map(|(number, _)| number)
}

/// The first frame that has its callee's CFA or is not a multiple of eight bytes from it, or whose callee has none. The
/// last CFA may be 0.
pub(super) fn out_of_place(frames: &[CfiFrame]) -> Option<(usize, CfiFrame)> {
    let callers = frames.iter().copied().enumerate().skip(1);
    let in_place = |callee: &CfiFrame, frame: &CfiFrame| {
        let size = if frame.cfa == 0 { 0 } else { frame.cfa.wrapping_sub(callee.cfa) };
        callee.cfa != 0 && callee.cfa != frame.cfa && size & UNIT_MASK == 0
    };
    frames.iter().zip(callers).find(|(callee, (_, frame))| !in_place(callee, frame)).map(|(_, caller)| caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(cfas: &[u64]) -> Vec<CfiFrame> {
        let frame = |(&cfa, address)| {
            let found_by = FoundBy::ALL[usize::try_from(address % 3).unwrap()];
            CfiFrame { address, cfa, is_instruction: address == 99, found_by }
        };
        cfas.iter().zip(99..).map(frame).collect()
    }

    /// Check that frames are decoded again, and that the chain is the same at any depth.
    #[test]
    fn frames_round_trip() {
        for cfas in [&[0][..], &[8], &[8, 0], &[8, 16, 4096], &[8, 4096, 16, 0], &[1, u64::MAX - 6, 9]] {
            let walk = frames(cfas);
            assert_eq!(out_of_place(&walk), None, "{cfas:?}");
            let chain: Vec<u64> = words(&walk).collect();
            assert_eq!(chain.len(), 2 * walk.len() - 1);
            let mut again = Vec::new();
            assert_eq!(add_frames(&chain, cfas[0], &mut again), Some(()), "{cfas:?}");
            assert_eq!(again, walk);
        }
        assert!(words(&frames(&[0x1010, 0x1040, 0])).eq(words(&frames(&[0x9010, 0x9040, 0]))));
        assert_eq!(words(&[]).count(), 0);
    }

    /// Check that misplaced frames are found: the first that has its callee's CFA, or a callee without one.
    #[test]
    fn frames_out_of_place_are_found() {
        let found = |cfas: &[u64]| out_of_place(&frames(cfas)).map(|(number, frame)| (number, frame.cfa));
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[8, 24, 16]), None, "another stack");
        assert_eq!(found(&[16, 16, 8]), Some((1, 16)));
        assert_eq!(found(&[8, 0, 24]), Some((2, 24)));
        assert_eq!(found(&[0, 8]), Some((1, 8)));
        assert_eq!(found(&[0, 0]), Some((1, 0)));
        assert_eq!(found(&[8, 20]), Some((1, 20)), "not a multiple of eight bytes");
    }

    /// Check that chains that no walk gives are refused.
    #[test]
    fn chains_of_no_walk_are_refused() {
        let add = |chain: &[u64], cfa| add_frames(chain, cfa, &mut Vec::new());
        assert_eq!(add(&[1, 2, 8], 8), Some(()));
        assert_eq!(add(&[], 8), None, "no leaf");
        assert_eq!(add(&[1, 2], 8), None, "a caller without a size");
        assert_eq!(add(&[1, 2, 8], 0), None, "a caller of the outermost frame");
        assert_eq!(add(&[1, 2, 0, 3, 8], 8), None, "likewise");
        assert_eq!(add(&[1, 2, u64::MAX - 7], 8), None, "a CFA of 0 by a size");
        assert_eq!((add(&[1, 2, 10], 8), add(&[1, 2, 11], 8)), (Some(()), None), "found in no known way");
    }
}
