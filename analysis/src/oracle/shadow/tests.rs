use super::*;
use std::collections::BTreeMap;

/// The stacks of these tests: the thread's own, a signal stack, and a heap with two stacks.
const MAIN: Range<u64> = 0x7ff0_0000..0x7fff_0000;
const SIGNAL: Range<u64> = 0x6000_0000..0x6001_0000;
const HEAP: Range<u64> = 0x1000_0000..0x2000_0000;

fn vma(address: u64) -> Option<Range<u64>> {
    [MAIN, SIGNAL, HEAP].into_iter().find(|range| range.contains(&address))
}

fn unread(_: u64) -> Option<u64> {
    None
}

fn frames(shadow: &ShadowStack, ip: u64) -> Vec<(u64, Option<u64>)> {
    let mut out = Vec::new();
    shadow.frames(ip, unread, &mut out).expect("the stack is known");
    out.into_iter().map(|frame| (frame.address, frame.cfa)).collect()
}

fn addresses(shadow: &ShadowStack, ip: u64) -> Vec<u64> {
    frames(shadow, ip).into_iter().map(|(address, _)| address).collect()
}

/// A return, or a jump with the stack pointer elsewhere; returns the number of frames that were left.
fn left(shadow: &mut ShadowStack, sp: u64) -> usize {
    let n_left = shadow.moved(sp, unread);
    shadow.jumped(sp, || None);
    n_left
}

/// The first word of a new stack.
fn first(return_address: u64) -> Option<FirstWord> {
    Some(FirstWord { return_address, is_after_call: false })
}

/// A thread that made two calls.
fn called_twice() -> ShadowStack {
    let mut shadow = ShadowStack::new(0x7ffe_0000);
    shadow.called(0x401, 0x7ffd_fff8);
    shadow.moved(0x7ffd_ffe0, unread);
    shadow.called(0x402, 0x7ffd_ffd8);
    shadow
}

/// Check that calls are frames, each with the stack pointer after its return, except for the outermost.
#[test]
fn calls_are_frames() {
    let shadow = called_twice();
    assert_eq!(frames(&shadow, 0x500), [(0x500, Some(0x7ffd_ffe0)), (0x402, Some(0x7ffe_0000)), (0x401, None)]);
    assert_eq!(frames(&ShadowStack::new(0x7ffe_0000), 0x500), [(0x500, None)]);
}

/// Check that a return drops one frame, a longjmp all below its target, and that nothing is dropped while the return
/// address is still to be popped.
#[test]
fn leaving_drops_frames() {
    let mut shadow = called_twice();
    assert_eq!(shadow.moved(0x7ffd_ffd8, unread), 0, "the return address is at the stack pointer");
    assert_eq!(left(&mut shadow, 0x7ffd_ffe0), 1);
    assert_eq!(addresses(&shadow, 0x403), [0x403, 0x401]);
    let mut shadow = called_twice();
    assert_eq!(left(&mut shadow, 0x7ffe_0000), 2, "longjmp");
    assert_eq!(addresses(&shadow, 0x403), [0x403]);
    let mut shadow = called_twice();
    assert_eq!(shadow.moved_far(0x7ffe_8000, vma), Moved::Within(2));
}

/// Check that a function whose return address is in a register still has its caller, whether it jumps there or pushes
/// it again, and that one that discards it does not.
#[test]
fn popped_return_addresses_are_kept() {
    let popped = || {
        let mut shadow = called_twice();
        assert_eq!(shadow.moved(0x7ffd_ffe0, unread), 1);
        assert_eq!(frames(&shadow, 0x500), [(0x500, Some(0x7ffd_ffe0)), (0x402, Some(0x7ffe_0000)), (0x401, None)]);
        shadow
    };
    let mut shadow = popped();
    shadow.jumped(0x7ffd_ffe0, || None);
    assert_eq!(addresses(&shadow, 0x402), [0x402, 0x401]);
    let mut shadow = popped();
    shadow.moved(0x7ffd_ffd8, |slot| (slot == 0x7ffd_ffd8).then_some(0x402));
    assert_eq!(addresses(&shadow, 0x500), [0x500, 0x402, 0x401]);
    let mut shadow = popped();
    shadow.moved(0x7ffd_ffd0, |_| Some(0x999));
    assert_eq!(addresses(&shadow, 0x500), [0x500, 0x401]);
    let mut shadow = popped();
    shadow.called(0x403, 0x7ffd_ffd8);
    assert_eq!(addresses(&shadow, 0x600), [0x600, 0x403, 0x401]);
}

