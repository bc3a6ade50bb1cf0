//! Frame-pointer chains, walked and judged.

use fpprof_unwind::{
    Arch, Chain, ChainEnd, ChainEntry, Chunk, FrameSource, Module, ModuleSections, Regs, Stack, Unwinder,
};

use crate::build::{BIAS, Cfi, Process, R10, RA, RBP, RSP, STACK, addresses, bytes, cfa, regs, whole};

/// `leaf` at 0x1000 (no frame), `work` at 0x1100 (a frame), `main` at 0x1200, `libc` at 0x1300 (no frame pointers),
/// `_start` at 0x2000, `clone3` at 0x3000.
fn process() -> Process {
    let frame = [
        cfa::advance(1),
        cfa::def_cfa_offset(16),
        cfa::saved(RBP, 16),
        cfa::advance(3),
        cfa::def_cfa(RBP, 16),
        cfa::advance(0x3b),
        cfa::def_cfa(RSP, 8),
    ];
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x40, &[])
        .fde(0x1100, 0x40, &frame)
        .fde(0x1200, 0x40, &frame)
        .fde(0x1300, 0x40, &[cfa::def_cfa_offset(64)])
        .fde(0x2000, 0x40, &[cfa::undefined(RA)])
        .fde(0x3000, 0x40, &[cfa::undefined(RA)]);
    Process::new(Module::new(ModuleSections { entry: Some(0x2000), ..cfi.sections() }))
}

fn walk(process: &Process, regs: &Regs, memory: &Chunk<'_>) -> Stack {
    let mut stack = Stack::default();
    Unwinder::new(process.options).walk_frame_pointers(&process.modules, &process.space, regs, memory, &mut stack);
    stack
}

fn judge(process: &Process, addresses: &[(u64, u64)], end: ChainEnd, regs: Option<&Regs>) -> Stack {
    let entries: Vec<_> = addresses
        .iter()
        .map(|&(address, frame_address)| ChainEntry { address: BIAS + address, frame_address })
        .collect();
    let chain = Chain { entries: &entries, end, arch: Arch::X86_64, regs, stack_end: None };
    let mut stack = Stack::default();
    Unwinder::new(process.options).judge_chain(&process.modules, &process.space, &chain, &mut stack);
    stack
}

/// Check that an intact chain is complete, with the same frame addresses as a walk by call frame information.
#[test]
fn walks_to_the_root() {
    let process = process();
    let stack = bytes(&[1, STACK + 24, BIAS + 0x1210, STACK + 40, BIAS + 0x2021, 0, 0]);
    let found = walk(&process, &regs(0x1110, STACK, STACK + 8), &whole(&stack));
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x1110, 0x1210, 0x2021], "_start"));
    assert_eq!(found.frames.iter().map(|frame| frame.cfa).collect::<Vec<_>>(), [STACK + 24, STACK + 40, 0]);
    assert_eq!(found.frames[2].source, FrameSource::FramePointer);
    let by_information = process.unwind(&regs(0x1110, STACK, STACK + 8), &whole(&stack));
    assert_eq!(addresses(&by_information), addresses(&found));
    assert_eq!(by_information.frames[1].cfa, found.frames[1].cfa);
}

/// Check that a chain that ends with a zero in a function that has callers is not complete, and that one that ends in a
/// thread's start function is.
#[test]
fn a_zero_is_no_root() {
    let process = process();
    let stack = |caller| bytes(&[1, STACK + 24, BIAS + 0x1210, 0, BIAS + caller, 0, 0]);
    let walk = |caller| walk(&process, &regs(0x1110, STACK, STACK + 8), &whole(&stack(caller))).stop;
    assert_eq!((walk(0x1310).class(), walk(0x1310).name()), ("broken", "cfa_not_increasing"));
    assert_eq!((walk(0x3010).class(), walk(0x3010).name()), ("complete", "zero_fp"));
    assert_eq!((walk(0x2010).class(), walk(0x2010).name()), ("complete", "_start"));
    let callers = [(0x1110, 0), (0x1210, STACK), (0x1310, STACK + 16)];
    assert_eq!(judge(&process, &callers, ChainEnd::Zero, None).stop.name(), "cfa_not_increasing");
    let callers = [(0x1110, 0), (0x1210, STACK), (0x3010, STACK + 16)];
    assert_eq!(judge(&process, &callers, ChainEnd::Zero, None).stop.name(), "zero_fp");
    assert_eq!(judge(&process, &callers, ChainEnd::Unknown, None).stop.name(), "undefined_ra");
}

/// Check that each fault of a chain has its own reason.
#[test]
fn names_what_is_wrong_with_a_chain() {
    let process = process();
    let walk = |fp: u64, words: &[u64], stack_end: u64| {
        let stack = bytes(words);
        let memory = Chunk { start: STACK, bytes: &stack, stack_end: Some(STACK + stack_end), holes: &[] };
        let found = walk(&process, &regs(0x1110, STACK, fp), &memory);
        (found.frames.len(), found.stop.name())
    };
    let ra = BIAS + 0x1210;
    assert_eq!(walk(1, &[0, ra], 64), (1, "cfa_not_increasing")); // a value that is no frame pointer
    assert_eq!(walk(0, &[0, ra], 64), (1, "cfa_not_increasing"));
    assert_eq!(walk(STACK + 4, &[0, ra], 64), (1, "misaligned"));
    assert_eq!(walk(STACK, &[STACK, ra, 0, 0], 64), (2, "loop"));
    assert_eq!(walk(STACK + 8, &[0, STACK, ra, 0], 64), (2, "cfa_not_increasing"));
    assert_eq!(walk(STACK, &[STACK + 16, 0x4141, 0, 0], 64), (1, "ra_not_exec"));
    assert_eq!(walk(STACK, &[STACK + 32, ra], 64), (2, "chunk_end"));
    assert_eq!(walk(STACK, &[STACK + 64, ra], 64), (2, "stack_switch"));
    assert_eq!(walk(STACK, &[], 64), (1, "chunk_empty"));
}

