//! How the outermost frame is recognised.

use fpprof_unwind::{
    Arch, Chunk, Mapping, Module, ModuleId, ModuleSections, Modules, Regs, Root, Space, Stack, StopReason,
    TruncatedReason, Unwinder,
};

use crate::build::{BIAS, Cfi, Process, RA, STACK, addresses, bytes, cfa, regs, whole};

fn process(entry: Option<u64>) -> Process {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[])
        .fde(0x2000, 0x26, &[cfa::undefined(RA)]) // _start
        .fde(0x2800, 0x10, &[]) // after the loader's entry code at 0x27c0
        .fde(0x3000, 0x16, &[cfa::undefined(RA)]); // clone3
    Process::new(Module::new(ModuleSections { entry, ..cfi.sections() }))
}

fn stop(entry: Option<u64>, caller: u64) -> (Vec<u64>, StopReason) {
    let found = process(entry).unwind(&regs(0x1004, STACK, 0), &whole(&bytes(&[BIAS + caller, 0])));
    (addresses(&found), found.stop)
}

/// Check that an undefined return address ends the walk, by the name of the entry point where that is it.
#[test]
fn undefined_return_addresses_are_roots() {
    let start = StopReason::Complete(Root::Start);
    let other = StopReason::Complete(Root::UndefinedRa);
    assert_eq!(stop(Some(0x2000), 0x2026), (vec![0x1004, 0x2026], start));
    assert_eq!(stop(Some(0x2000), 0x3008), (vec![0x1004, 0x3008], other));
    assert_eq!(stop(None, 0x2026), (vec![0x1004, 0x2026], other));
}

/// Check that the entry point's code is a root without information, but not code before it, nor far above, nor beyond
/// the next function.
#[test]
fn entry_code_needs_no_information() {
    let start = StopReason::Complete(Root::Start);
    assert_eq!(stop(Some(0x27c0), 0x27c8), (vec![0x1004, 0x27c8], start));
    assert_eq!(stop(Some(0x27c0), 0x2800), (vec![0x1004, 0x2800], start));
    for (caller, name) in [(0x27c0, "no_cfi"), (0x2801, "ra_not_exec"), (0x2811, "no_cfi")] {
        assert_eq!(stop(Some(0x27c0), caller).1.name(), name, "{caller:#x}");
    }
    assert_eq!(stop(Some(0x4000), 0x4080).1, start);
    assert_eq!(stop(Some(0x4000), 0x4081).1.name(), "no_cfi");
    assert_eq!(stop(None, 0x27c8).1.name(), "no_cfi");
}

/// Check that code without information behind an entry point that has some is not taken for it: gcc's
/// `deregister_tm_clones` lies there, and is called.
#[test]
fn code_behind_a_described_entry_is_no_root() {
    assert_eq!(stop(Some(0x2000), 0x2028).1.name(), "no_cfi");
}

/// Check that a root at the leaf is one: a sample in `_start` itself.
#[test]
fn a_leaf_can_be_the_root() {
    let found = process(Some(0x2000)).unwind(&regs(0x2000, STACK, 0), &whole(&bytes(&[1])));
    assert_eq!((addresses(&found), found.stop), (vec![0x2000], StopReason::Complete(Root::Start)));
    let found = process(Some(0x27c0)).unwind(&regs(0x27c0, STACK, 0), &whole(&bytes(&[1])));
    assert_eq!((addresses(&found), found.stop), (vec![0x27c0], StopReason::Complete(Root::Start)));
}

/// Check that a row is a root only where it says so: a function may begin with a caller and end without.
#[test]
fn a_root_can_begin_in_the_middle() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x20, &[cfa::advance(0x10), cfa::undefined(RA)]);
    let process = Process::new(cfi.module());
    let memory = bytes(&[BIAS + 0x1019, 0]);
    let found = process.unwind(&regs(0x1008, STACK, 0), &whole(&memory));
    assert_eq!((addresses(&found), found.stop.class()), (vec![0x1008, 0x1019], "complete"));
}

/// A module whose code can be read: the same bytes behind every return address, and the same before it.
struct WithCode {
    module: Module,
    before: &'static [u8],
    behind: &'static [u8],
}