/// Check that the stack is unknown after code has left its own frame for a caller's, until it jumps there.
#[test]
fn frames_that_were_left_are_not_judged() {
    let mut shadow = called_twice();
    assert_eq!(shadow.was_set(0x7ffd_fff0), Moved::Within(1));
    let unknown = shadow.frames(0x500, unread, &mut Vec::new());
    assert_eq!(unknown, Err(Unknown::BetweenFrames));
    shadow.jumped(0x7ffd_fff0, || None);
    assert_eq!(addresses(&shadow, 0x400), [0x400, 0x401]);
}

/// Check that a tail call, which is a jump, changes nothing, and that a return without a call counts as a jump.
#[test]
fn jumps_leave_no_trace() {
    let mut shadow = called_twice();
    shadow.jumped(0x7ffd_ffd8, || first(0x999));
    assert_eq!(addresses(&shadow, 0x600), [0x600, 0x402, 0x401]);
    // push target; ret
    shadow.moved(0x7ffd_ffd0, unread);
    assert_ne!(shadow.innermost_slot(), Some(0x7ffd_ffd0));
    shadow.moved(0x7ffd_ffd8, unread);
    assert_eq!(addresses(&shadow, 0x700), [0x700, 0x402, 0x401]);
}

/// Check that a handler has the restorer and the interrupted instruction as callers, and that it is dropped when it
/// returns or is jumped out of, on the same stack and on its own.
#[test]
fn signals_are_two_frames() {
    for frame in [0x7ffd_f000, 0x6000_8000] {
        let interrupted = || {
            let mut shadow = called_twice();
            shadow.interrupted(0x500, 0x7ffd_ffd8, frame, 0x888);
            shadow
        };
        let mut shadow = interrupted();
        assert_eq!(
            frames(&shadow, 0x900),
            [
                (0x900, Some(frame + 8)),
                (0x888, Some(0x7ffd_ffd8)),
                (0x500, Some(0x7ffd_ffe0)),
                (0x402, Some(0x7ffe_0000)),
                (0x401, None)
            ]
        );
        left(&mut shadow, frame + 8);
        assert_eq!(frames(&shadow, 0x888)[..2], [(0x888, Some(0x7ffd_ffd8)), (0x500, Some(0x7ffd_ffe0))]);
        assert_eq!(shadow.resumed(0x7ffd_ffd8), Some(0x7ffd_ffd8));
        assert_eq!(addresses(&shadow, 0x500), [0x500, 0x402, 0x401]);
        let mut shadow = interrupted();
        shadow.called(0x901, frame - 16);
        shadow.moved_far(0x7ffd_fff0, vma);
        shadow.jumped(0x7ffd_fff0, || None);
        assert_eq!(addresses(&shadow, 0x403), [0x403, 0x401], "jumped out of");
        assert_eq!(shadow.resumed(0x7ffd_fff0), None, "there is no handler any more");
    }
}

/// Check that a handler interrupted by another has the frames of both.
#[test]
fn signals_nest() {
    let mut shadow = called_twice();
    shadow.interrupted(0x500, 0x7ffd_ffd8, 0x6000_8000, 0x888);
    shadow.interrupted(0x900, 0x6000_8000, 0x6000_7000, 0x888);
    assert_eq!(addresses(&shadow, 0xa00), [0xa00, 0x888, 0x900, 0x888, 0x500, 0x402, 0x401]);
    assert_eq!(shadow.resumed(0x6000_8000), Some(0x6000_8000));
    assert_eq!(addresses(&shadow, 0x900), [0x900, 0x888, 0x500, 0x402, 0x401]);
}