/// Check that the depth of a chain is limited.
#[test]
fn limits_the_depth_of_a_chain() {
    let mut process = process();
    process.options.max_depth = 3;
    let words: Vec<u64> = (1..20).flat_map(|n| [STACK + 16 * n, BIAS + 0x1210]).collect();
    let found = walk(&process, &regs(0x1110, STACK, STACK), &whole(&bytes(&words)));
    assert_eq!((found.frames.len(), found.stop.name()), (3, "max_depth"));
    let callers = [(0x1110, 0), (0x1210, 16), (0x1210, 32), (0x1210, 48)];
    let found = judge(&process, &callers, ChainEnd::Zero, None);
    assert_eq!((found.frames.len(), found.stop.name()), (3, "max_depth"));
}

/// Check that a recorded chain is cut where it becomes invalid, and that the reason for its end is reported.
#[test]
fn judges_recorded_chains() {
    let process = process();
    let ends = |callers: &[(u64, u64)], end| {
        let found = judge(&process, callers, end, None);
        (found.frames.len(), found.stop.name())
    };
    let good = [(0x1110, 0), (0x1210, 16), (0x2020, 32)];
    for end in [ChainEnd::Zero, ChainEnd::Unknown, ChainEnd::Unreadable, ChainEnd::MaxDepth] {
        assert_eq!(ends(&good, end), (3, "_start"));
    }
    let open = &good[..2];
    assert_eq!(ends(open, ChainEnd::MaxDepth), (2, "max_depth"));
    assert_eq!(ends(open, ChainEnd::Unreadable), (2, "ra_not_exec"));
    assert_eq!(ends(open, ChainEnd::NotAscending), (2, "cfa_not_increasing"));
    assert_eq!(ends(open, ChainEnd::ZeroReturnAddress), (2, "ra_not_exec"));
    assert_eq!(ends(&[(0x1110, 0), (0x1210, 16), (0x1_0500, 32), (0x2020, 48)], ChainEnd::Zero), (2, "ra_not_exec"));
    assert_eq!(ends(&[(0x1110, 0), (0x1210, 16), (0x2020, 16)], ChainEnd::Zero), (2, "loop"));
    assert_eq!(ends(&[(0x1110, 0), (0x1210, 16), (0x2020, 8)], ChainEnd::Zero), (2, "cfa_not_increasing"));
    assert_eq!(ends(&[(0x1110, 0), (0x1210, 12)], ChainEnd::Zero), (1, "misaligned"));
    // Without frame addresses only the code can be judged.
    assert_eq!(ends(&[(0x1110, 0), (0x1210, 0), (0x2020, 0)], ChainEnd::Unknown), (3, "_start"));
    assert_eq!(ends(&[], ChainEnd::Unknown), (0, "ra_not_exec"));
    assert_eq!(ends(&[(0x2020, 0)], ChainEnd::Zero), (1, "_start"));
}

/// Check that the leaf's caller is reported as missing while the leaf has no frame: in a leaf without one, before the
/// push, between push and mov, after the pop; and nowhere else.
#[test]
fn suspects_a_skipped_caller() {
    let process = process();
    let suspects = |ip, regs: Option<&Regs>| {
        let found = judge(&process, &[(ip, 0), (0x1210, 16), (0x2020, 32)], ChainEnd::Zero, regs);
        assert!(found.frames[1..].iter().all(|frame| !frame.flags.leaf_skip_suspect));
        found.frames[0].flags.leaf_skip_suspect
    };
    for (ip, expected) in [
        (0x1010, true),
        (0x1100, true),
        (0x1101, true),
        (0x1104, false),
        (0x113e, false),
        (0x113f, true), // at the ret
        (0x1310, true),
        (0x2010, false),
        (0x4000, false), // no information, no suspicion
    ] {
        assert_eq!(suspects(ip, None), expected, "{ip:#x}");
    }
    // Registers are more precise: between push and mov they show whether the frame pointer is this frame's.
    assert!(!suspects(0x1101, Some(&regs(0x1101, STACK, STACK))));
    assert!(suspects(0x1101, Some(&regs(0x1101, STACK, STACK + 64))));
    let stack = bytes(&[BIAS + 0x1115, STACK + 24, BIAS + 0x1210, 0, BIAS + 0x2021, 0]);
    let found = walk(&process, &regs(0x1010, STACK, STACK + 8), &whole(&stack));
    assert_eq!(addresses(&found), [0x1010, 0x1210, 0x2021]); // work at 0x1115 is missing
    assert!(found.frames[0].flags.leaf_skip_suspect);
}

/// Check that rows with expressions are judged by their first operation.
#[test]
fn suspects_by_expressions_too() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::def_cfa(R10, 0)])
        .fde(0x1100, 0x10, &[cfa::def_cfa_expression(&[0x76, 0x78, 0x06])])
        .fde(0x1200, 0x10, &[cfa::def_cfa_expression(&[0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22])]);
    let process = Process::new(cfi.module());
    for (ip, expected) in [(0x1004, true), (0x1104, false), (0x1204, true)] {
        let found = judge(&process, &[(ip, 0)], ChainEnd::Unknown, None);
        assert_eq!(found.frames[0].flags.leaf_skip_suspect, expected, "{ip:#x}");
    }
}
