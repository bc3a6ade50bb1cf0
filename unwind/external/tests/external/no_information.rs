//! Missing or bad rows, and rows that a library cannot find.

use crate::capture::Capture;
use crate::{addresses, unwind, unwinders};
use fpprof_external::{ModuleFile, ModuleRef, Request};
use fpprof_unwind::{BrokenReason, Chunk, FrameSource, Root, StopReason, TruncatedReason};

const COMPLETE: StopReason = StopReason::Complete(Root::UndefinedRa);
const NO_CFI: StopReason = StopReason::Truncated(TruncatedReason::NoCfi);

/// Check that no frame beyond a function without rows is reported as found by rows.
#[test]
fn a_guess_is_flagged() {
    for flags in ["-fno-omit-frame-pointer", "-fomit-frame-pointer"] {
        let capture = Capture::new(&[flags], "no_information", 0);
        let refs = capture.refs();
        for mut unwinder in unwinders() {
            let stack = unwind(&mut *unwinder, &capture.request(&refs, 1));
            let name = format!("{} {flags}: {stack:x?}", unwinder.name());
            assert_eq!(addresses(&stack)[..2], [capture.regs[16], capture.callers[0]], "{name}");
            assert_eq!(stack.frames[1].source, FrameSource::Cfi, "{name}");
            match stack.frames.get(2) {
                None => assert_eq!(stack.stop, NO_CFI, "{name}"),
                Some(guess) => {
                    assert_eq!(guess.source, FrameSource::FramePointer, "{name}");
                    assert!(guess.flags.fp_fallback, "{name}");
                }
            }
        }
    }
}

/// Check that following the frame pointer leads to the caller of the function that set it up, so that the test above
/// has a guess to flag.
#[test]
fn both_libraries_follow_the_frame_pointer() {
    let capture = Capture::new(&["-fno-omit-frame-pointer"], "no_information", 0);
    let refs = capture.refs();
    for mut unwinder in unwinders() {
        let stack = unwind(&mut *unwinder, &capture.request(&refs, 1));
        // callers: leaf's, into_nothing's (skipped: the frame pointer is its own), main's.
        assert_eq!(addresses(&stack).get(2), Some(&capture.callers[1]), "{} {stack:x?}", unwinder.name());
    }
}

/// Check that an endless expression ends the stack.
#[test]
fn an_endless_expression_is_left() {
    let capture = Capture::new(&[], "evil", 0);
    let refs = capture.refs();
    for mut unwinder in unwinders() {
        let stack = unwind(&mut *unwinder, &capture.request(&refs, 1));
        assert_eq!(addresses(&stack), [capture.regs[16], capture.callers[0]], "{}", unwinder.name());
        let expected = match unwinder.name() {
            "elfutils" => StopReason::Broken(BrokenReason::BadCfi),
            _ => StopReason::Truncated(TruncatedReason::Budget),
        };
        assert_eq!(stack.stop, expected, "{}", unwinder.name());
    }
}

/// Check that a return address of 0 is not a root: the row says that there is a caller.
#[test]
fn a_zero_return_address_is_broken() {
    let capture = Capture::new(&[], "recursion", 2);
    let refs = capture.refs();
    for mut unwinder in unwinders() {
        let request = capture.request(&refs, 1);
        let whole = unwind(&mut *unwinder, &request);
        let mut bytes = capture.stack.clone();
        let at = usize::try_from(whole.frames[1].cfa - 8 - request.stack.start).unwrap();
        bytes[at..at + 8].fill(0);
        let stack = Chunk { bytes: &bytes, ..request.stack };
        let found = unwind(&mut *unwinder, &Request { stack, ..request });
        assert_eq!(addresses(&found), addresses(&whole)[..2], "{}", unwinder.name());
        assert_eq!(found.stop, StopReason::Broken(BrokenReason::RaNotExec), "{}", unwinder.name());
    }
}

/// Check what each library does without the search table and with `.debug_frame` alone.
#[test]
fn libunwind_needs_a_search_table() {
    for flags in [&["-Wl,--no-eh-frame-hdr"][..], &["-g", "-fno-asynchronous-unwind-tables"]] {
        let capture = Capture::new(flags, "recursion", 2);
        let refs = capture.refs();
        for mut unwinder in unwinders() {
            let stack = unwind(&mut *unwinder, &capture.request(&refs, 1));
            let expected = if unwinder.name() == "elfutils" { COMPLETE } else { NO_CFI };
            assert_eq!(stack.stop, expected, "{} {flags:?} {stack:x?}", unwinder.name());
            let known = stack.frames.iter().skip(1).filter(|frame| frame.source == FrameSource::Cfi).count();
            assert!(expected == NO_CFI || known > capture.callers.len(), "{} {stack:x?}", unwinder.name());
        }
    }
}

/// Check that a stack that reaches a missing module ends there, with the reason why it is missing.
#[test]
fn a_missing_module_ends_the_stack() {
    let capture = Capture::new(&["-fomit-frame-pointer"], "recursion", 2);
    let is_libc = |module: &ModuleRef<'_>| matches!(module.file, ModuleFile::Path(path) if path.ends_with("libc.so.6"));
    for reason in [TruncatedReason::ModuleUnavailable, TruncatedReason::BuildIdMismatch, TruncatedReason::NoModule] {
        let mut refs = capture.refs();
        if reason == TruncatedReason::NoModule {
            refs.retain(|module| !is_libc(module));
        } else {
            let libc = refs.iter_mut().find(|module| is_libc(module)).unwrap();
            libc.file = ModuleFile::Missing(reason);
        }
        for mut unwinder in unwinders() {
            let stack = unwind(&mut *unwinder, &capture.request(&refs, 1));
            let is_guess = |source| matches!(source, FrameSource::FramePointer | FrameSource::Heuristic);
            let by_rows = stack.frames.iter().take_while(|frame| !is_guess(frame.source)).count();
            let known = capture.callers.len();
            assert_eq!(addresses(&stack)[1..=known], capture.callers, "{}", unwinder.name());
            assert_eq!(by_rows, known + 1, "{} {stack:x?}", unwinder.name());
            if by_rows == stack.frames.len() {
                assert_eq!(stack.stop, StopReason::Truncated(reason), "{} {stack:x?}", unwinder.name());
            }
        }
    }
}

/// Check that a sample outside all modules is a single frame.
#[test]
fn nowhere_is_one_frame() {
    let capture = Capture::new(&["-fomit-frame-pointer"], "recursion", 2);
    let mut regs = capture.regs;
    regs[16] = 0x1000;
    regs[6] = 0;
    for mut unwinder in unwinders() {
        let request = Request { regs: &regs, ..capture.request(&[], 1) };
        let stack = unwind(&mut *unwinder, &request);
        assert_eq!(addresses(&stack), [0x1000], "{}", unwinder.name());
        assert_eq!(stack.stop, StopReason::Truncated(TruncatedReason::NoModule), "{}", unwinder.name());
        assert!(stack.frames[0].flags.is_instruction);
    }
}
