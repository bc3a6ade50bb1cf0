//! Call frame information: the sections of a module, and stacks that are walked by them.

use fpprof_unwind::{
    Arch, Chunk, Fallback, Frame, FrameSource, Job, Mapping, Module, ModuleId, ModuleSections, Options, Regs, Section,
    Space, Stack, Stacks, Unwinder, row_at,
};

/// AVMA − SVMA of the module.
const BIAS: u64 = 0x5555_0000_0000;
const STACK: u64 = 0x7ffc_0000_1000;
const EH_FRAME_SVMA: u64 = 0x10_0000;
const HEADER_SVMA: u64 = 0x20_0000;
const MAX_DEPTH: u32 = 100;
/// Functions of a module that are looked at.
const MAX_RANGES: usize = 64;

/// `.eh_frame`.
pub fn eh_frame(input: &[u8]) {
    walk(&ModuleSections { eh_frame: section(EH_FRAME_SVMA, input), ..ModuleSections::default() });
}

/// `.debug_frame`.
pub fn debug_frame(input: &[u8]) {
    walk(&ModuleSections { debug_frame: section(0, input), ..ModuleSections::default() });
}

/// `.eh_frame_hdr`, beside an `.eh_frame` of four functions.
pub fn eh_frame_hdr(input: &[u8]) {
    let eh_frame = entries(&[0x1000, 0x1100, 0x1200, 0x1300], &[]);
    walk(&ModuleSections {
        eh_frame: section(EH_FRAME_SVMA, &eh_frame),
        eh_frame_hdr: section(HEADER_SVMA, input),
        ..ModuleSections::default()
    });
}

/// `.sframe`.
pub fn sframe(input: &[u8]) {
    walk(&ModuleSections { sframe: section(0, input), ..ModuleSections::default() });
}

/// A DWARF expression, as the rule for the CFA and for the register rbx.
pub fn expression(input: &[u8]) {
    let input = &input[..input.len().min(0x3fff)];
    let len = [input.len() as u8 | 0x80, (input.len() >> 7) as u8];
    // DW_CFA_def_cfa_expression; DW_CFA_expression of register 3.
    let program = [&[0x0f], &len[..], input, &[0x10, 3], &len[..], input].concat();
    walk(&ModuleSections {
        eh_frame: section(EH_FRAME_SVMA, &entries(&[0x1000], &program)),
        ..ModuleSections::default()
    });
}

/// Options, registers, one hole, an `.eh_frame` and the stack: a walk keeps its depth limit and does not depend on its
/// batch, and every return address is in executable memory.
pub fn stack(input: &[u8]) {
    let Some((&[flags, max_depth, stack_end, len, hole_at, hole_len], rest)) = input.split_first_chunk() else {
        return;
    };
    let Some((registers, rest)) = rest.split_first_chunk::<{ 17 * 8 }>() else { return };
    let mut words =
        registers.chunks_exact(8).map(|word| word.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)));
    let registers: [u64; 17] = std::array::from_fn(|_| words.next().unwrap_or(0));
    let (eh_frame, bytes) = rest.split_at(rest.len().min(4 * usize::from(len)));
    let modules =
        vec![Module::new(ModuleSections { eh_frame: section(0x1000, eh_frame), ..ModuleSections::default() })];
    let code = Mapping { start: 0, end: 1 << 40, executable: true, module: Some(ModuleId(0)), bias: 0 };
    let space = Space::new(0, vec![code]);
    let (sp, holes) = (registers[7], [(u32::from(hole_at), u32::from(hole_len))]);
    let stack_end = (flags & 1 != 0).then(|| sp.saturating_add(8 * u64::from(stack_end)));
    let memory = Chunk { start: sp, bytes, stack_end, holes: if flags & 2 != 0 { &holes } else { &[] } };
    let mut unwinder = Unwinder::new(Options {
        max_depth: max_depth.into(),
        fallback: if flags & 4 != 0 { Fallback::FramePointer } else { Fallback::None },
        is_leaf_guessed: flags & 8 != 0,
        ..Options::default()
    });
    let (regs, mut stack, mut stacks) = (Regs::x86_64(&registers), Stack::default(), Stacks::default());
    unwinder.unwind(&modules, &space, &regs, &memory, &mut stack);
    assert!(stack.frames.len() <= usize::from(max_depth));
    let is_code = |frame: &Frame| space.find(frame.lookup()).is_some_and(|mapping| mapping.executable);
    assert!(stack.frames.iter().all(|frame| frame.source == FrameSource::Registers || is_code(frame)));
    unwinder.unwind_batch(&modules, &vec![Job { space: &space, regs: &regs, memory }; 3], &mut stacks);
    assert!(stacks.iter().all(|found| found.to_stack() == stack));
    unwinder.walk_frame_pointers(&modules, &space, &regs, &memory, &mut stack);
    assert!(stack.frames.len() <= usize::from(max_depth).max(1));
}

