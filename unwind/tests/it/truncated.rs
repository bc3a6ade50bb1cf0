//! Truncated stacks, and the fallbacks available there.

use fpprof_unwind::{
    Arch, Chunk, Fallback, FrameSource, Mapping, Module, ModuleId, ModuleSections, StopReason, TruncatedReason,
};

use crate::build::{BIAS, Cfi, JIT, Process, RA, RBP, STACK, addresses, bytes, cfa, regs, whole};

fn process() -> Process {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::def_cfa_offset(32)])
        .fde(0x1100, 0x10, &[cfa::def_cfa(RBP, 16), cfa::saved(RBP, 16)])
        .fde(0x3000, 0x10, &[cfa::undefined(RA)]);
    Process::new(cfi.module())
}

/// Check that the end of the chunk, another stack, a hole and an empty chunk are distinguished.
#[test]
fn names_why_memory_is_missing() {
    let process = process();
    let words = bytes(&[0, 0, 0]);
    let chunk = |stack_end, holes| Chunk { start: STACK, bytes: &words, stack_end, holes };
    let ends = |memory: Chunk<'_>| {
        let found = process.unwind(&regs(0x1004, STACK, 0), &memory);
        assert_eq!((addresses(&found), found.frames[0].cfa), (vec![0x1004], STACK + 32));
        found.stop.name()
    };
    // The return address is at STACK + 24, just above what was copied.
    assert_eq!(ends(chunk(Some(STACK + 32), &[])), "chunk_end");
    assert_eq!(ends(chunk(Some(STACK + 25), &[])), "chunk_end");
    assert_eq!(ends(chunk(Some(STACK + 24), &[])), "stack_switch");
    assert_eq!(ends(chunk(None, &[])), "chunk_end");
    assert_eq!(ends(Chunk { bytes: &[], ..chunk(Some(STACK + 4096), &[]) }), "chunk_empty");
    let words = bytes(&[0, 0, 0, BIAS + 0x3001]);
    for (hole, expected) in [((24, 8), "chunk_end"), ((31, 1), "chunk_end"), ((0, 24), "undefined_ra")] {
        let holes = [hole];
        let memory = Chunk { start: STACK, bytes: &words, stack_end: None, holes: &holes };
        assert_eq!(process.unwind(&regs(0x1004, STACK, 0), &memory).stop.name(), expected, "{hole:?}");
    }
}

/// Check that a frame pointer that leads out of the stack is reported as a stack switch, also if the end is not known.
#[test]
fn names_another_stack() {
    let process = process();
    let words = bytes(&[0; 8]);
    for (fp, stack_end, expected) in [
        (STACK + 64, Some(STACK + 64), "stack_switch"),
        (STACK + 64, Some(STACK + 4096), "chunk_end"),
        (STACK + (1 << 22), None, "chunk_end"),
        (STACK + (1 << 24), None, "stack_switch"),
        (u64::MAX - 15, None, "cfa_not_increasing"), // the CFA wraps to 0
        (0x7fff_ffff_0000, Some(STACK + 4096), "stack_switch"),
    ] {
        let memory = Chunk { start: STACK, bytes: &words, stack_end, holes: &[] };
        assert_eq!(process.unwind(&regs(0x1104, STACK, fp), &memory).stop.name(), expected, "{fp:#x}");
    }
}

/// Check that a walk that reaches the end of the stack without a root is not complete.
#[test]
fn the_end_of_the_stack_is_no_root() {
    let process = process();
    let stack = bytes(&[0, 0, 0, BIAS + 0x1005]);
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&stack));
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x1004, 0x1005], "stack_switch"));
    let stack = bytes(&[0, 0, 0, BIAS + 0x3001]);
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&stack));
    assert_eq!((addresses(&found), found.stop.class()), (vec![0x1004, 0x3001], "complete"));
}

