//! Programs with complete unwind information.

use crate::capture::Capture;
use crate::{addresses, unwind, unwinders};
use fpprof_external::{ModuleFile, ModuleRef, Request};
use fpprof_unwind::{Chunk, FrameSource, Root, Stack, StopReason, TruncatedReason};
use object::{Object as _, ObjectSymbol as _};

const COMPLETE: StopReason = StopReason::Complete(Root::UndefinedRa);

/// Checks that the leaf and every caller up to `main`'s are as the program reported, followed by libc's start code and
/// `_start`.
fn assert_known_chain(name: &str, stack: &Stack, capture: &Capture) {
    let found = addresses(stack);
    assert_eq!(stack.stop, COMPLETE, "{name} after {found:x?}");
    assert_eq!(found[0], capture.regs[16], "{name}");
    let known = capture.callers.len();
    assert_eq!(found[1..=known], capture.callers, "{name}");
    assert!((1..=4).contains(&(found.len() - 1 - known)), "{name}: {found:x?}");
    assert!(capture.program().contains(*found.last().unwrap()), "{name}: _start is the program's");
    assert_eq!(stack.frames[0].source, FrameSource::Registers, "{name}");
    assert!(stack.frames[1..].iter().all(|frame| frame.source == FrameSource::Cfi), "{name}");
    let (last, inner) = stack.frames.split_last().unwrap();
    assert!(inner.is_sorted_by(|below, above| below.cfa < above.cfa), "{name}");
    assert!(inner[0].cfa > capture.regs[7] && last.cfa == 0, "{name}");
}

/// Check that a recursion of known depth is found frame by frame, repeatedly, and for depths down to zero.
#[test]
fn finds_every_frame_of_a_recursion() {
    for (flags, depth) in [(&["-fomit-frame-pointer"][..], 300), (&["-fno-omit-frame-pointer", "-O0"], 7), (&[], 0)] {
        let capture = Capture::new(flags, "recursion", depth);
        assert_eq!(capture.callers.len(), depth as usize + 3);
        let refs = capture.refs();
        for mut unwinder in unwinders() {
            let first = unwind(&mut *unwinder, &capture.request(&refs, 1));
            assert_known_chain(unwinder.name(), &first, &capture);
            assert!(first.frames[1..].iter().all(|frame| !frame.flags.is_instruction));
            assert_eq!(unwind(&mut *unwinder, &capture.request(&refs, 1)), first, "{}", unwinder.name());
            assert_eq!(unwind(&mut *unwinder, &capture.request(&refs, 2)), first, "{}", unwinder.name());
        }
    }
}

/// Check that position-dependent programs, lld's layout and static programs are unwound.
#[test]
fn finds_programs_however_they_are_linked() {
    for flags in [&["-no-pie"][..], &["-fuse-ld=lld"], &["-static-pie"], &["-fuse-ld=lld", "-no-pie"]] {
        let capture = Capture::new(flags, "recursion", 3);
        let refs = capture.refs();
        for mut unwinder in unwinders() {
            let stack = unwind(&mut *unwinder, &capture.request(&refs, 1));
            assert_known_chain(&format!("{} {flags:?}", unwinder.name()), &stack, &capture);
        }
    }
}

/// Check that a signal frame is unwound, and that only the interrupted instruction above it counts as an instruction.
#[test]
fn passes_a_signal_frame() {
    let capture = Capture::new(&[], "signal", 0);
    // leaf, on_illegal (returns to the trampoline), then what was interrupted: `interrupted`, main.
    let [in_handler, trampoline, ref outer @ ..] = capture.callers[..] else { panic!("{:x?}", capture.callers) };
    let refs = capture.refs();
    for mut unwinder in unwinders() {
        let stack = unwind(&mut *unwinder, &capture.request(&refs, 1));
        let found = addresses(&stack);
        assert_eq!(found[..3], [capture.regs[16], in_handler, trampoline], "{}", unwinder.name());
        assert_eq!(found[4..4 + outer.len()], *outer, "{}", unwinder.name());
        assert_eq!(stack.stop, COMPLETE, "{}", unwinder.name());
        let instructions: Vec<bool> = stack.frames.iter().map(|frame| frame.flags.is_instruction).collect();
        assert_eq!(instructions[..5], [true, false, false, true, false], "{}", unwinder.name());
        // `ud2` is 0f 0b (Intel SDM vol. 2).
        let at = found[3] - capture.program().bias;
        assert_eq!(code_at(capture.program().bytes.as_slice(), at), [0x0f, 0x0b], "{}", unwinder.name());
    }
}

fn code_at(elf: &[u8], svma: u64) -> [u8; 2] {
    use object::ObjectSegment as _;
    let file = object::File::parse(elf).unwrap();
    let data = file.segments().find_map(|segment| segment.data_range(svma, 2).ok().flatten()).unwrap();
    data.try_into().unwrap()
}

