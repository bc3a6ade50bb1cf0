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

/// Check that an undefined return address ends the walk, with the name of the entry point if it is that.
#[test]
fn undefined_return_addresses_are_roots() {
    let start = StopReason::Complete(Root::Start);
    let other = StopReason::Complete(Root::UndefinedRa);
    assert_eq!(stop(Some(0x2000), 0x2026), (vec![0x1004, 0x2026], start));
    assert_eq!(stop(Some(0x2000), 0x3008), (vec![0x1004, 0x3008], other));
    assert_eq!(stop(None, 0x2026), (vec![0x1004, 0x2026], other));
}

/// Check that code without information is not a root merely because it is near the entry point, with or without rows of
/// the latter: a return address is above.
#[test]
fn code_near_the_entry_is_no_root() {
    let stop = |entry, caller| {
        let stack = bytes(&[BIAS + caller, 0, BIAS + 0x3001, 0]);
        process(Some(entry)).unwind(&regs(0x1004, STACK, 0), &whole(&stack)).stop.name()
    };
    for (entry, caller) in [(0x27c0, 0x27c8), (0x27c0, 0x2800), (0x4000, 0x4080), (0x2000, 0x2028)] {
        assert_eq!(stop(entry, caller), "no_cfi", "{caller:#x}");
    }
    assert_eq!(stop(0x27c0, 0x2801), "ra_not_exec", "a row is followed");
}

/// Check that the leaf can be the root: a sample in `_start` itself.
#[test]
fn a_leaf_can_be_the_root() {
    let found = process(Some(0x2000)).unwind(&regs(0x2000, STACK, 0), &whole(&bytes(&[1])));
    assert_eq!((addresses(&found), found.stop), (vec![0x2000], StopReason::Complete(Root::Start)));
    let found = process(Some(0x27c0)).unwind(&regs(0x27c0, STACK, 0), &whole(&bytes(&[1])));
    assert_eq!((addresses(&found), found.stop), (vec![0x27c0], StopReason::Complete(Root::Start)));
}

/// Check that only a row with an undefined return address is a root: a function may have a caller at first and none
/// later.
#[test]
fn a_root_can_begin_in_the_middle() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x20, &[cfa::advance(0x10), cfa::undefined(RA)]);
    let process = Process::new(cfi.module());
    let memory = bytes(&[BIAS + 0x1019, 0]);
    let found = process.unwind(&regs(0x1008, STACK, 0), &whole(&memory));
    assert_eq!((addresses(&found), found.stop.class()), (vec![0x1008, 0x1019], "complete"));
}

/// A module whose code can be read: the same bytes after every return address, and the same before it.
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
            0xfc8 => code.iter_mut().rev().zip(self.before.iter().rev()).for_each(|(to, from)| *to = *from),
            // The code around the looked-up address, in case that is a sampled instruction, or in a stub.
            0xff7 | 0xff8 | 0 => {}
            _ => panic!("code is looked at where the return address points"),
        }
        true
    }
}

/// The stop reason of a stack whose only return address is in a function with these rows, between these pieces of code.
/// Another return address is above it.
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
    // With the frame pointer, x86-64 is unwound by rules; without, by rows. Both cache.
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