/// Check that the depth is limited, and that a root that is exactly the last frame is still reached.
#[test]
fn limits_the_depth() {
    let mut process = process();
    let stack: Vec<u8> = bytes(&[0, 0, 0, BIAS + 0x1005]).repeat(9);
    let stack = [stack, bytes(&[0, 0, 0, BIAS + 0x3001])].concat();
    for (max_depth, n_frames, name) in [(11, 11, "undefined_ra"), (10, 10, "max_depth"), (1, 1, "max_depth")] {
        process.options.max_depth = max_depth;
        let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&stack));
        assert_eq!((found.frames.len(), found.stop.name()), (n_frames, name));
    }
    process.options.max_depth = 0;
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&stack));
    assert_eq!((found.frames.len(), found.stop), (0, StopReason::Truncated(TruncatedReason::MaxDepth)));
}

/// Check that code without information, generated code, and missing and mismatched modules are distinguished, at the
/// leaf and above.
#[test]
fn names_what_is_missing_of_the_code() {
    let stack = bytes(&[0, 0, 0, BIAS + 0x2005, 0]);
    let found = process().unwind(&regs(0x1004, STACK, 0), &whole(&stack));
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x1004, 0x2005], "no_cfi"));
    let found = process().unwind(&regs(0x2004, STACK, 0), &whole(&stack));
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x2004], "no_cfi"));
    let stack = bytes(&[0, 0, 0, JIT + 0x10]);
    let found = process().unwind(&regs(0x1004, STACK, 0), &whole(&stack));
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x1004, JIT + 0x10], "no_module"));
    for reason in [TruncatedReason::ModuleUnavailable, TruncatedReason::BuildIdMismatch] {
        let found = Process::of(Err(reason)).unwind(&regs(0x1004, STACK, 0), &whole(&stack));
        assert_eq!((addresses(&found), found.stop), (vec![0x1004], StopReason::Truncated(reason)));
    }
    let i386 = Module::new(ModuleSections { arch: Arch::I386, ..ModuleSections::default() });
    let found = Process::new(i386).unwind(&regs(0x1004, STACK, 0), &whole(&stack));
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x1004], "abi32"));
}

/// Check that the unwinder guesses nothing by default, that with the option it takes the word at sp for a leaf only,
/// and that the guess is flagged.
#[test]
fn guesses_leaves_when_asked() {
    let mut process = process();
    let stack = bytes(&[BIAS + 0x1005, 0, 0, 0, BIAS + 0x2005, BIAS + 0x3001]);
    let leaf = regs(0x2004, STACK, 0);
    assert_eq!(addresses(&process.unwind(&leaf, &whole(&stack))), [0x2004]);
    process.options.is_leaf_guessed = true;
    let found = process.unwind(&leaf, &whole(&stack));
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x2004, 0x1005, 0x2005], "no_cfi"));
    assert_eq!(
        found.frames.iter().map(|frame| frame.source).collect::<Vec<_>>(),
        [FrameSource::Registers, FrameSource::Heuristic, FrameSource::Cfi]
    );
    assert_eq!(found.frames[0].cfa, STACK + 8);
    // The word at sp is not a return address, so it is not used.
    let found = process.unwind(&leaf, &whole(&bytes(&[STACK, 0])));
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x2004], "no_cfi"));
}

/// Check that the frame pointer is followed only with the option, only where it is plausible, and flagged.
#[test]
fn follows_frame_pointers_when_asked() {
    let mut process = process();
    let stack = bytes(&[0, 0, STACK + 48, JIT + 0x20, 0, 0, 0x55, BIAS + 0x1005, 0, 0, 0, BIAS + 0x3001]);
    let mut leaf = regs(0, STACK, STACK + 16);
    leaf.set(16, JIT + 0x10);
    assert_eq!(process.unwind(&leaf, &whole(&stack)).frames.len(), 1);
    process.options.fallback = Fallback::FramePointer;
    let found = process.unwind(&leaf, &whole(&stack));
    assert_eq!(addresses(&found), [JIT + 0x10, JIT + 0x20, 0x1005, 0x3001]);
    assert_eq!(
        found.frames.iter().map(|frame| frame.flags.fp_fallback).collect::<Vec<_>>(),
        [false, true, true, false]
    );
    assert_eq!(found.frames[1].source, FrameSource::FramePointer);
    assert_eq!(found.frames[3].source, FrameSource::Cfi);
    // A frame pointer below sp, misaligned, outside the stack, or without a return address: the stop reason stays.
    for fp in [STACK - 8, STACK + 20, STACK + 4096, STACK + 8, 0] {
        leaf.set(6, fp);
        let found = process.unwind(&leaf, &whole(&stack));
        assert_eq!((found.frames.len(), found.stop.name()), (1, "no_module"), "{fp:#x}");
    }
}

