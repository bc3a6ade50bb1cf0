use super::*;
use fpprof_unwind::{BrokenReason, FrameFlags, Root, Stack};

const COMPLETE: StopReason = StopReason::Complete(Root::Start);

fn truth(addresses: &[u64]) -> Vec<TrueFrame> {
    let n = addresses.len();
    let frame = |(index, &address): (usize, &u64)| TrueFrame {
        address,
        cfa: (index + 1 < n).then_some(0x7000 + 16 * index as u64),
    };
    addresses.iter().enumerate().map(frame).collect()
}

fn stack(addresses: &[u64], stop: StopReason) -> Stack {
    let frame = |(index, &address): (usize, &u64)| Frame {
        address,
        cfa: 0x7000 + 16 * index as u64,
        source: if index == 0 { FrameSource::Registers } else { FrameSource::Cfi },
        flags: FrameFlags { is_instruction: index == 0, ..FrameFlags::default() },
    };
    Stack { frames: addresses.iter().enumerate().map(frame).collect(), stop }
}

fn view(stack: &Stack) -> StackRef<'_> {
    StackRef { frames: &stack.frames, stop: stack.stop }
}

fn dwarf(got: &Stack, addresses: &[u64]) -> Verdict {
    verdict(view(got), &truth(addresses), Match::AddressAndCfa)
}

/// Check that a stack with every frame is exact, whether or not it reports its root, and that one with fewer frames
/// counts as right only if it has a reason for its end.
#[test]
fn exact_is_everything() {
    assert_eq!(dwarf(&stack(&[1, 2, 3], COMPLETE), &[1, 2, 3]), Verdict::Exact);
    let short = StopReason::Truncated(TruncatedReason::ChunkEnd);
    assert_eq!(dwarf(&stack(&[1, 2], short), &[1, 2, 3]), Verdict::Truncated(short));
    assert_eq!(dwarf(&stack(&[1, 2, 3], short), &[1, 2, 3]), Verdict::Exact);
    let broken = StopReason::Broken(BrokenReason::RaNotExec);
    assert_eq!(dwarf(&stack(&[1], broken), &[1, 2, 3]), Verdict::Truncated(broken));
}

/// Check that the CFA of the last frame before a stack switch is not judged, but those of other frames are.
#[test]
fn cfa_of_the_frame_before_a_stack_switch_is_not_judged() {
    let switch = StopReason::Truncated(TruncatedReason::StackSwitch);
    for (nth, expected) in [(1, Verdict::Truncated(switch)), (0, Verdict::Wrong(Wrong::WrongFrameAddress))] {
        let mut got = stack(&[1, 2], switch);
        got.frames[nth].cfa += 8;
        assert_eq!(dwarf(&got, &[1, 2, 3]), expected, "{nth}");
    }
    let mut chunk_end = stack(&[1, 2], StopReason::Truncated(TruncatedReason::ChunkEnd));
    chunk_end.frames[1].cfa += 8;
    assert_eq!(dwarf(&chunk_end, &[1, 2, 3]), Verdict::Wrong(Wrong::WrongFrameAddress));
}

/// Check that every kind of unflagged error has its own name.
#[test]
fn unflagged_errors_have_names() {
    let wrong = |got: &[u64], true_frames: &[u64]| match dwarf(&stack(got, COMPLETE), true_frames) {
        Verdict::Wrong(wrong) => wrong,
        other => panic!("{other:?}"),
    };
    assert_eq!(wrong(&[1, 2], &[1, 2, 3]), Wrong::EndsEarly);
    assert_eq!(wrong(&[1, 9, 3], &[1, 2, 3]), Wrong::WrongFrame);
    assert_eq!(wrong(&[1, 2, 3, 4], &[1, 2, 3]), Wrong::ExtraFrame);
    assert_eq!(wrong(&[1, 3, 4], &[1, 2, 3, 4]), Wrong::CallerOfLeafDropped);
    let mut moved = stack(&[1, 2, 3], COMPLETE);
    moved.frames[1].cfa += 8;
    assert_eq!(dwarf(&moved, &[1, 2, 3]), Verdict::Wrong(Wrong::WrongFrameAddress));
    assert_eq!(verdict(view(&moved), &truth(&[1, 2, 3]), Match::Address), Verdict::Exact);
}

/// Check that a recursion with one call missing is distinguished from the whole one.
#[test]
fn recursion_is_counted() {
    let got = stack(&[5, 5, 5, 6], COMPLETE);
    assert_eq!(
        verdict(view(&got), &truth(&[5, 5, 5, 5, 6]), Match::Address),
        Verdict::Wrong(Wrong::CallerOfLeafDropped)
    );
    assert!(is_caller_of_leaf_missing(view(&got), &truth(&[5, 5, 5, 5, 6])));
    assert!(!is_caller_of_leaf_missing(view(&got), &truth(&[5, 5, 5, 6])));
    assert_eq!(verdict(view(&got), &truth(&[5, 5, 5, 6]), Match::Address), Verdict::Exact);
}

/// Check that a caller counts as missing if the stack ends at the leaf or continues with another frame, but not if
/// there is none.
#[test]
fn missing_callers_are_seen() {
    let is_missing =
        |got: &[u64], true_frames: &[u64]| is_caller_of_leaf_missing(view(&stack(got, COMPLETE)), &truth(true_frames));
    assert!(is_missing(&[1], &[1, 2, 3]));
    assert!(is_missing(&[1, 9], &[1, 2, 3]));
    assert!(!is_missing(&[1, 2], &[1, 2, 3]));
    assert!(!is_missing(&[1], &[1]));
}

/// Check that a flag excuses what it warns of and nothing else.
#[test]
fn flags_excuse_what_they_warn_of() {
    let mut got = stack(&[1, 3, 4], COMPLETE);
    got.frames[0].flags.leaf_skip_suspect = true;
    assert_eq!(dwarf(&got, &[1, 2, 3, 4]), Verdict::Flagged(Flag::LeafSkipSuspect));
    assert_eq!(dwarf(&got, &[1, 3, 5]), Verdict::Wrong(Wrong::WrongFrame));
    let mut got = stack(&[1, 9, 3], COMPLETE);
    got.frames[2].source = FrameSource::Heuristic;
    assert_eq!(dwarf(&got, &[1, 2, 3]), Verdict::Wrong(Wrong::WrongFrame), "the guess came after the error");
    got.frames[1].source = FrameSource::Heuristic;
    assert_eq!(dwarf(&got, &[1, 2, 3]), Verdict::Flagged(Flag::Heuristic));
    let mut got = stack(&[1, 2, 9], COMPLETE);
    got.frames[1].flags.fp_fallback = true;
    assert_eq!(dwarf(&got, &[1, 2, 3]), Verdict::Flagged(Flag::FpFallback));
    got.frames[1].flags = FrameFlags { fp_in_jit: true, ..FrameFlags::default() };
    assert_eq!(dwarf(&got, &[1, 2, 3]), Verdict::Flagged(Flag::FpInJit));
    let got = stack(&[1, 9], StopReason::Broken(BrokenReason::Loop));
    assert_eq!(dwarf(&got, &[1, 2, 3]), Verdict::Flagged(Flag::Broken(BrokenReason::Loop)));
    let got = stack(&[1, 9], StopReason::Truncated(TruncatedReason::NoModule));
    assert_eq!(dwarf(&got, &[1, 2, 3]), Verdict::Wrong(Wrong::WrongFrame), "no reason to stop excuses a wrong frame");
}
