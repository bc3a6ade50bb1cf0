//! Check that dropped address spaces release their resources. A program of its own, since it counts the process's open
//! files and mappings.
#![cfg(any(feature = "libdw", feature = "libunwind"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use fpprof_external::{ExternalUnwinder, ModuleFile, ModuleRef, Request};
use fpprof_unwind::{Chunk, Stack, StopReason, TruncatedReason};
use object::Object as _;
use std::fs;

fn open_descriptors_and_mappings() -> (usize, usize) {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    (descriptors, fs::read_to_string("/proc/self/maps").unwrap().lines().count())
}

/// Check that hundreds of address spaces, one after the other, leak neither files nor mappings.
#[test]
fn address_spaces_are_given_back() {
    let program = std::env::current_exe().unwrap();
    let entry = object::File::parse(&*fs::read(&program).unwrap()).unwrap().entry();
    let bias = 0x5555_0000_0000;
    let file = ModuleFile::Path(&program);
    let modules = [ModuleRef { file, start: bias, end: bias + (1 << 32), bias }];
    let mut regs = [0; 17];
    regs[7] = 0x7fff_0000_0000;
    regs[16] = bias + entry;
    let mut unwinders: Vec<Box<dyn ExternalUnwinder>> = vec![
        #[cfg(feature = "libdw")]
        Box::new(fpprof_external::Libdw::new()),
        #[cfg(feature = "libunwind")]
        Box::new(fpprof_external::Libunwind::new()),
    ];
    let mut stack = Stack { frames: Vec::new(), stop: StopReason::Truncated(TruncatedReason::Budget) };
    let mut before = (0, 0);
    for modules_id in 0..400 {
        if modules_id == 100 {
            before = open_descriptors_and_mappings();
        }
        let bytes = Chunk { start: regs[7], bytes: &[0; 64], stack_end: None, holes: &[] };
        let request =
            Request { modules: &modules, modules_id, regs: &regs, stack: bytes, interrupted: None, max_depth: 10 };
        for unwinder in &mut unwinders {
            unwinder.unwind(&request, &mut stack).unwrap();
            assert_eq!(stack.stop, StopReason::Complete(fpprof_unwind::Root::UndefinedRa), "{}", unwinder.name());
        }
    }
    let after = open_descriptors_and_mappings();
    assert_eq!(after.0, before.0, "descriptors");
    assert!(after.1 <= before.1 + 8, "mappings: {} before, {} after", before.1, after.1);
}
