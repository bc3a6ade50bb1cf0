//! Frames without rows: at the end of a stack, and where a signal handler returns.

use std::collections::BTreeMap;

use fpprof_unwind::{
    Arch, Chain, ChainEnd, ChainEntry, Chunk, Frame, FrameSource, Mapping, Memory, Module, ModuleId, ModuleSections,
    Modules, Regs, Root, Space, Stack, StopReason, TruncatedReason, Unwinder,
};

use crate::arches::aarch64;
use crate::build::{BIAS, Cfi, RA, RSP, STACK, addresses, bytes, cfa, regs, whole};

/// A module at [`BIAS`] whose code can be read: nops, except at some addresses.
struct Program {
    module: Module,
    code: BTreeMap<u64, &'static [u8]>,
}

impl Modules for Program {
    fn module(&self, _: ModuleId) -> Result<&Module, TruncatedReason> {
        Ok(&self.module)
    }

    fn code(&self, _: ModuleId, svma: u64, code: &mut [u8]) -> bool {
        code.fill(0x90);
        for (&start, bytes) in &self.code {
            for (address, byte) in (start..).zip(*bytes) {
                let at = address.checked_sub(svma).and_then(|at| usize::try_from(at).ok());
                if let Some(to) = at.and_then(|at| code.get_mut(at)) {
                    *to = *byte;
                }
            }
        }
        true
    }
}

const CALL: &[u8] = &[0xe8, 1, 2, 3, 4];
const START: StopReason = StopReason::Complete(Root::Start);
const STACK_END: StopReason = StopReason::Complete(Root::StackEnd);

impl Program {
    /// Rows from 0x1000 to 0x1200, an undefined return address at 0x3000, and no row for the entry point at 0x5000.
    /// Call instructions end at the addresses in `calls`.
    fn new(calls: &[u64]) -> Self {
        let mut cfi = Cfi::eh_frame();
        cfi.fde(0x1000, 0x100, &[]).fde(0x1100, 0x100, &[cfa::def_cfa_offset(16)]).fde(
            0x3000,
            0x10,
            &[cfa::undefined(RA)],
        );
        let module = Module::new(ModuleSections { entry: Some(0x5000), ..cfi.sections() });
        Self { module, code: calls.iter().map(|&address| (address - 5, CALL)).collect() }
    }

    fn space() -> Space {
        let module = Some(ModuleId(0));
        Space::new(1, vec![Mapping { start: BIAS, end: BIAS + 0x1_0000, executable: true, module, bias: BIAS }])
    }

    /// Unwinds from 0x1004 with this memory, by rules and with all registers, which must agree.
    fn unwind(&self, memory: &impl Memory) -> Stack {
        self.unwind_from(0x1004, memory)
    }

    fn unwind_from(&self, ip: u64, memory: &impl Memory) -> Stack {
        let (mut stack, mut full) = (Stack::default(), Stack::default());
        let mut regs = regs(ip, STACK, 0);
        let mut unwinder = Unwinder::default();
        unwinder.unwind(self, &Self::space(), &regs, memory, &mut stack);
        regs.clear(6);
        unwinder.unwind(self, &Self::space(), &regs, memory, &mut full);
        assert_eq!(stack, full);
        stack
    }
}

/// Check that code without rows at the end of its stack is the outermost frame, with different names for the entry
/// point and other code; and that it is not if a return address is above, even near the entry point.
#[test]
fn the_end_of_the_stack_is_the_root() {
    let program = Program::new(&[0x5010, 0x5050, 0x8010]);
    let end = |words: &[u64]| {
        let stack = program.unwind(&whole(&bytes(words)));
        (addresses(&stack), stack.stop)
    };
    assert_eq!(end(&[BIAS + 0x5010]), (vec![0x1004, 0x5010], START));
    assert_eq!(end(&[BIAS + 0x5010, 7, STACK, BIAS + 0x6000]), (vec![0x1004, 0x5010], START), "pushed words");
    assert_eq!(end(&[BIAS + 0x8010]), (vec![0x1004, 0x8010], STACK_END));
    assert_eq!(end(&[BIAS + 0x8010, 7]).1.name(), "no_cfi", "who knows what is code");
    let (frames, stop) = end(&[BIAS + 0x5010, 7, BIAS + 0x5050]);
    assert_eq!((frames, stop.name()), (vec![0x1004, 0x5010], "no_cfi"), "a function next to the entry point");
    let far: Vec<u64> = [BIAS + 0x5010].into_iter().chain([0; 65]).collect();
    assert_eq!(end(&far).1.name(), "no_cfi");
}

