//! Walks that switch to another stack, copied or not.

use fpprof_unwind::{Chunk, Chunks, Memory as _, ReadFault, Stack};

use crate::build::{BIAS, Cfi, Process, R10, RA, RBP, STACK, addresses, bytes, cfa, regs};

/// Start of the interrupted stack's chunk, and the end of that stack.
const OTHER: u64 = STACK - 0x10_0000;
const OTHER_END: u64 = OTHER + 0x100;

/// Walks from a frame whose caller's frame ends at `cfa`, with a return address in a register.
fn walk(return_address: u64, cfa: u64, memory: &Chunks<'_>) -> Stack {
    let mut rows = Cfi::eh_frame();
    rows.fde(0x1000, 0x10, &[cfa::def_cfa(RBP, 16), cfa::in_register(RA, R10)])
        .fde(0x1100, 0x10, &[cfa::def_cfa_offset(16)])
        .fde(0x3000, 0x10, &[cfa::undefined(RA)]);
    let mut regs = regs(0x1004, STACK, cfa - 16);
    regs.set(R10.into(), BIAS + return_address);
    Process::new(rows.module()).unwind(&regs, memory)
}

fn interrupted(bytes: &[u8]) -> Chunk<'_> {
    Chunk { start: OTHER, bytes, stack_end: Some(OTHER_END), holes: &[] }
}

fn chunks<'a>(bytes: &'a [u8], interrupted: &'a Chunk<'a>) -> Chunks<'a> {
    let current = Chunk { start: STACK, bytes, stack_end: Some(STACK + 0x40), holes: &[] };
    Chunks { current, interrupted: Some(interrupted) }
}

/// Check that a walk continues on the interrupted stack, whether it is below the current one or around it, and that a
/// walk that goes elsewhere, or beyond the copied bytes, ends with the right reason.
#[test]
fn the_interrupted_stack_is_walked() {
    let (current, other) = (bytes(&[0; 8]), bytes(&[0, BIAS + 0x3001, 0]));
    let other = interrupted(&other);
    let memory = chunks(&current, &other);
    let found = walk(0x1105, OTHER, &memory);
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x1004, 0x1105, 0x3001], "undefined_ra"));
    for (cfa, expected) in [(OTHER + 16, "chunk_end"), (OTHER_END, "stack_switch")] {
        assert_eq!(walk(0x1105, cfa, &memory).stop.name(), expected, "{cfa:#x}");
    }
    assert_eq!(walk(0x1105, OTHER, &chunks(&current, &interrupted(&[]))).stop.name(), "chunk_end");
    assert_eq!(walk(0x1105, OTHER, &Chunks { interrupted: None, ..memory }).stop.name(), "cfa_not_increasing");
    let around = Chunk { stack_end: Some(STACK + 0x1000), ..other };
    let memory = Chunks { interrupted: Some(&around), ..memory };
    assert_eq!(memory.stack_end(STACK + 0x40), Some(STACK + 0x1000));
    assert_eq!((memory.stack_end(STACK), memory.read_u64(STACK + 8)), (Some(STACK + 0x40), Ok(0)));
    assert_eq!(memory.read_u64(STACK + 0x40), Err(ReadFault::AboveChunk));
}

/// Check that code without rows is the outermost frame at the end of its own stack, but not above the end of another.
#[test]
fn each_stack_has_its_own_end() {
    let (current, other) = (bytes(&[0; 8]), bytes(&[0; 32]));
    let other = interrupted(&other);
    let memory = chunks(&current, &other);
    assert_eq!(walk(0x2005, OTHER_END, &memory).stop.name(), "stack_end");
    assert_eq!(walk(0x2005, OTHER + 0x40, &memory).stop.name(), "no_cfi");
    let lower = Chunk { start: OTHER, stack_end: Some(OTHER_END), ..memory.current };
    for memory in
        [Chunks { current: lower, interrupted: None }, Chunks { current: lower, interrupted: Some(&memory.current) }]
    {
        assert_eq!(walk(0x2005, STACK + 0x20, &memory).stop.name(), "no_cfi");
    }
}
