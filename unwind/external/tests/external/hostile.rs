//! Invalid module lists and files.

use crate::capture::Capture;
use crate::{addresses, unwind, unwinders};
use fpprof_external::{ModuleFile, ModuleRef, Request};
use fpprof_unwind::{Chunk, FrameSource, StopReason, TruncatedReason};
use object::{Object as _, ObjectSection as _};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Number of frames found with rows, including the leaf.
fn frames_by_rows(stack: &fpprof_unwind::Stack) -> usize {
    stack.frames.iter().take_while(|frame| matches!(frame.source, FrameSource::Registers | FrameSource::Cfi)).count()
}

/// Check that if the module's file is not a program, the stack ends at the leaf: the file is not waited for,
/// decompressed or used.
#[test]
fn refuses_files_that_are_no_program() {
    let capture = Capture::new(&["-fomit-frame-pointer"], "recursion", 2);
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let program = fs::read(capture.program().path.as_ref().unwrap()).unwrap();
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let to_compress = file("compressed", &program);
    assert!(Command::new("gzip").arg(&to_compress).status().unwrap().success());
    let relocatable = { [&program[..16], &1_u16.to_le_bytes(), &program[18..]].concat() };
    let files = [
        fifo,
        directory.path().join("compressed.gz"),
        directory.path().to_owned(),
        directory.path().join("does not exist"),
        Path::new("/dev/zero").to_owned(),
        file("empty", b""),
        file("text", b"no program at all"),
        file("header", &program[..64]),
        file("relocatable", &relocatable),
    ];
    for path in &files {
        let refs = replace_program(&capture, |module| ModuleRef { file: ModuleFile::Path(path), ..module });
        for mut unwinder in unwinders() {
            let stack = unwind(&mut *unwinder, &capture.request(&refs, 1));
            assert_eq!(frames_by_rows(&stack), 1, "{} {path:?} {stack:x?}", unwinder.name());
            if stack.frames.len() == 1 {
                assert_eq!(stack.stop, StopReason::Truncated(TruncatedReason::ModuleUnavailable), "{path:?}");
            }
        }
    }
}

/// Check that a 32-bit file is reported as one.
#[test]
fn names_32_bit_files() {
    let capture = Capture::new(&["-fomit-frame-pointer"], "recursion", 2);
    // ELFCLASS32, EM_386 in a header of 52 bytes (gABI, ELF header).
    let mut elf = vec![0x7f, b'E', b'L', b'F', 1, 1, 1];
    elf.resize(16, 0);
    elf.extend([2, 0, 3, 0, 1]);
    elf.resize(52, 0);
    let refs = replace_program(&capture, |module| ModuleRef { file: ModuleFile::Bytes(&elf), ..module });
    for mut unwinder in unwinders() {
        let stack = unwind(&mut *unwinder, &capture.request(&refs, 1));
        assert_eq!(frames_by_rows(&stack), 1, "{}", unwinder.name());
        if stack.frames.len() == 1 {
            assert_eq!(stack.stop, StopReason::Truncated(TruncatedReason::Abi32), "{}", unwinder.name());
        }
    }
}

fn replace_program<'a>(capture: &'a Capture, by: impl Fn(ModuleRef<'a>) -> ModuleRef<'a>) -> Vec<ModuleRef<'a>> {
    let program = capture.program().start;
    capture.refs().into_iter().map(|module| if module.start == program { by(module) } else { module }).collect()
}

/// Check that duplicate, overlapping, inverted or unbounded modules do not harm those listed first.
#[test]
fn keeps_the_first_of_overlapping_modules() {
    let capture = Capture::new(&[], "recursion", 5);
    let good = capture.refs();
    let mut refs = good.clone();
    for module in &good {
        refs.push(*module);
        refs.push(ModuleRef { bias: module.bias ^ 0x1000, ..*module });
        refs.push(ModuleRef { start: module.end, end: module.start, ..*module });
        refs.push(ModuleRef { start: 0, end: u64::MAX, bias: 0, ..*module });
        refs.push(ModuleRef { start: module.start + 8, end: module.start + 16, ..*module });
    }
    for mut unwinder in unwinders() {
        let expected = unwind(&mut *unwinder, &capture.request(&good, 1));
        assert_eq!(unwind(&mut *unwinder, &capture.request(&refs, 2)), expected, "{}", unwinder.name());
    }
}

