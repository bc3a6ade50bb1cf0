use super::{Comparison, Difference, Relation, needed_bytes};
use fpprof_recording::model::{Abi, Arch, Interrupted, Sample, StackEnd, StackEndSource, UserRegs};
use fpprof_unwind::{BrokenReason, Frame, FrameFlags, FrameSource, Root, StackRef, StopReason, TruncatedReason};

const ROOT: StopReason = StopReason::Complete(Root::Start);
const CUT: StopReason = StopReason::Truncated(TruncatedReason::ChunkEnd);
const BROKEN: StopReason = StopReason::Broken(BrokenReason::RaNotExec);

/// Frames from (address, CFA) pairs, leaf first.
fn frames(list: &[(u64, u64)]) -> Vec<Frame> {
    let frame =
        |&(address, cfa): &(u64, u64)| Frame { address, cfa, source: FrameSource::Cfi, flags: FrameFlags::default() };
    list.iter().map(frame).collect()
}

/// The relation, the frames (same, missing, not reached, wrong, beyond) and where they first differ.
fn compare(
    reference: (&[(u64, u64)], StopReason),
    other: (&[(u64, u64)], StopReason),
) -> (Relation, [u64; 5], Option<usize>) {
    let (a, b) = (frames(reference.0), frames(other.0));
    let comparison =
        Comparison::new(StackRef { frames: &a, stop: reference.1 }, StackRef { frames: &b, stop: other.1 });
    let Difference { n_same, n_missing, n_not_reached, n_wrong, n_beyond } = comparison.difference;
    (comparison.relation, [n_same, n_missing, n_not_reached, n_wrong, n_beyond], comparison.differs_after)
}

const REFERENCE: &[(u64, u64)] = &[(1, 10), (2, 20), (3, 30), (4, 40), (5, 0)];

/// Check that a stack that continues from an alternate signal stack needs all of that, whichever is at higher
/// addresses.
#[test]
fn both_stacks_count() {
    let stack_end = |address| Some(StackEnd { address, source: StackEndSource::AltStack });
    for other in [0x1000, 0x9000] {
        let mut values = [0; 17];
        values[7] = 0x5000;
        let mut sample = Sample {
            user_regs: Some(UserRegs::new(Arch::X86_64, Abi::Bits64, &values)),
            stack_end: stack_end(0x5100),
            interrupted: Some(Interrupted { sp: other, stack_end: stack_end(other + 0x200), ..Interrupted::default() }),
            ..Sample::default()
        };
        let needed = |sample: &Sample, places: &[(u64, u64)]| {
            needed_bytes(sample, StackRef { frames: &frames(places), stop: ROOT })
        };
        assert_eq!(needed(&sample, &[(1, 0x5010), (2, 0)]), Some(0x10));
        assert_eq!(needed(&sample, &[(1, 0x5010), (2, other), (3, other + 0x40), (4, 0)]), Some(0x140));
        assert_eq!(needed(&sample, &[(1, 0x5010), (2, other + 0x201), (3, 0)]), None);
        // Of a damaged recording.
        sample.stack_end = stack_end(0x4000);
        assert_eq!(needed(&sample, &[(1, other + 0x40), (2, 0)]), Some(0x40));
        sample.stack_end = stack_end(0x5100);
        sample.interrupted = None;
        assert_eq!(needed(&sample, &[(1, 0x5010), (2, 0x5040), (3, 0)]), Some(0x40));
        // A chain of frame pointers that continues on a stack that was not copied.
        for elsewhere in [0x4000, 0x7000_0000] {
            assert_eq!(needed(&sample, &[(1, 0x5010), (2, elsewhere), (3, 0)]), None);
        }
    }
}