/// Check that start code without rows is unwound to the entry point that called it, if the last word of the stack is
/// the only candidate.
#[test]
fn start_code_is_left_for_the_entry_point() {
    let program = Program::new(&[0x5010, 0x8010, 0x9010]);
    let words = [BIAS + 0x8010, 1, BIAS + 0x6000, STACK, BIAS + 0x5010];
    let found = program.unwind(&whole(&bytes(&words)));
    assert_eq!((addresses(&found), found.stop), (vec![0x1004, 0x8010, 0x5010], START));
    let places: Vec<_> = found.frames.iter().map(|frame| (frame.cfa, frame.source)).collect();
    let expected = [(STACK + 8, FrameSource::Registers), (STACK + 40, FrameSource::Cfi), (0, FrameSource::Heuristic)];
    assert_eq!(places, expected);
    for others in [
        [BIAS + 0x8010, 1, BIAS + 0x9010, STACK, BIAS + 0x5010],
        [BIAS + 0x8010, 1, 2, STACK, BIAS + 0x9010],
        [BIAS + 0x8010, 1, BIAS + 0x5010, 2, 3],
    ] {
        let found = program.unwind(&whole(&bytes(&others)));
        assert_eq!((addresses(&found), found.stop.name()), (vec![0x1004, 0x8010], "no_cfi"), "{others:x?}");
    }
}

/// Check that the end of a stack is recognised by the arguments above it if it is not known otherwise, and that other
/// words are not mistaken for them.
#[test]
fn arguments_lie_above_the_stack() {
    let program = Program::new(&[0x5010]);
    let stop = |words: &[u64]| {
        let bytes = bytes(words);
        program.unwind(&Chunk { start: STACK, bytes: &bytes, stack_end: None, holes: &[] }).stop
    };
    let [one, two] = [STACK + 0x100, STACK + 0x110];
    assert_eq!(stop(&[BIAS + 0x5010, 0, 2, one, two, 0, 0]), START);
    assert_eq!(stop(&[BIAS + 0x5010, 0, 9, 9, 1, one, 0, 0]), START);
    for words in [[2, one, two, 1, 0], [0, one, two, 0, 0], [2, two, one, 0, 0], [1 << 20, one, two, 0, 0]] {
        let words: Vec<u64> = [BIAS + 0x5010, 0].into_iter().chain(words).collect();
        assert_eq!(stop(&words).name(), "no_cfi", "{words:x?}");
    }
}

/// Check that a frame-pointer chain through code without rows is complete if its last frame is at the end of the stack,
/// but not if it is merely near the entry point.
#[test]
fn chains_end_at_the_end_of_the_stack() {
    let program = Program::new(&[]);
    let walk = |words: &[u64]| {
        let bytes = bytes(words);
        let mut stack = Stack::default();
        let regs = regs(0x5030, STACK, STACK);
        Unwinder::default().walk_frame_pointers(&program, &Program::space(), &regs, &whole(&bytes), &mut stack);
        (addresses(&stack), stack.stop)
    };
    assert_eq!(walk(&[STACK + 16, BIAS + 0x5020, 0, BIAS + 0x5010]), (vec![0x5030, 0x5020, 0x5010], START));
    let (frames, stop) = walk(&[STACK + 16, BIAS + 0x5020, 0, BIAS + 0x5028, BIAS + 0x5010]);
    assert_eq!((frames, stop.name()), (vec![0x5030, 0x5020, 0x5028], "no_cfi"), "a frameless function is between");
    let judge = |entries: &[(u64, u64)], stack_end| {
        let entry = |&(address, frame_address)| ChainEntry { address: BIAS + address, frame_address };
        let entries: Vec<_> = entries.iter().map(entry).collect();
        let chain = Chain { entries: &entries, end: ChainEnd::Zero, arch: Arch::X86_64, regs: None, stack_end };
        let mut stack = Stack::default();
        Unwinder::default().judge_chain(&program, &Program::space(), &chain, &mut stack);
        stack.stop
    };
    let chain = [(0x5030, 0), (0x5020, STACK), (0x5010, STACK + 16)];
    assert_eq!(judge(&chain, Some(STACK + 32)), START);
    assert_eq!(judge(&chain, Some(STACK + 40)).name(), "no_cfi");
    assert_eq!(judge(&[(0x5030, 0), (0x5010, 0)], None), START, "nothing else is known");
    assert_eq!(judge(&[(0x5030, 0)], None).name(), "no_cfi");
}

