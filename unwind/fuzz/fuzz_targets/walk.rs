//! Any registers, any stack and any `.eh_frame`: a walk ends, keeps to its depth limit, does not depend on its batch,
//! and every return address is in executable memory.
#![no_main]

use arbitrary::Arbitrary;
use fpprof_unwind::{
    Chunk, Fallback, Frame, FrameSource, Job, Mapping, Module, ModuleId, ModuleSections, Options, Regs, Section, Space,
    Stack, Stacks, Unwinder,
};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    registers: [u64; 17],
    stack_end: Option<u16>,
    holes: Vec<(u16, u16)>,
    is_leaf_guessed: bool,
    follows_fp: bool,
    max_depth: u8,
    eh_frame: &'a [u8],
    stack: &'a [u8],
}

fuzz_target!(|input: Input<'_>| {
    let regs = Regs::x86_64(&input.registers);
    let sp = input.registers[7];
    let eh_frame = Some(Section { svma: 0x1000, bytes: input.eh_frame.to_vec().into() });
    let modules = vec![Module::new(ModuleSections { eh_frame, ..ModuleSections::default() })];
    let code = Mapping { start: 0, end: 1 << 40, executable: true, module: Some(ModuleId(0)), bias: 0 };
    let space = Space::new(0, vec![code]);
    let holes: Vec<_> = input.holes.iter().map(|&(at, len)| (u32::from(at), u32::from(len))).collect();
    let stack_end = input.stack_end.map(|len| sp.saturating_add(u64::from(len)));
    let memory = Chunk { start: sp, bytes: input.stack, stack_end, holes: &holes };
    let options = Options {
        max_depth: u32::from(input.max_depth),
        fallback: if input.follows_fp { Fallback::FramePointer } else { Fallback::None },
        is_leaf_guessed: input.is_leaf_guessed,
        ..Options::default()
    };
    let mut unwinder = Unwinder::new(options);
    let mut stack = Stack::default();
    unwinder.unwind(&modules, &space, &regs, &memory, &mut stack);
    assert!(stack.frames.len() <= usize::from(input.max_depth));
    let is_code = |frame: &Frame| space.find(frame.lookup()).is_some_and(|mapping| mapping.executable);
    assert!(stack.frames.iter().all(|frame| frame.source == FrameSource::Registers || is_code(frame)));
    let jobs = vec![Job { space: &space, regs: &regs, memory }; 3];
    let mut stacks = Stacks::default();
    unwinder.unwind_batch(&modules, &jobs, &mut stacks);
    assert!(stacks.iter().all(|found| found.to_stack() == stack));
    unwinder.walk_frame_pointers(&modules, &space, &regs, &memory, &mut stack);
    assert!(stack.frames.len() <= usize::from(input.max_depth).max(1));
});