/// Check that coroutines keep their frames while others run, that each has its own root, and that frames are unknown
/// before one is entered.
#[test]
fn coroutines_keep_their_frames() {
    let mut shadow = called_twice();
    let (a, b) = (0x1100_0000, 0x1200_0000);
    let switch = |shadow: &mut ShadowStack, sp| {
        assert_eq!(shadow.moved_far(sp, vma), Moved::ToOtherStack);
        let unknown = shadow.frames(0x300, unread, &mut Vec::new());
        assert_eq!(unknown, Err(Unknown::BetweenStacks));
        shadow.jumped(sp + 8, || first(0x777));
    };
    for (stack, first) in [(a, 0xa1), (b, 0xb1)] {
        switch(&mut shadow, stack - 8);
        shadow.called(first, stack - 24);
        assert_eq!(addresses(&shadow, 0x310), [0x310, first, 0x777]);
        // Back to the thread's own stack, where it was left.
        shadow.moved(stack - 32, unread);
        switch(&mut shadow, 0x7ffd_ffd8);
        assert_eq!(addresses(&shadow, 0x500), [0x500, 0x402, 0x401]);
    }
    switch(&mut shadow, a - 24);
    assert_eq!(addresses(&shadow, 0x320), [0x320, 0xa1, 0x777]);
    // From one to the other, within one mapping.
    switch(&mut shadow, b - 24);
    assert_eq!(addresses(&shadow, 0x320), [0x320, 0xb1, 0x777]);
    switch(&mut shadow, 0x7ffd_ffd8);
    assert_eq!(addresses(&shadow, 0x500), [0x500, 0x402, 0x401]);
}

/// Check that a function that continues on another stack and calls from there still has its own callers.
#[test]
fn calls_from_another_stack_go_on() {
    let mut shadow = called_twice();
    shadow.moved_far(0x1100_0000, vma);
    shadow.called(0x502, 0x10ff_fff8);
    assert_eq!(addresses(&shadow, 0x600), [0x600, 0x502, 0x402, 0x401]);
}

/// Check that an overwritten return address makes the stack unknown, and nothing else does.
#[test]
fn overwritten_return_addresses_are_seen() {
    let shadow = called_twice();
    let mut stack = BTreeMap::from([(0x7ffd_fff8, 0x401), (0x7ffd_ffd8, 0x402)]);
    let mut out = Vec::new();
    assert_eq!(shadow.frames(0x500, |slot| stack.get(&slot).copied(), &mut out), Ok(()));
    stack.insert(0x7ffd_fff8, 0x666);
    let got = shadow.frames(0x500, |slot| stack.get(&slot).copied(), &mut out);
    assert_eq!(got, Err(Unknown::ReturnAddressOverwritten));
}

/// Check that the stack is unknown once a handler has changed the interrupted registers.
#[test]
fn changed_registers_are_seen() {
    let mut shadow = called_twice();
    shadow.interrupted(0x500, 0x7ffd_ffd8, 0x6000_8000, 0x888);
    let at = 0x6000_8000 + SIGNAL_FRAME_SP;
    for (sp, ip, expected) in [
        (0x7ffd_ffd8, 0x500, Ok(())),
        (0x7ffd_ffd0, 0x500, Err(Unknown::InterruptedRegistersChanged)),
        (0x7ffd_ffd8, 0x501, Err(Unknown::InterruptedRegistersChanged)),
    ] {
        let stack = BTreeMap::from([(0x6000_8000, 0x888), (at, sp), (at + 8, ip)]);
        assert_eq!(
            shadow.frames(0x900, |slot| stack.get(&slot).copied(), &mut Vec::new()),
            expected,
            "{sp:#x} {ip:#x}"
        );
    }
}

/// Check that the depth of a recursion is limited, and that the limit is reported.
#[test]
fn depth_is_bounded() {
    let mut shadow = ShadowStack::new(u64::MAX / 2);
    for depth in 1..=MAX_ENTRIES as u64 + 1 {
        shadow.called(1, u64::MAX / 2 - 8 * depth);
    }
    assert_eq!(shadow.frames(2, unread, &mut Vec::new()), Err(Unknown::TooDeep));
}