/// Words of a signal frame, as the kernel writes it at the stack pointer of `rt_sigreturn`.
fn signal_frame(ip: u64, sp: u64) -> Vec<u64> {
    let mut words = vec![0; 23];
    (words[20], words[21]) = (sp, ip);
    words
}

/// Check that a handler's return to code without rows that returns from the signal leads to the interrupted frame.
#[test]
fn a_trampoline_is_known_by_its_code() {
    let musl: &[u8] = &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
    for code in [musl, &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]] {
        let mut program = Program::new(&[]);
        program.code.insert(0x6000, code);
        let sp = STACK + 8 + 8 * 23;
        let mut words = vec![BIAS + 0x6000];
        words.extend(signal_frame(BIAS + 0x1104, sp));
        words.extend([0, BIAS + 0x3001]);
        let found = program.unwind(&whole(&bytes(&words)));
        assert_eq!((addresses(&found), found.stop.name()), (vec![0x1004, 0x6000, 0x1104, 0x3001], "undefined_ra"));
        let flags: Vec<_> = found.frames.iter().map(|frame| (frame.flags.is_instruction, frame.cfa)).collect();
        assert_eq!(flags, [(true, STACK + 8), (false, sp), (true, sp + 16), (false, 0)]);
        let mut rules = Vec::new();
        Unwinder::default().function_rules(&program, ModuleId(0), 0x5fff, |range, rule| rules.push((range, rule & 15)));
        assert_eq!(rules, [(0x5f00..0x5fff, 3), (0x5fff..0x6000, 4)], "a signal frame");
        // Within, and in the system call, where the return address is no more on the stack.
        let mut words = signal_frame(BIAS + 0x1104, STACK + 8 * 23);
        words.extend([0, BIAS + 0x3001]);
        for ip in [0x6000, 0x6000 + code.len() as u64 - 2, 0x6000 + code.len() as u64] {
            let found = program.unwind_from(ip, &whole(&bytes(&words)));
            assert_eq!((addresses(&found), found.stop.name()), (vec![ip, 0x1104, 0x3001], "undefined_ra"));
        }
        let behind = program.unwind_from(0x6001 + code.len() as u64, &whole(&bytes(&words)));
        assert_eq!((behind.frames.len(), behind.stop.name()), (1, "no_cfi"));
    }
}

/// Check that stubs without rows by which linkers call other modules are unwound from each of their instructions, and that
/// other code is not.
#[test]
fn stubs_are_known_by_their_code() {
    let slot = [0xe2, 0x2f, 0, 0];
    let header = [&[0xff, 0x35][..], &slot, &[0xff, 0x25], &slot, &[0x0f, 0x1f, 0x40, 0]].concat();
    let lazy = [&[0xff, 0x25][..], &slot, &[0x68, 1, 0, 0, 0, 0xe9, 0xe0, 0xff, 0xff, 0xff]].concat();
    let push = [0xf3, 0x0f, 0x1e, 0xfa, 0x68, 1, 0, 0, 0, 0xe9, 0xe2, 0xff, 0xff, 0xff, 0x66, 0x90];
    let sec = [&[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25][..], &slot, &[0x66, 0x0f, 0x1f, 0x44, 0, 0]].concat();
    let mold = [&[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0xbb, 1, 0, 0, 0, 0xff, 0x25][..], &slot].concat();
    let other = [&[0x90, 0x90, 0xff, 0x25][..], &slot, &[0x90; 8]].concat();
    // The instructions of each, with the words that were pushed before them.
    let cases = [
        (header, &[(0, 1), (6, 2)][..]),
        (lazy, &[(0, 0), (6, 0), (11, 1)]),
        (push.to_vec(), &[(0, 0), (4, 0), (9, 1)]),
        (sec, &[(0, 0), (4, 0)]),
        (mold, &[(0, 0), (4, 0), (10, 0)]),
    ];
    for (code, instructions) in cases {
        let code: &'static [u8] = code.leak();
        let mut program = Program::new(&[0x1110]);
        program.code.insert(0x6000, code);
        for &(at, n_pushed) in instructions {
            let mut words = vec![1; n_pushed];
            words.extend([BIAS + 0x1110, 0, BIAS + 0x3001]);
            let found = program.unwind_from(0x6000 + at, &whole(&bytes(&words)));
            assert_eq!((addresses(&found), found.stop.name()), (vec![0x6000 + at, 0x1110, 0x3001], "undefined_ra"));
            assert_eq!(found.frames[0].cfa, STACK + 8 * (n_pushed as u64 + 1));
            assert_eq!(found.frames[1].source, FrameSource::Cfi);
        }
    }
    let mut program = Program::new(&[0x1110]);
    program.code.insert(0x6000, other.leak());
    let found = program.unwind_from(0x6002, &whole(&bytes(&[BIAS + 0x1110, 0, BIAS + 0x3001])));
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x6002], "no_cfi"));
}

