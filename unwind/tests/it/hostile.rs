//! Malicious sections and stacks.

use std::time::{Duration, Instant};

use fpprof_unwind::{Chunk, Error, Fallback, Module, ModuleSections, Options, Section, row_at};
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::proptest;

use crate::build::{Cfi, EH_FRAME_SVMA, HEADER_SVMA, Process, RA, RBP, RSP, STACK, cfa, regs};

/// Long enough for a slow machine, but too short for a hang.
const LIMIT: Duration = Duration::from_secs(5);

fn within_limit<T>(what: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let value = what();
    assert!(start.elapsed() < LIMIT, "took {:?}", start.elapsed());
    value
}

/// Calls every query of a module.
fn probe(sections: ModuleSections) {
    let module = Module::new(sections.clone());
    let _ = module.count_entries();
    module.for_each_range(|range| {
        for svma in [range.start, range.start.wrapping_add(1), range.end.wrapping_sub(1)] {
            if let Ok(row) = row_at(&module, svma) {
                let _ = row.to_string();
            }
        }
    });
    let mut process = Process::new(Module::new(sections));
    process.options =
        Options { fallback: Fallback::FramePointer, is_leaf_guessed: true, max_depth: 100, ..Options::default() };
    let stack: Vec<u8> = (0..64u64).flat_map(|n| (crate::build::BIAS + 0x1000 + 0x40 * n).to_le_bytes()).collect();
    for ip in [0x1000, 0x1008, 0x1100, 0x1804, 0x2000, 0x3000] {
        let memory = Chunk { start: STACK, bytes: &stack, stack_end: None, holes: &[] };
        let found = process.unwind(&regs(ip, STACK, STACK + 16), &memory);
        assert!(found.frames.len() <= 100);
    }
}

/// A section of ordinary FDEs, to be corrupted.
fn ordinary() -> Cfi {
    let mut cfi = Cfi::eh_frame();
    for n in 0..8 {
        let start = 0x1000 + 0x100 * n;
        cfi.fde(
            start,
            0x100,
            &[
                cfa::advance(1),
                cfa::def_cfa_offset(16),
                cfa::saved(RBP, 16),
                cfa::remember(),
                cfa::advance(3),
                cfa::def_cfa_register(RBP),
                cfa::advance(20),
                cfa::restore_state(),
                cfa::def_cfa_expression(&[0x77, 8, 0x06]),
                cfa::expression(RBP, &[0x77, 16]),
            ],
        );
    }
    cfi
}

fn section(svma: u64, bytes: &[u8]) -> Option<Section> {
    Some(Section { svma, bytes: bytes.to_vec().into() })
}

proptest! {
    /// Check that random bytes in all sections neither panic nor hang.
    #[test]
    fn random_sections_are_survived(
        eh_frame in vec(any::<u8>(), 0..300),
        header in vec(any::<u8>(), 0..100),
        debug_frame in vec(any::<u8>(), 0..300),
    ) {
        probe(ModuleSections {
            eh_frame: section(EH_FRAME_SVMA, &eh_frame),
            eh_frame_hdr: section(HEADER_SVMA, &header),
            debug_frame: section(0, &debug_frame),
            entry: Some(0x1000),
            ..ModuleSections::default()
        });
    }

    /// Check that ordinary sections with some bytes changed neither panic nor hang.
    #[test]
    fn spoilt_sections_are_survived(changes in vec((any::<u16>(), any::<u8>()), 1..20), cut in any::<u16>()) {
        let cfi = ordinary();
        let mut bytes = cfi.bytes.clone();
        let mut header = Cfi::header(&cfi.entries).bytes.to_vec();
        for (at, value) in changes {
            let n_bytes = bytes.len() + header.len();
            let at = usize::from(at) % n_bytes;
            match at.checked_sub(bytes.len()) {
                Some(at) => header[at] = value,
                None => bytes[at] = value,
            }
        }
        bytes.truncate(usize::from(cut) % (bytes.len() * 4));
        probe(ModuleSections {
            eh_frame: section(EH_FRAME_SVMA, &bytes),
            eh_frame_hdr: section(HEADER_SVMA, &header),
            ..ModuleSections::default()
        });
    }
}

/// Check that a section truncated at any byte still gives the entries before it.
#[test]
fn cut_sections_give_what_they_have() {
    let cfi = ordinary();
    for len in 0..cfi.bytes.len() {
        let module =
            Module::new(ModuleSections { eh_frame: section(EH_FRAME_SVMA, &cfi.bytes[..len]), ..Default::default() });
        for (start, offset) in &cfi.entries {
            let end = cfi.entries.iter().map(|entry| entry.1).find(|next| next > offset).unwrap_or(cfi.bytes.len());
            assert_eq!(row_at(&module, *start).is_ok(), end <= len, "{len} {start:#x}");
        }
    }
}

/// Check that the number of remembered states is limited.
#[test]
fn remembering_is_limited() {
    for (depth, expected) in [(64, Ok(())), (65, Err(Error::DeepRemember(64)))] {
        let mut cfi = Cfi::eh_frame();
        cfi.fde(0x1000, 0x10, &vec![cfa::remember(); depth]);
        assert_eq!(row_at(&cfi.module(), 0x1000).map(|_| ()), expected);
    }
}

/// Check that a program of a million instructions is rejected.
#[test]
fn programs_are_limited() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &vec![cfa::def_cfa_offset(8); 1_000_000]);
    let found = within_limit(|| row_at(&cfi.module(), 0x1000));
    assert!(matches!(found, Err(Error::ManyInstructions(_))));
}

/// Check that many FDEs that refer to one huge CIE cost no more than others.
#[test]
fn huge_common_entries_are_refused() {
    let mut cfi = Cfi::eh_frame();
    cfi.cie("zR", &vec![0; 1 << 20]);
    for n in 0..50_000 {
        cfi.fde(0x1000 + n, 1, &[]);
    }
    let module = cfi.module();
    assert_eq!(within_limit(|| module.count_entries()), (0, 50_000));
    assert_eq!(row_at(&module, 0x1000), Err(Error::NoRow(0x1000)));
}

/// Check that a quarter of a million nested FDEs are indexed in time.
#[test]
fn nested_entries_are_indexed_in_time() {
    let mut cfi = Cfi::eh_frame();
    let n_entries = 250_000;
    for n in 0..n_entries {
        cfi.fde(0x1000 + n, 2 * (n_entries - n), &[]);
    }
    let module = cfi.module();
    let row = within_limit(|| row_at(&module, 0x1000 + n_entries + 5)).unwrap();
    assert!(row.entry_range.contains(&(0x1000 + n_entries + 5)));
}

/// Check that addresses at the top of the address space do not wrap into low ones.
#[test]
fn ranges_that_wrap_cover_nothing() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(u64::MAX - 0x10, 0x1000, &[]).fde(0x2000, 0x10, &[cfa::def_cfa(RSP, 16), cfa::saved(RA, 8)]);
    let module = cfi.module();
    for svma in [0, 0x100, u64::MAX - 0x10, u64::MAX] {
        assert_eq!(row_at(&module, svma), Err(Error::NoRow(svma)));
    }
    assert!(row_at(&module, 0x2000).is_ok());
}
