//! Architectures other than x86-64.

use fpprof_unwind::{
    Arch, Chain, ChainEnd, ChainEntry, Chunk, FrameSource, Mapping, Memory, Module, ModuleId, ModuleSections, Options,
    Regs, Space, Stack, Unwinder,
};

use crate::build::{Cfi, Kind, Table, bytes, cfa};

const CODE: u64 = 0xaaaa_0000_0000;
const STACK: u64 = 0xffff_0000_1000;

fn unwind(module: Module, code: u64, regs: &Regs, memory: &impl Memory) -> Stack {
    let space = Space::new(
        1,
        vec![Mapping { start: code, end: code + 0x1_0000, executable: true, module: Some(ModuleId(0)), bias: code }],
    );
    let mut stack = Stack::default();
    Unwinder::new(Options::default()).unwind(&Table(vec![Ok(module)]), &space, regs, memory, &mut stack);
    stack
}

pub(crate) fn aarch64() -> Module {
    let mut cfi = Cfi::new(Kind::EhFrame);
    cfi.cie_of("zR", -8, 30, &cfa::def_cfa(31, 0));
    // stp x29, x30, [sp, -32]!  CFA=sp+32, x29=c-32, x30=c-24
    let frame = [cfa::advance(4), cfa::def_cfa_offset(32), cfa::saved(29, 32), cfa::saved(30, 24)];
    let signed = [vec![0x2d], frame.concat()]; // paciasp: DW_CFA_AARCH64_negate_ra_state
    cfi.fde(0x1000, 0x20, &[])
        .fde(0x1100, 0x40, &frame)
        .fde(0x1200, 0x40, &signed)
        .fde(0x1300, 0x40, &[cfa::def_cfa(29, 16), cfa::saved(29, 16), cfa::saved(30, 8)])
        .fde(0x2000, 0x20, &[cfa::undefined(30)]);
    Module::new(ModuleSections { arch: Arch::Aarch64, entry: Some(0x2000), ..cfi.sections() })
}

/// Check that a leaf's return address is taken from the link register, that of other frames from memory, and that
/// signatures are stripped.
#[test]
fn unwinds_aarch64() {
    let signature = 0x0055_0000_0000_0000;
    let words = bytes(&[
        STACK + 64,                  // x29 of 0x1200's caller
        signature | (CODE + 0x1210), // called from 0x1200
        0,
        0,
        STACK + 80,
        CODE + 0x1310,
        0,
        0,
        0,
        0,
        STACK + 0x77, // 0x1300: CFA = x29 + 16
        CODE + 0x2004,
    ]);
    let memory = Chunk { start: STACK, bytes: &words, stack_end: Some(STACK + 96), holes: &[] };
    let mut regs = Regs::new(Arch::Aarch64);
    regs.set(32, CODE + 0x1008);
    regs.set(31, STACK);
    regs.set(30, signature | (CODE + 0x1110));
    regs.set(29, STACK);
    let found = unwind(aarch64(), CODE, &regs, &memory);
    let addresses: Vec<_> = found.frames.iter().map(|frame| frame.address - CODE).collect();
    assert_eq!((addresses, found.stop.name()), (vec![0x1008, 0x1110, 0x1210, 0x1310, 0x2004], "_start"));
    let cfas: Vec<_> = found.frames.iter().map(|frame| frame.cfa).collect();
    assert_eq!(cfas, [STACK, STACK + 32, STACK + 64, STACK + 96, 0]);
}

/// Check that the link register is not used a second time, which would make a loop.
#[test]
fn the_link_register_is_for_leaves() {
    let mut regs = Regs::new(Arch::Aarch64);
    regs.set(32, CODE + 0x1008);
    regs.set(31, STACK);
    regs.set(30, CODE + 0x1010); // a leaf that called a leaf cannot be
    let found = unwind(aarch64(), CODE, &regs, &Chunk { start: STACK, bytes: &[], stack_end: None, holes: &[] });
    assert_eq!(found.frames.len(), 2);
    assert_eq!(found.stop.class(), "broken");
}

/// Check that the frame records of aarch64 are followed as a frame-pointer chain.
#[test]
fn walks_frame_records() {
    let words = bytes(&[STACK + 32, CODE + 0x1210, 0, 0, 0, CODE + 0x2004]);
    let memory = Chunk { start: STACK, bytes: &words, stack_end: Some(STACK + 48), holes: &[] };
    let space = Space::new(
        1,
        vec![Mapping { start: CODE, end: CODE + 0x1_0000, executable: true, module: Some(ModuleId(0)), bias: CODE }],
    );
    let modules = Table(vec![Ok(aarch64())]);
    for (ip, fp_offset, expected) in [(0x1110, 0, false), (0x1100, 0, true)] {
        let mut regs = Regs::new(Arch::Aarch64);
        regs.set(32, CODE + ip);
        regs.set(31, STACK);
        regs.set(29, STACK + fp_offset);
        let mut found = Stack::default();
        Unwinder::default().walk_frame_pointers(&modules, &space, &regs, &memory, &mut found);
        let addresses: Vec<_> = found.frames.iter().map(|frame| frame.address - CODE).collect();
        assert_eq!((addresses, found.stop.name()), (vec![ip, 0x1210, 0x2004], "_start"));
        assert_eq!(found.frames[0].flags.leaf_skip_suspect, expected);
        assert!(found.frames.iter().all(|frame| frame.cfa == 0), "frame records do not show where frames end");
    }
}