/// Check that stubs for aarch64 are unwound from each of their instructions by the link register, and that the first one of a
/// table, which has stored it, is not.
#[test]
fn stubs_of_aarch64_are_known_by_their_code() {
    // bti c; adrp x16; ldr x17, [x16, #1200]; add x16, x16, #1200; br x17; nop
    let words = [0xd503_245f_u32, 0x9000_0110, 0xf942_5a11, 0x9112_c210, 0xd61f_0220, 0xd503_201f, 0xd503_201f];
    let code = |first: u32| -> &'static [u8] {
        let words = [&[first], &words[1..], &[0xd503_201f; 4]].concat();
        words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>().leak()
    };
    let unwound = |code, ip| {
        let mut program = Program::new(&[]);
        program.module = aarch64();
        program.code.insert(0x6000, code);
        let mut regs = Regs::new(Arch::Aarch64).with_ip(BIAS + ip).with_sp(STACK);
        regs.set(30, BIAS + 0x2004);
        let mut found = Stack::default();
        Unwinder::default().unwind(&program, &Program::space(), &regs, &whole(&bytes(&[0; 8])), &mut found);
        (addresses(&found), found.stop.name())
    };
    for at in (0..20).step_by(4) {
        assert_eq!(unwound(code(words[0]), 0x6000 + at), (vec![0x6000 + at, 0x2004], "_start"));
    }
    assert_eq!(unwound(code(words[0]), 0x6014), (vec![0x6014], "no_cfi"), "behind it");
    // stp x16, x30, [sp, #-16]!
    for at in (0..20).step_by(4) {
        assert_eq!(unwound(code(0xa9bf_7bf0), 0x6000 + at), (vec![0x6000 + at], "no_cfi"));
    }
}

/// Check that code without rows that waits in a system call is unwound to its caller, if the word at the stack pointer
/// follows a call; but neither a new thread, whose stack begins there, nor other code without rows.
#[test]
fn code_after_a_system_call_is_left_for_its_caller() {
    let mut program = Program::new(&[0x1110]);
    program.code.insert(0x6000, &[0x0f, 0x05, 0x85, 0xc0]);
    let from = |ip, word| {
        let found = program.unwind_from(ip, &whole(&bytes(&[BIAS + word, 0, BIAS + 0x3001])));
        let sources: Vec<_> = found.frames.iter().map(|frame| frame.source).collect();
        (addresses(&found), sources, found.stop.name())
    };
    let sources = vec![FrameSource::Registers, FrameSource::Heuristic, FrameSource::Cfi];
    assert_eq!(from(0x6002, 0x1110), (vec![0x6002, 0x1110, 0x3001], sources, "undefined_ra"));
    let alone = |ip| (vec![ip], vec![FrameSource::Registers], "no_cfi");
    assert_eq!(from(0x6002, 0x1118), alone(0x6002));
    assert_eq!(from(0x6004, 0x1110), alone(0x6004));
}

/// Check that aarch64's signal trampoline is recognised by its code, and that the return address of the interrupted
/// leaf is taken from the link register the kernel saved.
#[test]
fn the_trampoline_of_aarch64_is_known_by_its_code() {
    let mut program = Program::new(&[]);
    program.module = aarch64();
    program.code.insert(0x6000, &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4]);
    let mut words = vec![0; 72];
    // x30, sp and pc.
    (words[69], words[70], words[71]) = (BIAS + 0x2004, STACK + 8 * 72, BIAS + 0x1010);
    let mut regs = Regs::new(Arch::Aarch64).with_ip(BIAS + 0x1008).with_sp(STACK);
    regs.set(30, BIAS + 0x6000);
    let mut found = Stack::default();
    Unwinder::default().unwind(&program, &Program::space(), &regs, &whole(&bytes(&words)), &mut found);
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x1008, 0x6000, 0x1010, 0x2004], "_start"));
}