impl Modules for WithCode {
    fn module(&self, _: ModuleId) -> Result<&Module, TruncatedReason> {
        Ok(&self.module)
    }

    fn code(&self, _: ModuleId, svma: u64, code: &mut [u8]) -> bool {
        code.fill(0x90);
        match svma % 0x1000 {
            8 => code.iter_mut().zip(self.behind).for_each(|(to, from)| *to = *from),
            0xff8 => code.iter_mut().rev().zip(self.before.iter().rev()).for_each(|(to, from)| *to = *from),
            _ => panic!("code is looked at where the return address points"),
        }
        true
    }
}

/// How a stack ends whose only return address is in a function of these rows, before this code.
fn stop_before(arch: Arch, rows: &[Vec<u8>], is_covered: bool, code: &'static [u8]) -> Vec<StopReason> {
    stop_between(arch, rows, is_covered, &[], code)
}

/// The same between these pieces of code.
fn stop_between(
    arch: Arch,
    rows: &[Vec<u8>],
    is_covered: bool,
    before: &'static [u8],
    behind: &'static [u8],
) -> Vec<StopReason> {
    let (ra, sp, ip): (u8, u8, u16) = match arch {
        Arch::X86_64 => (RA, 7, 16),
        Arch::Aarch64 => (30, 31, 32),
        Arch::I386 => (8, 4, 8),
    };
    let mut cfi = Cfi::new(crate::build::Kind::EhFrame);
    if arch == Arch::I386 {
        cfi = cfi.i386();
    }
    let word: u8 = if arch == Arch::I386 { 4 } else { 8 };
    cfi.cie_of("zR", -word.cast_signed(), ra, &[cfa::def_cfa(sp, word), vec![0x80 | ra, 1]].concat());
    cfi.fde(0x1000, 0x10, &[]);
    if is_covered {
        cfi.fde(0x3000, 0x16, rows);
    }
    let module = WithCode { module: Module::new(ModuleSections { arch, ..cfi.sections() }), before, behind };
    let space =
        Space::new(1, vec![Mapping { start: 0, end: 0x1_0000, executable: true, module: Some(ModuleId(0)), bias: 0 }]);
    let stack = 0x3008_u64.to_le_bytes();
    let memory = Chunk { start: 0x9000, bytes: &stack, stack_end: None, holes: &[] };
    let mut regs = Regs::new(arch);
    regs.set(ip, 0x1004);
    regs.set(u16::from(sp), 0x9000);
    let (mut unwinder, mut found) = (Unwinder::default(), Stack::default());
    // x86-64 is unwound by rules with the frame pointer and by rows without; each remembers.
    let mut stops = Vec::new();
    for fp in [None, None, Some(0), Some(0)] {
        if let Some(fp) = fp.filter(|_| arch == Arch::X86_64) {
            regs.set(6, fp);
        }
        unwinder.unwind(&module, &space, &regs, &memory, &mut found);
        assert_eq!(found.frames.len(), 2);
        stops.push(found.stop);
    }
    stops
}