/// Check that the frame pointer is followed in JIT-compiled code and in code called from it or by it, nowhere else, and
/// flagged.
#[test]
fn follows_frame_pointers_of_jit_compiled_code() {
    const ROOT: u64 = BIAS + 0x3001;
    const JIT_RETURN: u64 = JIT + 0x20;
    /// Code in the module, without call frame information.
    const BUILTIN: u64 = BIAS + 0x2005;
    let mut process = process();
    process.options.fallback = Fallback::Jit;
    let walk = |leaf: u64, [first, second]: [u64; 2]| {
        let stack = bytes(&[0, 0, STACK + 48, first, 0, 0, STACK + 80, second, 0, 0, 0, ROOT]);
        let mut regs = regs(0, STACK, STACK + 16);
        regs.set(16, leaf);
        let found = process.unwind(&regs, &whole(&stack));
        assert!(found.frames.iter().all(|frame| !frame.flags.fp_fallback));
        let flagged = found.frames.iter().map(|frame| frame.flags.fp_in_jit).collect::<Vec<_>>();
        (flagged, found.stop.name())
    };
    // The last frame is the one whose row says that 0x3001 is the root.
    let complete = |flags: &[bool]| (flags.to_vec(), "undefined_ra");
    assert_eq!(walk(JIT + 0x10, [JIT_RETURN, BIAS + 0x1005]), complete(&[false, true, true, false]));
    assert_eq!(walk(JIT + 0x10, [BUILTIN, BIAS + 0x1005]), complete(&[false, true, true, false]));
    assert_eq!(walk(BUILTIN, [JIT_RETURN, BIAS + 0x1005]), complete(&[false, true, true, false]));
    assert_eq!(walk(BUILTIN, [BIAS + 0x1005, JIT_RETURN]), (vec![false], "no_cfi"));
    assert_eq!(walk(BUILTIN, [BUILTIN, JIT_RETURN]), complete(&[false, true, true, true]));
    assert_eq!(walk(BUILTIN, [BUILTIN, BUILTIN]), (vec![false], "no_cfi"));
    // The frame at `BIAS + 0x1005` has a row, which is used instead of the frame pointer.
    assert_eq!(walk(JIT + 0x10, [BIAS + 0x1005, JIT_RETURN]).0[..2], [false, true]);
    // An address outside all mappings is not JIT-compiled code.
    assert_eq!(walk(STACK, [BIAS + 0x1005, 0]), (vec![false], "no_module"));
}

/// Check that compiled code is unwound by the module of its piece, and code outside the pieces by none.
#[test]
fn compiled_code_has_rows_of_its_own() {
    let mut process = process();
    let mut cfi = Cfi::eh_frame();
    cfi.fde(JIT + 0x100, 0x20, &[cfa::def_cfa_offset(24)]);
    process.modules.0.push(Ok(cfi.module()));
    let piece = Mapping { start: JIT + 0x100, end: JIT + 0x120, executable: true, module: Some(ModuleId(1)), bias: 0 };
    process.space = process.space.clone().with_compiled(vec![piece].into());
    let stack = bytes(&[0, 0, BIAS + 0x3001]);
    let walk = |leaf: u64| {
        let mut regs = regs(0, STACK, 0);
        regs.set(16, leaf);
        let found = process.unwind(&regs, &whole(&stack));
        (found.frames.len(), found.stop.name())
    };
    assert_eq!(walk(JIT + 0x100), (2, "undefined_ra"));
    assert_eq!(walk(JIT + 0x11f), (2, "undefined_ra"));
    assert_eq!(walk(JIT + 0xff), (1, "no_module"));
    assert_eq!(walk(JIT + 0x120), (1, "no_module"));
}