/// Check that an interrupted jump to a bad address is unwound to its caller, if the return address follows a call; and
/// that the stack is not called broken otherwise.
#[test]
fn a_bad_jump_is_left_for_its_caller() {
    let mut program = Program::new(&[0x1110]);
    program.code.insert(0x6000, &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05]);
    let sp = STACK + 8 + 8 * 23;
    for (caller, rest) in [(0x1110, vec![0x1110, 0x3001]), (0x1118, vec![])] {
        let mut words = vec![BIAS + 0x6000];
        words.extend(signal_frame(0x4141, sp));
        words.extend([BIAS + caller, 0, BIAS + 0x3001]);
        let found = program.unwind(&whole(&bytes(&words)));
        let expected: Vec<u64> = [0x1004, 0x6000, 0x4141].into_iter().chain(rest.iter().copied()).collect();
        assert_eq!(addresses(&found), expected);
        assert_eq!(found.stop.name(), if rest.is_empty() { "no_module" } else { "undefined_ra" });
        let guessed: Vec<&Frame> = found.frames.iter().filter(|frame| frame.source == FrameSource::Heuristic).collect();
        assert_eq!(guessed.len(), usize::from(!rest.is_empty()));
    }
}

/// Check that the rows of glibc's old code for contended locks are followed from each of its instructions: their CFA is
/// below the stack pointer at first, and an expression computes the return address.
///
/// # Sources
/// glibc 2.12 `nptl/sysdeps/unix/sysv/linux/x86_64/lowlevellock.h`, `LLL_STUB_UNWIND_INFO_5`.
#[test]
fn rows_that_step_over_the_red_zone_are_followed() {
    // 2000: lea; 2007: sub $128,%rsp; 200b: call; 2010: add $128,%rsp; 2014: jmp 1110
    let rip = |offset: u8| cfa::val_expression(RA, &[0x80, offset & 0x7f]);
    let back = |offset: u16| cfa::val_expression(RA, &[0x80, (offset & 0x7f) as u8 | 0x80, (offset >> 7 & 0x7f) as u8]);
    let to = |from: u16| back(0x1110_u16.wrapping_sub(from));
    let mut cfi = Cfi::eh_frame();
    cfi.cie("zR", &[0x12, RSP, 16]).fde(
        0x2000,
        0x16,
        &[
            rip(0x10),
            cfa::advance(7),
            rip(9),
            cfa::advance(4),
            cfa::def_cfa_offset(0),
            rip(5),
            cfa::advance(4),
            cfa::def_cfa_offset(128),
            to(0x2010),
            cfa::advance(1),
            to(0x2010),
            cfa::advance(4),
            cfa::def_cfa_offset(0),
            to(0x2014),
        ],
    );
    cfi.cie("zR", &[cfa::def_cfa(RSP, 8), cfa::saved(RA, 8)].concat());
    cfi.fde(0x1100, 0x100, &[cfa::def_cfa_offset(16)]).fde(0x3000, 0x10, &[cfa::undefined(RA)]);
    let mut program = Program::new(&[]);
    program.module = Module::new(cfi.sections());
    let mut words = vec![0; 16];
    words.extend([0, BIAS + 0x3001]);
    let bytes = bytes(&words);
    let top = STACK + 128;
    for (ip, sp) in [(0x2000, top), (0x2007, top), (0x200b, STACK), (0x2010, STACK), (0x2014, top)] {
        let mut stack = Stack::default();
        Unwinder::default().unwind(&program, &Program::space(), &regs(ip, sp, 0), &whole(&bytes), &mut stack);
        let through = if ip < 0x2010 { vec![ip, 0x2010] } else { vec![ip] };
        // If it is computed from the last byte of the call, it is the function before the jump back.
        let frames = addresses(&stack);
        assert!(frames.starts_with(&through), "{ip:#x}: {frames:x?}");
        assert_eq!(frames[through.len()..], [0x1110, 0x3001], "{ip:#x}");
        assert_eq!(stack.stop.name(), "undefined_ra", "{ip:#x}");
    }
}