/// Check every relation against one reference: the same, the leaf's caller skipped, a frame skipped further out, an
/// early end, a wrong frame.
#[test]
fn relations_are_distinguished() {
    let with = |other: &[(u64, u64)], stop| compare((REFERENCE, ROOT), (other, stop));
    assert_eq!(with(REFERENCE, ROOT), (Relation::Same, [4, 0, 0, 0, 0], None));
    let skipped = &[(1, 20), (3, 30), (4, 40), (5, 0)];
    assert_eq!(with(skipped, ROOT), (Relation::LeafCallerMissing, [3, 1, 0, 0, 0], Some(0)));
    let inside = &[(1, 10), (2, 30), (4, 40), (5, 0)];
    assert_eq!(with(inside, ROOT), (Relation::FrameMissing, [3, 1, 0, 0, 0], Some(1)));
    assert_eq!(with(&[(1, 10), (2, 20), (3, 0)], CUT), (Relation::Prefix, [2, 0, 2, 0, 0], Some(2)));
    assert_eq!(with(&[(1, 0)], CUT), (Relation::Prefix, [0, 0, 4, 0, 0], Some(0)));
    let wrong = &[(1, 10), (2, 25), (9, 40), (5, 0)];
    assert_eq!(with(wrong, ROOT), (Relation::WrongFrame, [2, 2, 0, 1, 0], Some(1)));
    let past_the_root = &[(1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (6, 0)];
    assert_eq!(with(past_the_root, BROKEN), (Relation::ExtraFrame, [4, 0, 0, 1, 0], Some(4)));
    let between = &[(1, 10), (2, 15), (8, 20), (3, 30), (4, 40), (5, 0)];
    assert_eq!(with(between, ROOT), (Relation::ExtraFrame, [4, 0, 0, 1, 0], Some(1)));
    let leaf_and_early = &[(1, 20), (3, 0)];
    assert_eq!(with(leaf_and_early, BROKEN), (Relation::LeafCallerMissing, [1, 1, 2, 0, 0], Some(0)));
}

/// Check that frames beyond a reference that did not reach its root are not errors, since nothing is known about them.
#[test]
fn frames_beyond_a_cut_reference_are_not_wrong() {
    let other = &[(1, 10), (2, 20), (3, 30), (4, 0)];
    assert_eq!(compare((&[(1, 10), (2, 0)], CUT), (other, ROOT)), (Relation::Longer, [1, 0, 0, 0, 2], Some(1)));
    let wrong_before = &[(1, 10), (7, 15), (2, 20), (3, 0)];
    let (relation, frames, _) = compare((&[(1, 10), (2, 0)], CUT), (wrong_before, ROOT));
    assert_eq!((relation, frames[3] > 0), (Relation::WrongFrame, true));
}

/// Check that frames of a recursion are distinguished by their place in memory: a dropped one is missed at its place,
/// not at the end.
#[test]
fn recursion_is_aligned_by_place() {
    let recursion = &[(1, 10), (7, 20), (7, 30), (7, 40), (8, 0)];
    let dropped = &[(1, 10), (7, 30), (7, 40), (8, 0)];
    assert_eq!(compare((recursion, ROOT), (dropped, ROOT)), (Relation::FrameMissing, [3, 1, 0, 0, 0], Some(1)));
    let leaf_dropped = &[(1, 20), (7, 30), (7, 40), (8, 0)];
    assert_eq!(
        compare((recursion, ROOT), (leaf_dropped, ROOT)),
        (Relation::LeafCallerMissing, [3, 1, 0, 0, 0], Some(0))
    );
}

/// Check that chains without frame addresses are compared by return address.
#[test]
fn chains_without_places_are_compared_by_address() {
    let chain = &[(1, 0), (3, 0), (4, 0), (5, 0)];
    assert_eq!(compare((REFERENCE, ROOT), (chain, ROOT)), (Relation::LeafCallerMissing, [3, 1, 0, 0, 0], Some(0)));
    assert_eq!(compare((REFERENCE, ROOT), (&[(1, 0), (9, 0)], BROKEN)).0, Relation::WrongFrame);
}

/// Check that empty stacks can be compared.
#[test]
fn empty_stacks_are_compared() {
    assert_eq!(compare((&[], CUT), (&[], CUT)), (Relation::Same, [0; 5], None));
    assert_eq!(compare((REFERENCE, ROOT), (&[], CUT)).0, Relation::Prefix);
    assert_eq!(compare((&[], CUT), (&[(1, 0), (2, 0)], ROOT)).0, Relation::Longer);
}