fn section(svma: u64, bytes: &[u8]) -> Option<Section> {
    Some(Section { svma, bytes: bytes.to_vec().into() })
}

/// `.eh_frame` with functions of 0x100 bytes, all with the same program.
fn entries(starts: &[u64], program: &[u8]) -> Vec<u8> {
    // Version 1, "zR", code alignment 1, data alignment −8, return address in 16, absolute pointers; CFA = rsp + 8.
    let common = [&[0, 0, 0, 0, 1], &b"zR\0"[..], &[1, 0x78, 16, 1, 0, 0x0c, 7, 8, 0x90, 1]].concat();
    let mut section = Vec::new();
    push(&mut section, common);
    for start in starts {
        let to_common = (section.len() as u32 + 4).to_le_bytes();
        push(&mut section, [&to_common[..], &start.to_le_bytes(), &0x100_u64.to_le_bytes(), &[0], program].concat());
    }
    section
}

fn push(section: &mut Vec<u8>, mut entry: Vec<u8>) {
    entry.resize(entry.len().next_multiple_of(8), 0);
    section.extend((entry.len() as u32).to_le_bytes());
    section.extend(entry);
}

/// Asks everything of a module that can be asked, for each architecture.
fn walk(sections: &ModuleSections) {
    // Return addresses into the module and pointers into the stack.
    let words = (0..64_u64).map(|n| if n % 3 == 0 { STACK + 8 * n + 24 } else { BIAS + 0x1000 + 0x40 * n });
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let chunk = Chunk { start: STACK, bytes: &bytes, stack_end: None, holes: &[] };
    for arch in [Arch::X86_64, Arch::Aarch64, Arch::I386] {
        let modules = vec![Module::new(ModuleSections { arch, entry: Some(0x1000), ..sections.clone() })];
        let _ = modules[0].count_entries();
        let mut addresses = vec![0x1000, 0x1008];
        modules[0].for_each_range(|range| {
            if addresses.len() < MAX_RANGES {
                addresses.extend([range.start, range.start.wrapping_add(5), range.end.wrapping_sub(1)]);
            }
        });
        let start = addresses.iter().min().map_or(0, |&first| first);
        let end = start.saturating_add(1 << 30);
        let (start, end) = (start.saturating_add(BIAS), end.saturating_add(BIAS));
        let mapping = Mapping { start, end, executable: true, module: Some(ModuleId(0)), bias: BIAS };
        let space = Space::new(0, vec![mapping]);
        for fallback in [Fallback::None, Fallback::FramePointer] {
            let options = Options { fallback, is_leaf_guessed: true, max_depth: MAX_DEPTH, ..Options::default() };
            let mut unwinder = Unwinder::new(options);
            for &address in &addresses {
                if let Ok(row) = row_at(&modules[0], address) {
                    let _ = row.to_string();
                }
                let ip = address.wrapping_add(BIAS);
                let regs = Regs::new(arch).with_ip(ip).with_sp(STACK).with_fp(STACK + 16);
                let mut stack = Stack::default();
                unwinder.unwind(&modules, &space, &regs, &chunk, &mut stack);
                assert!((&stack).into_iter().count() <= MAX_DEPTH as usize);
            }
        }
    }
}