/// Check that the code behind a return address without a caller tells a thread's start and a context's, on every
/// architecture and with or without rows there, and that other code changes nothing.
#[test]
fn code_names_the_root() {
    let threads: [(Arch, &[u8]); 5] = [
        (Arch::X86_64, &[0x48, 0x89, 0xc7, 0xb8, 0x3c, 0, 0, 0, 0x0f, 0x05]),
        (Arch::X86_64, &[0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05]),
        (Arch::Aarch64, &[0xa8, 0x0b, 0x80, 0xd2, 0x01, 0, 0, 0xd4]),
        (Arch::I386, &[0x89, 0xc3, 0xb8, 1, 0, 0, 0, 0x65, 0xff, 0x15, 0x10, 0, 0, 0]),
        (Arch::I386, &[0x89, 0xc3, 0xb8, 1, 0, 0, 0, 0xcd, 0x80]),
    ];
    let contexts: [(Arch, &[u8]); 3] = [
        (Arch::X86_64, &[0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff, 0x74, 8]),
        (
            Arch::Aarch64,
            &[0x1f, 0x20, 0x03, 0xd5, 0xe0, 0x03, 0x13, 0xaa, 0xc0, 0xf9, 0xff, 0xb5, 0x79, 0xf5, 0xff, 0x17],
        ),
        (Arch::I386, &[0x8d, 0x24, 0x9c, 0x83, 0x3c, 0x24, 0, 0x74, 7]),
    ];
    let all = threads.map(|root| (root, Root::ThreadStart)).into_iter();
    for ((arch, code), root) in all.chain(contexts.map(|root| (root, Root::StartContext))) {
        let undefined = [cfa::undefined(match arch {
            Arch::X86_64 => RA,
            Arch::Aarch64 => 30,
            Arch::I386 => 8,
        })];
        let expected = [StopReason::Complete(root); 4];
        assert_eq!(stop_before(arch, &undefined, true, code), expected, "{arch:?}");
        assert_eq!(stop_before(arch, &[], false, code), expected, "{arch:?} without rows");
        let other = &code[1..];
        assert_eq!(stop_before(arch, &undefined, true, other), [StopReason::Complete(Root::UndefinedRa); 4]);
        assert_eq!(stop_before(arch, &[], false, other)[3].name(), "no_cfi");
        assert_ne!(stop_before(arch, &[], true, code)[3].class(), "complete", "a row that goes on is followed");
    }
}

/// Check that start code without rows is known by its call of `main`, whichever registers it keeps the arguments in, and
/// that a call with other arguments, or whose result goes elsewhere, is none.
#[test]
fn the_call_of_main_names_the_root() {
    const EXIT: &[u8] = &[0x89, 0xc7, 0xe8, 1, 2, 3, 4];
    let stop = |before, behind| stop_between(Arch::X86_64, &[], false, before, behind);
    // mov %ebp,%edi; mov %r13,%rdx; mov %r12,%rsi; call *%rbx, and with other registers in another order.
    let calls: [&[u8]; 2] = [
        &[0x89, 0xef, 0x4c, 0x89, 0xea, 0x4c, 0x89, 0xe6, 0xff, 0xd3],
        &[0x48, 0x89, 0xda, 0x44, 0x89, 0xe7, 0x48, 0x89, 0xee, 0x41, 0xff, 0xd5],
    ];
    for before in calls {
        assert_eq!(stop(before, EXIT), [StopReason::Complete(Root::Start); 4]);
        assert_eq!(stop(before, &[0x89, 0xc3, 0xe8])[0].name(), "no_cfi", "the result goes elsewhere");
        assert_eq!(stop(&before[3..], EXIT)[0].name(), "no_cfi", "two arguments");
    }
    // mov %r12,%rsi twice, mov to %rdi of all 64 bits, a call of a name.
    let others: [&[u8]; 3] = [
        &[0x89, 0xef, 0x4c, 0x89, 0xe6, 0x4c, 0x89, 0xe6, 0xff, 0xd3],
        &[0x48, 0x89, 0xef, 0x4c, 0x89, 0xea, 0x4c, 0x89, 0xe6, 0xff, 0xd3],
        &[0x89, 0xef, 0x4c, 0x89, 0xea, 0x4c, 0x89, 0xe6, 0xe8, 1, 2, 3, 4],
    ];
    for before in others {
        assert_eq!(stop(before, EXIT)[0].name(), "no_cfi", "{before:x?}");
    }
}

/// Check that a walk ends where the module says so, though the rows there know a caller.
#[test]
fn modules_may_name_roots() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[]).fde(0x2000, 0x20, &[]).fde(0x3000, 0x10, &[]);
    let roots = vec![(0x2004..0x2010, Root::Goexit)];
    let process = Process::new(Module::new(ModuleSections { roots, ..cfi.sections() }));
    let memory = bytes(&[BIAS + 0x3004, BIAS + 0x2008, BIAS + 0x3004, 0x4141]);
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&memory));
    assert_eq!((addresses(&found), found.stop), (vec![0x1004, 0x3004, 0x2008], StopReason::Complete(Root::Goexit)));
    let memory = bytes(&[BIAS + 0x2011, BIAS + 0x3004, 0x4141]);
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&memory));
    assert_eq!((addresses(&found), found.stop.class()), (vec![0x1004, 0x2011, 0x3004], "broken"));
}