/// Check that a chunk cut anywhere gives the same frames as far as it reaches, and reports that it was cut.
#[test]
fn a_cut_chunk_gives_the_lower_frames() {
    let capture = Capture::new(&[], "recursion", 5);
    let refs = capture.refs();
    for mut unwinder in unwinders() {
        let whole_request = capture.request(&refs, 1);
        let whole = unwind(&mut *unwinder, &whole_request);
        let mut deepest = 0;
        for cut in (0..=capture.stack.len()).step_by(8) {
            let stack = Chunk { bytes: &capture.stack[..cut], ..whole_request.stack };
            let found = unwind(&mut *unwinder, &Request { stack, ..whole_request });
            let lower = &whole.frames[..found.frames.len()];
            assert_eq!(addresses(&found), lower.iter().map(|frame| frame.address).collect::<Vec<_>>());
            assert!(found.frames.len() >= deepest, "more bytes, more frames");
            deepest = found.frames.len();
            let expected = match (cut, found.frames.len() == whole.frames.len()) {
                (_, true) => COMPLETE,
                (0, _) => StopReason::Truncated(TruncatedReason::ChunkEmpty),
                _ => StopReason::Truncated(TruncatedReason::ChunkEnd),
            };
            assert_eq!(found.stop, expected, "{} at {cut}", unwinder.name());
        }
        assert_eq!(deepest, whole.frames.len());
    }
}

/// Check that a walk beyond the end of the stack is reported as a stack switch.
#[test]
fn a_walk_beyond_the_end_of_the_stack_is_a_switch() {
    let capture = Capture::new(&[], "recursion", 5);
    let refs = capture.refs();
    for mut unwinder in unwinders() {
        let request = capture.request(&refs, 1);
        let stack = Chunk { bytes: &capture.stack[..64], stack_end: Some(request.stack.start + 64), ..request.stack };
        let found = unwind(&mut *unwinder, &Request { stack, ..request });
        assert_eq!(found.stop, StopReason::Truncated(TruncatedReason::StackSwitch), "{}", unwinder.name());
    }
}

/// Check that the depth limit is only reported if there are more frames.
#[test]
fn depth_is_limited_exactly() {
    let capture = Capture::new(&[], "recursion", 5);
    let refs = capture.refs();
    for mut unwinder in unwinders() {
        let request = capture.request(&refs, 1);
        let whole = unwind(&mut *unwinder, &request);
        for max_depth in 0..=u32::try_from(whole.frames.len()).unwrap() + 1 {
            let found = unwind(&mut *unwinder, &Request { max_depth, ..request });
            let kept = whole.frames.len().min(max_depth as usize);
            assert_eq!(addresses(&found), addresses(&whole)[..kept], "{}", unwinder.name());
            let is_whole = kept == whole.frames.len();
            let expected = if is_whole { COMPLETE } else { StopReason::Truncated(TruncatedReason::MaxDepth) };
            assert_eq!(found.stop, expected, "{} at {max_depth}", unwinder.name());
        }
    }
}

/// Check that the vDSO is unwound from its bytes, as if `leaf` had just called into it.
#[test]
fn unwinds_through_the_vdso() {
    let capture = Capture::new(&[], "recursion", 2);
    let vdso = capture.modules.iter().find(|module| module.path.is_none()).unwrap();
    let symbols = object::File::parse(&*vdso.bytes).unwrap();
    let is_entry = |symbol: &object::Symbol<'_, '_>| symbol.name() == Ok("__vdso_clock_gettime");
    let entry = symbols.dynamic_symbols().find(is_entry).unwrap().address() + vdso.bias;
    let mut regs = capture.regs;
    regs[7] -= 8;
    regs[16] = entry;
    let bytes = [&capture.regs[16].to_le_bytes(), &*capture.stack].concat();
    let refs = capture.refs();
    for mut unwinder in unwinders() {
        let request = capture.request(&refs, 1);
        let stack = Chunk { start: regs[7], bytes: &bytes, ..request.stack };
        let found = unwind(&mut *unwinder, &Request { regs: &regs, stack, ..request });
        assert_eq!(addresses(&found)[..2], [entry, capture.regs[16]], "{}", unwinder.name());
        assert_eq!(addresses(&found)[2..5], capture.callers[..3], "{}", unwinder.name());
        assert_eq!(found.stop, COMPLETE, "{}", unwinder.name());
    }
}

/// Check that a module given as bytes gives the same stack as one given as a path.
#[test]
fn takes_modules_as_bytes() {
    let capture = Capture::new(&[], "recursion", 2);
    let refs = capture.refs();
    let in_memory: Vec<ModuleRef<'_>> = capture
        .modules
        .iter()
        .map(|module| ModuleRef { file: ModuleFile::Bytes(&module.bytes), ..module.as_ref() })
        .collect();
    for mut unwinder in unwinders() {
        let from_files = unwind(&mut *unwinder, &capture.request(&refs, 1));
        assert_eq!(unwind(&mut *unwinder, &capture.request(&in_memory, 2)), from_files, "{}", unwinder.name());
    }
}
