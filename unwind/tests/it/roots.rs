//! How the outermost frame is recognised.

use fpprof_unwind::{Module, ModuleSections, Root, StopReason};

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