/// Check that a file mapped with a wrong bias, or at an address without a segment, is refused or has no rows, and that
/// the other modules are unaffected.
#[test]
fn survives_any_bias() {
    let capture = Capture::new(&["-fomit-frame-pointer"], "recursion", 5);
    for bias in [0, 1, 0x1000, 1 << 47, 1 << 63, u64::MAX, capture.program().bias ^ (1 << 30)] {
        let refs = replace_program(&capture, |module| ModuleRef { bias, ..module });
        for mut unwinder in unwinders() {
            let stack = unwind(&mut *unwinder, &capture.request(&refs, 1));
            assert_eq!(addresses(&stack)[0], capture.regs[16]);
            assert_eq!(frames_by_rows(&stack), 1, "{} {bias:x} {stack:x?}", unwinder.name());
        }
    }
}

/// Check that any changed byte of the headers gives a stack that includes the leaf, and no crash.
#[test]
fn survives_changed_headers() {
    let capture = Capture::new(&[], "recursion", 2);
    let program = &capture.program().bytes;
    let mut unwinders = unwinders();
    // The ELF header and fourteen program headers.
    for (id, at) in (0..64 + 14 * 56).enumerate() {
        for (variant, flip) in [0xff, 0x80, 1].into_iter().enumerate() {
            let mut bytes = program.clone();
            bytes[at] ^= flip;
            let refs = replace_program(&capture, |module| ModuleRef { file: ModuleFile::Bytes(&bytes), ..module });
            for unwinder in &mut unwinders {
                let stack = unwind(&mut **unwinder, &capture.request(&refs, (id * 3 + variant) as u64));
                assert_eq!(stack.frames[0].address, capture.regs[16], "{} {at} {flip}", unwinder.name());
                assert!(stack.frames.len() <= 1024);
            }
        }
    }
}

/// Check that a thousand damaged unwind tables give a stack that includes the leaf: no crash, no endless walk.
#[test]
fn survives_changed_rows() {
    let capture = Capture::new(&[], "recursion", 2);
    let program = &capture.program().bytes;
    let file = object::File::parse(&**program).unwrap();
    let ranges = [".eh_frame", ".eh_frame_hdr"].map(|name| {
        let (start, len) = file.section_by_name(name).unwrap().file_range().unwrap();
        usize::try_from(start).unwrap()..usize::try_from(start + len).unwrap()
    });
    let mut unwinders = unwinders();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for id in 0..1000 {
        let mut bytes = program.clone();
        for range in &ranges {
            // xorshift64 (Marsaglia 2003).
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let [value, _, at @ ..] = random.to_le_bytes();
            let at = at.iter().fold(0, |at, byte| at << 8 | usize::from(*byte));
            bytes[range.start + at % range.len()] = value;
        }
        let refs = replace_program(&capture, |module| ModuleRef { file: ModuleFile::Bytes(&bytes), ..module });
        for unwinder in &mut unwinders {
            let stack = unwind(&mut **unwinder, &capture.request(&refs, id));
            assert_eq!(stack.frames[0].address, capture.regs[16], "{} {id}", unwinder.name());
            assert!(stack.frames.len() <= 1024);
        }
    }
}

/// Check that registers and stacks at the edges of the address space cause no overflow.
#[test]
fn survives_extreme_registers() {
    let capture = Capture::new(&[], "recursion", 2);
    let refs = capture.refs();
    for mut unwinder in unwinders() {
        for value in [0, 1, 7, u64::MAX, u64::MAX - 7, 1 << 63, capture.regs[7] - 1] {
            for start in [value, capture.regs[7]] {
                let mut regs = [value; 17];
                let request = capture.request(&refs, 1);
                let stack = Chunk { start, ..request.stack };
                let found = unwind(&mut *unwinder, &Request { regs: &regs, stack, ..request });
                assert_eq!(found.frames[0].address, value, "{}", unwinder.name());
                regs[16] = capture.regs[16];
                let found = unwind(&mut *unwinder, &Request { regs: &regs, stack, ..request });
                assert!(found.frames.len() <= 1024, "{}", unwinder.name());
            }
        }
    }
}