/// Check that if a leaf's signed return address is in the link register, a frame-pointer walk of copied memory or of a
/// recorded chain includes its caller, and that a link register that points to no code changes nothing.
#[test]
fn callers_of_leaves_are_in_the_link_register() {
    let signature = 0x0055_0000_0000_0000;
    let words = bytes(&[STACK + 32, signature | (CODE + 0x1210), 0, 0, 0, CODE + 0x2004]);
    let memory = Chunk { start: STACK, bytes: &words, stack_end: Some(STACK + 48), holes: &[] };
    let space = Space::new(
        1,
        vec![Mapping { start: CODE, end: CODE + 0x1_0000, executable: true, module: Some(ModuleId(0)), bias: CODE }],
    );
    let modules = Table(vec![Ok(aarch64())]);
    let entry = |address, frame_address| ChainEntry { address, frame_address };
    let entries = [entry(CODE + 0x1008, 0), entry(CODE + 0x1210, STACK), entry(CODE + 0x2004, STACK + 32)];
    for (lr, expected, is_suspect) in [
        (signature | (CODE + 0x1110), vec![0x1008, 0x1110, 0x1210, 0x2004], false),
        (0x1234, vec![0x1008, 0x1210, 0x2004], true),
    ] {
        let mut regs = Regs::new(Arch::Aarch64);
        regs.set(32, CODE + 0x1008);
        regs.set(31, STACK);
        regs.set(30, lr);
        regs.set(29, STACK);
        let mut walked = Stack::default();
        Unwinder::default().walk_frame_pointers(&modules, &space, &regs, &memory, &mut walked);
        let chain =
            Chain { entries: &entries, end: ChainEnd::Zero, arch: Arch::Aarch64, regs: Some(&regs), stack_end: None };
        let mut judged = Stack::default();
        Unwinder::default().judge_chain(&modules, &space, &chain, &mut judged);
        for found in [walked, judged] {
            let addresses: Vec<_> = found.frames.iter().map(|frame| frame.address - CODE).collect();
            assert_eq!((&addresses, found.stop.name()), (&expected, "_start"));
            assert_eq!(found.frames[0].flags.leaf_skip_suspect, is_suspect);
            assert_eq!(found.frames[1].source == FrameSource::Cfi, !is_suspect);
        }
    }
}

/// Check that the mask in the options is applied, for kernels with more or fewer address bits than usual.
#[test]
fn signatures_begin_where_addresses_end() {
    let at = |code: u64, signature: u64, mask| {
        let space = Space::new(
            1,
            vec![Mapping {
                start: code,
                end: code + 0x1_0000,
                executable: true,
                module: Some(ModuleId(0)),
                bias: code,
            }],
        );
        let mut regs = Regs::new(Arch::Aarch64);
        regs.set(32, code + 0x1008);
        regs.set(31, STACK);
        regs.set(30, signature | (code + 0x2004));
        let memory = Chunk { start: STACK, bytes: &[], stack_end: None, holes: &[] };
        let options = Options { return_address_mask: mask, ..Options::default() };
        let mut stack = Stack::default();
        Unwinder::new(options).unwind(&Table(vec![Ok(aarch64())]), &space, &regs, &memory, &mut stack);
        stack.stop.name()
    };
    let bits = |bits: u32| Some((1 << bits) - 1);
    assert_eq!(at(0x7f_0000_0000, 0x0055_1100_0000_0000, bits(39)), "_start");
    assert_eq!(at(0x7f_0000_0000, 0x0055_1100_0000_0000, None), "ra_not_exec");
    assert_eq!(at(0x000f_aaaa_0000_0000, 0x0050_0000_0000_0000, bits(52)), "_start");
    assert_eq!(at(0x000f_aaaa_0000_0000, 0x0050_0000_0000_0000, None), "ra_not_exec");
}

/// Check that words of i386 have four bytes, and that addresses wrap at 32 bits.
#[test]
fn unwinds_i386() {
    const ESP: u8 = 4;
    const EBP: u8 = 5;
    const EIP: u8 = 8;
    const CODE: u64 = 0x0804_0000;
    const STACK: u64 = 0xfff0_0000;
    let mut cfi = Cfi::new(Kind::EhFrame).i386();
    cfi.cie_of("zR", -4, EIP, &[cfa::def_cfa(ESP, 4), vec![0x80 | EIP, 1]].concat());
    cfi.fde(0x1000, 0x20, &[cfa::def_cfa_offset(8)])
        .fde(0x1100, 0x20, &[cfa::def_cfa(EBP, 8), vec![0x80 | EBP, 2]])
        .fde(0x2000, 0x20, &[cfa::undefined(EIP)]);
    let module = Module::new(ModuleSections { arch: Arch::I386, ..cfi.sections() });
    let words: Vec<u8> =
        [0_u32, 0x0804_1110, 0, 0xfff0_0000, 0x0804_2004].iter().flat_map(|w| w.to_le_bytes()).collect();
    let memory = Chunk { start: STACK, bytes: &words, stack_end: Some(STACK + 20), holes: &[] };
    let mut regs = Regs::new(Arch::I386);
    regs.set(u16::from(EIP), CODE + 0x1008);
    regs.set(u16::from(ESP), STACK);
    regs.set(u16::from(EBP), STACK + 12);
    let found = unwind(module, CODE, &regs, &memory);
    let addresses: Vec<_> = found.frames.iter().map(|frame| frame.address - CODE).collect();
    assert_eq!((addresses, found.stop.name()), (vec![0x1008, 0x1110, 0x2004], "undefined_ra"));
    assert_eq!(found.frames[1].cfa, STACK + 20);
}
