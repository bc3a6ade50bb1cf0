//! Memory: a walk over addresses seen before allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use fpprof_unwind::{
    Chunk, Job, Mapping, Module, ModuleId, ModuleSections, Regs, Section, Space, Stack, Stacks, Unwinder,
};

/// Counts the allocations of this thread.
struct Counting;

thread_local! {
    static N_ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        N_ALLOCATIONS.set(N_ALLOCATIONS.get() + 1);
        // SAFETY: the caller upholds the contract of `alloc`, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CODE: u64 = 0x5555_0000_0000;
const STACK: u64 = 0x7ffc_0000_0000;

/// A CIE (CFA = rsp + 8, ra = c − 8), `f` at 0x1000 (CFA = rsp + 16) and `g` at 0x1100 (CFA = rbx + 16).
fn module() -> Module {
    let mut bytes = vec![16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0];
    for (start, instructions) in [(0x1000_u64, [0x0e, 16, 0, 0]), (0x1100, [0x0c, 3, 16, 0])] {
        let pointer = u32::try_from(bytes.len()).expect("sections are small") + 4;
        bytes.extend(24_u32.to_le_bytes());
        bytes.extend(pointer.to_le_bytes());
        bytes.extend(start.to_le_bytes());
        bytes.extend(0x100_u64.to_le_bytes());
        bytes.extend(instructions);
    }
    let eh_frame = Some(Section { svma: 0x8000, bytes: bytes.into() });
    Module::new(ModuleSections { eh_frame, ..ModuleSections::default() })
}

/// Check that after the first pass no frame costs an allocation: by rules, with all registers, and in batches.
#[test]
fn walks_do_not_allocate() {
    let mapping = Mapping { start: CODE, end: CODE + 0x8000, executable: true, module: Some(ModuleId(0)), bias: CODE };
    let space = Space::new(0, vec![mapping]);
    let modules = vec![module()];
    let words: Vec<u8> = [0, CODE + 0x1010].repeat(200).into_iter().flat_map(u64::to_le_bytes).collect();
    let memory = Chunk { start: STACK, bytes: &words, stack_end: None, holes: &[] };
    let samples: Vec<Regs> = [CODE + 0x1000, CODE + 0x1108]
        .into_iter()
        .cycle()
        .take(100)
        .map(|ip| {
            let mut values = [STACK; 17];
            values[16] = ip;
            Regs::x86_64(&values)
        })
        .collect();
    let jobs: Vec<_> = samples.iter().map(|regs| Job { space: &space, regs, memory }).collect();
    let mut unwinder = Unwinder::default();
    let (mut stack, mut stacks) = (Stack::default(), Stacks::default());
    let mut pass = || {
        let mut n_frames = 0;
        for regs in &samples {
            unwinder.unwind(&modules, &space, regs, &memory, &mut stack);
            n_frames += stack.frames.len();
        }
        unwinder.unwind_batch(&modules, &jobs, &mut stacks);
        n_frames + stacks.n_frames()
    };
    pass();
    let before = N_ALLOCATIONS.get();
    let n_frames = pass();
    assert_eq!(N_ALLOCATIONS.get() - before, 0);
    assert_eq!(n_frames, 2 * 100 * 201);
}