/// Where `clone` and `clone3` of glibc and `clone` of musl start a thread: the code from the system call number up to
/// the return address, the code after it, and the length of the call in bytes.
const THREADS: [(Arch, &[u8], &[u8], usize); 6] = [
    (
        Arch::X86_64,
        &[
            0xb8, 56, 0, 0, 0, 0x0f, 0x05, 0x48, 0x85, 0xc0, 0x7c, 0x13, 0x74, 0x01, 0xc3, 0x31, 0xed, 0x58, 0x5f,
            0xff, 0xd0,
        ],
        &[0x48, 0x89, 0xc7, 0xb8, 0x3c, 0, 0, 0, 0x0f, 0x05],
        4,
    ),
    (
        Arch::X86_64,
        &[
            0xb8, 0xb3, 1, 0, 0, 0x0f, 0x05, 0x48, 0x85, 0xc0, 0x7c, 0x18, 0x74, 0x01, 0xc3, 0x31, 0xed, 0x48, 0x83,
            0xe4, 0xf0, 0x4c, 0x89, 0xc7, 0xff, 0xd2,
        ],
        &[0x48, 0x89, 0xc7, 0xb8, 0x3c, 0, 0, 0, 0x0f, 0x05],
        5,
    ),
    (
        Arch::X86_64,
        &[
            0xb0, 0x38, 0x49, 0x89, 0xfb, 0x48, 0x89, 0xd7, 0x4c, 0x89, 0xc2, 0x4d, 0x89, 0xc8, 0x4c, 0x8b, 0x54, 0x24,
            0x08, 0x4d, 0x89, 0xd9, 0x48, 0x83, 0xe6, 0xf0, 0x48, 0x83, 0xee, 0x08, 0x48, 0x89, 0x0e, 0x0f, 0x05, 0x85,
            0xc0, 0x75, 0x0f, 0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1,
        ],
        &[0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05],
        4,
    ),
    (
        Arch::Aarch64,
        &[
            0x88, 0x1b, 0x80, 0xd2, 0x01, 0, 0, 0xd4, 0x1f, 0, 0, 0xf1, 0xa0, 0, 0, 0x54, 0x4b, 0, 0, 0x54, 0xc0, 0x03,
            0x5f, 0xd6, 0x40, 0x01, 0x3f, 0xd6,
        ],
        &[0xa8, 0x0b, 0x80, 0xd2, 0x01, 0, 0, 0xd4],
        4,
    ),
    (
        Arch::I386,
        &[
            0xb8, 0x78, 0, 0, 0, 0x89, 0x19, 0xcd, 0x80, 0x5f, 0x5e, 0x5b, 0x85, 0xc0, 0x0f, 0x8c, 0xfc, 0xff, 0xff,
            0xff, 0x74, 0x01, 0xc3, 0x89, 0xf5, 0xff, 0xd3,
        ],
        &[0x89, 0xc3, 0xb8, 1, 0, 0, 0, 0x65, 0xff, 0x15, 0x10, 0, 0, 0],
        2,
    ),
    (
        Arch::I386,
        &[
            0xb8, 0xb3, 1, 0, 0, 0xcd, 0x80, 0x85, 0xc0, 0x74, 0x09, 0x5e, 0x5b, 0x0f, 0x8c, 0xfc, 0xff, 0xff, 0xff,
            0xc3, 0x31, 0xed, 0x83, 0xe4, 0xf0, 0x83, 0xec, 0x0c, 0x56, 0xff, 0xd2,
        ],
        &[0x89, 0xc3, 0xb8, 1, 0, 0, 0, 0xcd, 0x80],
        2,
    ),
];

/// Check that the code at a return address without a caller identifies the start of a thread or context, on every
/// architecture and with or without rows there, and that other code changes nothing.
#[test]
fn code_names_the_root() {
    for (arch, before, behind, call_bytes) in THREADS {
        let alone = stop_between(arch, &[], false, &before[before.len() - call_bytes..], behind);
        assert_eq!(alone[3].name(), "no_cfi", "{arch:?}: any program may call like that");
    }
    let contexts: [(Arch, &[u8]); 3] = [
        (Arch::X86_64, &[0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff, 0x74, 8]),
        (
            Arch::Aarch64,
            &[0x1f, 0x20, 0x03, 0xd5, 0xe0, 0x03, 0x13, 0xaa, 0xc0, 0xf9, 0xff, 0xb5, 0x79, 0xf5, 0xff, 0x17],
        ),
        (Arch::I386, &[0x8d, 0x24, 0x9c, 0x83, 0x3c, 0x24, 0, 0x74, 7]),
    ];
    let threads = THREADS.map(|(arch, before, code, _)| (arch, before, code, Root::ThreadStart));
    let contexts = contexts.map(|(arch, code)| (arch, &[][..], code, Root::StartContext));
    for (arch, before, code, root) in threads.into_iter().chain(contexts) {
        let stop = |rows: &[_], is_covered, code| stop_between(arch, rows, is_covered, before, code);
        let undefined = [cfa::undefined(match arch {
            Arch::X86_64 => RA,
            Arch::Aarch64 => 30,
            Arch::I386 => 8,
        })];
        let expected = [StopReason::Complete(root); 4];
        assert_eq!(stop(&undefined, true, code), expected, "{arch:?}");
        assert_eq!(stop(&[], false, code), expected, "{arch:?} without rows");
        let other = &code[1..];
        assert_eq!(stop(&undefined, true, other), [StopReason::Complete(Root::UndefinedRa); 4]);
        assert_eq!(stop(&[], false, other)[3].name(), "no_cfi");
        assert_ne!(stop(&[], true, code)[3].class(), "complete", "a row that goes on is followed");
        let called = stop_between(arch, &[], false, &[0xe8, 1, 2, 3, 4], code);
        let is_context = root == Root::StartContext;
        assert_eq!(called[3].class() == "complete", is_context, "{arch:?}: any program may exit like that");
    }
}

