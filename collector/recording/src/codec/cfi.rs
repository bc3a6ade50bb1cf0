//! Encodes the frames of a walk by call frame information as the words of a chain.
//!
//! ```text
//! address 0, address 1, size 1, address 2, size 2 ...     size n = CFA n - CFA n-1, or 0 where CFA n is 0
//! ```
//!
//! With sizes of frames instead of positions, a stack is the same chain at any depth. The leaf's CFA is stored
//! separately.

use super::state::MAX_CHAIN_FRAMES;
use crate::model::CfiFrame;

/// The most frames of a walk by call frame information: each frame except the leaf takes two words of a chain.
pub const MAX_CFI_FRAMES: usize = MAX_CHAIN_FRAMES / 2;

const _: () = assert!(2 * MAX_CFI_FRAMES - 1 <= MAX_CHAIN_FRAMES, "a reader takes the chain of the longest walk");

/// The words of the chain.
pub(super) fn words(frames: &[CfiFrame]) -> impl Iterator<Item = u64> + '_ {
    let leaf = frames.first().map(|leaf| leaf.address);
    let callers = frames.iter().zip(frames.iter().skip(1)).flat_map(|(callee, frame)| {
        let size = if frame.cfa == 0 { 0 } else { frame.cfa.wrapping_sub(callee.cfa) };
        [frame.address, size]
    });
    leaf.into_iter().chain(callers)
}

/// Decodes the frames of a non-empty chain; `None` if [`words`] cannot have encoded it.
pub(super) fn add_frames(chain: &[u64], leaf_cfa: u64, frames: &mut Vec<CfiFrame>) -> Option<()> {
    let (&address, callers) = chain.split_first()?;
    let (callers, []) = callers.as_chunks::<2>() else { return None };
    let mut callee = CfiFrame { address, cfa: leaf_cfa };
    frames.push(callee);
    for &[address, size] in callers {
        if callee.cfa == 0 {
            return None;
        }
        let cfa = if size == 0 { 0 } else { callee.cfa.checked_add(size)? };
        callee = CfiFrame { address, cfa };
        frames.push(callee);
    }
    Some(())
}

/// The first frame that is not above its callee, or whose callee has no CFA. The last CFA may be 0.
pub(super) fn out_of_place(frames: &[CfiFrame]) -> Option<(usize, CfiFrame)> {
    let callers = frames.iter().copied().enumerate().skip(1);
    let in_place = |callee: &CfiFrame, frame: &CfiFrame| callee.cfa != 0 && (frame.cfa == 0 || callee.cfa < frame.cfa);
    frames.iter().zip(callers).find(|(callee, (_, frame))| !in_place(callee, frame)).map(|(_, caller)| caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(cfas: &[u64]) -> Vec<CfiFrame> {
        cfas.iter().zip(100..).map(|(&cfa, address)| CfiFrame { address, cfa }).collect()
    }

    /// Check that frames are decoded again, and that the chain is the same at any depth.
    #[test]
    fn frames_round_trip() {
        for cfas in [&[0][..], &[8], &[8, 0], &[8, 16, 4096], &[8, 16, 4096, 0], &[1, u64::MAX]] {
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

    /// Check that misplaced frames are found: the first that is not above its callee, or has a callee without a CFA.
    #[test]
    fn frames_out_of_place_are_found() {
        let found = |cfas: &[u64]| out_of_place(&frames(cfas)).map(|(number, frame)| (number, frame.cfa));
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[16, 16, 8]), Some((1, 16)));
        assert_eq!(found(&[8, 24, 16]), Some((2, 16)));
        assert_eq!(found(&[8, 0, 24]), Some((2, 24)));
        assert_eq!(found(&[0, 8]), Some((1, 8)));
        assert_eq!(found(&[0, 0]), Some((1, 0)));
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
        assert_eq!(add(&[1, 2, u64::MAX - 7], 8), None, "a CFA over 64 bits");
    }
}