/// Check that small stacks that share a mapping with each other and with the thread's own are distinguished when the
/// stack pointer is set.
#[test]
fn stacks_in_one_mapping_are_distinguished() {
    let mut shadow = called_twice();
    // The thread's own stack pointer is 0x7ffd_ffd8; both stacks are below it, 2 KiB apart.
    let (a, b) = (0x7ffd_e000, 0x7ffd_e800);
    for (stack, called) in [(a, 0xa1), (b, 0xb1)] {
        assert_eq!(shadow.was_set(stack - 8), Moved::ToOtherStack);
        shadow.jumped(stack, || first(0x777));
        shadow.called(called, stack - 24);
        assert_eq!(addresses(&shadow, 0x310), [0x310, called, 0x777]);
    }
    assert_eq!(shadow.was_set(a - 24), Moved::ToOtherStack);
    shadow.jumped(a - 24, || None);
    assert_eq!(addresses(&shadow, 0x320), [0x320, 0xa1, 0x777]);
    assert_eq!(shadow.was_set(0x7ffd_ffd8), Moved::ToOtherStack);
    shadow.jumped(0x7ffd_ffd8, || None);
    assert_eq!(addresses(&shadow, 0x500), [0x500, 0x402, 0x401]);
    assert_eq!(shadow.was_set(b - 24), Moved::ToOtherStack);
    shadow.jumped(b - 24, || None);
    assert_eq!(addresses(&shadow, 0x320), [0x320, 0xb1, 0x777]);
}

/// Check that setting the stack pointer upwards leaves frames, as longjmp does, and that a frame that sets it to
/// allocate space keeps its callers.
#[test]
fn setting_within_a_stack_is_no_switch() {
    let mut shadow = called_twice();
    assert_eq!(shadow.was_set(0x7ffe_0000), Moved::Within(2), "longjmp");
    let mut shadow = called_twice();
    // alloca: mov %rax,%rsp; and a call from there.
    assert_eq!(shadow.was_set(0x7ffd_f000), Moved::ToOtherStack);
    shadow.called(0x403, 0x7ffd_eff8);
    assert_eq!(addresses(&shadow, 0x600), [0x600, 0x403, 0x402, 0x401]);
    left(&mut shadow, 0x7ffd_f000);
    // lea -16(%rbp),%rsp; ret
    assert_eq!(shadow.moved(0x7ffd_ffd0, unread), 0);
    assert_eq!(addresses(&shadow, 0x404), [0x404, 0x402, 0x401]);
    assert_eq!(left(&mut shadow, 0x7ffd_ffe0), 1);
    assert_eq!(addresses(&shadow, 0x404), [0x404, 0x401]);
}

/// Check that a stack entered in the middle of its calls is unknown, as Go's are after they were moved.
#[test]
fn moved_stacks_are_not_judged() {
    let mut shadow = called_twice();
    assert_eq!(shadow.was_set(0x1100_0000), Moved::ToOtherStack);
    shadow.jumped(0x1100_0000, || Some(FirstWord { return_address: 0x777, is_after_call: true }));
    shadow.called(0xa1, 0x10ff_fff8);
    assert_eq!(shadow.frames(0x310, unread, &mut Vec::new()), Err(Unknown::BeginningNotSeen));
}

/// Check that a stack that a jump enters in the middle of a function is unknown, as when Go resumes a goroutine: its
/// frames are not those of the previous stack.
#[test]
fn stacks_entered_within_a_function_are_not_judged() {
    let mut shadow = called_twice();
    assert_eq!(shadow.was_set(0x1100_0000), Moved::ToOtherStack);
    shadow.jumped(0x1100_0000, || None);
    shadow.called(0xa1, 0x10ff_fff8);
    assert_eq!(shadow.frames(0x310, unread, &mut Vec::new()), Err(Unknown::BeginningNotSeen));
}

/// Check that frames of an earlier excursion to the same stack do not reappear if the stack pointer is set close to
/// where that one was left.
#[test]
fn earlier_excursions_do_not_come_back() {
    let mut shadow = called_twice();
    let (goroutine, scheduler) = (0x1100_0000, 0x1000_8000);
    // The first excursion calls 0xe1, and is left for another stack for good.
    shadow.was_set(scheduler);
    shadow.called(0xe1, scheduler - 8);
    shadow.called(0xe2, scheduler - 296);
    shadow.was_set(goroutine);
    shadow.jumped(goroutine, || first(0x777));
    shadow.was_set(0x7ffd_ffd8);
    shadow.jumped(0x7ffd_ffd8, || None);
    // The second is called from elsewhere, and sets the stack pointer in its own frame: `and $-16, %rsp` and back.
    shadow.was_set(scheduler);
    shadow.called(0xf1, scheduler - 16);
    shadow.moved(scheduler - 312, unread);
    assert_eq!(shadow.was_set(scheduler - 288), Moved::Within(0));
    shadow.called(0xf2, scheduler - 304);
    assert_eq!(addresses(&shadow, 0x310), [0x310, 0xf2, 0xf1, 0x402, 0x401]);
}