/// Check that a walk ends at a root declared by the module, although the rows there have a caller.
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

/// A module with these bytes of code at 0x3000 and nothing else.
struct CodeAt3000 {
    module: Module,
    bytes: Vec<u8>,
}

impl Modules for CodeAt3000 {
    fn module(&self, _: ModuleId) -> Result<&Module, TruncatedReason> {
        Ok(&self.module)
    }

    fn code(&self, _: ModuleId, svma: u64, code: &mut [u8]) -> bool {
        for (to, at) in code.iter_mut().zip(svma..) {
            let own = at.checked_sub(0x3000).and_then(|at| self.bytes.get(usize::try_from(at).unwrap()));
            *to = own.copied().unwrap_or(0x90);
        }
        true
    }
}

/// Check that a new thread, without rows right after the system call of `clone`, is at its root, recognised by the
/// result of the call; but neither its creator, nor code that does not go on to start a thread.
#[test]
fn new_threads_are_at_their_root() {
    for (arch, before, behind, _) in THREADS {
        let call: &[u8] = match arch {
            Arch::X86_64 => &[0x0f, 0x05],
            Arch::Aarch64 => &[0x01, 0, 0, 0xd4],
            Arch::I386 => &[0xcd, 0x80],
        };
        let at = 0x3000 + before.windows(call.len()).position(|bytes| bytes == call).unwrap() + call.len();
        let mut cfi = Cfi::new(crate::build::Kind::EhFrame);
        if arch == Arch::I386 {
            cfi = cfi.i386();
        }
        if arch == Arch::Aarch64 {
            // glibc's rows there say that the caller is in the link register.
            cfi.cie_of("zR", -8, 30, &cfa::def_cfa(31, 0));
            cfi.fde(0x3000, 0x40, &[]);
        }
        let stop = |result: u64, behind: &[u8]| {
            let module = Module::new(ModuleSections { arch, ..cfi.sections() });
            let program = CodeAt3000 { module, bytes: [before, behind].concat() };
            let mapping = Mapping { start: 0, end: 0x1_0000, executable: true, module: Some(ModuleId(0)), bias: 0 };
            let memory = Chunk { start: 0x9000, bytes: &[0; 64], stack_end: None, holes: &[] };
            let mut regs = Regs::new(arch).with_ip(at as u64).with_sp(0x9000).with_fp(0);
            regs.set(0, result);
            if arch == Arch::Aarch64 {
                regs.set(30, 0x3004);
            }
            let mut found = Stack::default();
            Unwinder::default().unwind(&program, &Space::new(1, vec![mapping]), &regs, &memory, &mut found);
            (found.frames.len(), found.stop)
        };
        let root = (1, StopReason::Complete(Root::ThreadStart));
        assert_eq!(stop(0, behind), root, "{arch:?}");
        assert_ne!(stop(4711, behind), root, "{arch:?}");
        assert_ne!(stop(0, &behind[1..]), root, "{arch:?}");
    }
}
