//! Audits of small ELF files assembled byte by byte, with their disassembly.

mod elf;
mod hostile;
mod rows;

use super::{AuditOptions, CodeTally, Histogram, Refusal, Survey, SurveyMetric, examine};
use elf::{Elf, TEXT};
use std::io::Cursor;

/// Check that refused files have the right reason.
#[test]
fn refusals_say_why() {
    let refusal = |bytes: &[u8]| examine(Cursor::new(bytes), AuditOptions::default()).expect_err("refused");
    assert_eq!(refusal(b""), Refusal::NotElf);
    assert_eq!(refusal(b"#!/bin/sh\n"), Refusal::NotElf);
    assert_eq!(refusal(b"\x7fELF\x02"), Refusal::NotElf);
    assert_eq!(refusal(b"\x7fELF\x01\x01\x01"), Refusal::ThirtyTwoBit);
    assert_eq!(refusal(b"\x7fELF\x02\x02\x01"), Refusal::BigEndian);
    assert_eq!(refusal(b"\x7fELF\x02\x01\x01"), Refusal::Damaged);
    let with = |at: usize, value: u8| {
        let mut bytes = Elf::new().text(&[0xc3]).bytes();
        bytes[at] = value;
        refusal(&bytes)
    };
    assert_eq!(with(16, 1), Refusal::Relocatable);
    assert_eq!(with(16, 4), Refusal::CoreDump);
    assert_eq!(with(18, 243), Refusal::Machine(243));
    // No section headers at all.
    let mut bytes = Elf::new().text(&[0xc3]).bytes();
    bytes[60] = 0;
    bytes[40..48].fill(0);
    assert_eq!(refusal(&bytes), Refusal::NoSections);
}

/// Check that code without any rows is distinguished from code with some, and Go's from both.
#[test]
fn code_without_rows_is_named() {
    let blind = examine(Cursor::new(Elf::new().text(&[0x90; 2000]).bytes()), AuditOptions::default()).unwrap();
    assert_eq!(blind.tally.code.no_cfi, 2000);
    assert_eq!(blind.remarks, [super::Remark::NoUnwindInformation]);
    let go = Elf::new().text(&[0x90; 2000]).section(".gopclntab", 2, 0x9000, &[0; 8]);
    let go = examine(Cursor::new(go.bytes()), AuditOptions::default()).unwrap();
    assert_eq!((go.tally.code.go, go.tally.code.no_cfi, go.go), (2000, 0, true));
    assert!(go.remarks.is_empty());
}

/// Check that sizes, `.sframe`'s version, compilers and the build ID are read.
#[test]
fn sections_are_read() {
    let note = [4, 0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 0xde, 0xad, 0xbe, 0xef];
    let file = Elf::new()
        .text(&[0xc3; 64])
        .section(".sframe", 2, 0x9000, &[0xe2, 0xde, 2, 0, 0, 0])
        .section(".comment", 0, 0, b"GCC: (Debian 12.2.0-14) 12.2.0\0GCC: (Debian 12.2.0-14) 12.2.0\0clang 14\0")
        .section(".note.gnu.build-id", 2, 0x8000, &note);
    let audit = examine(Cursor::new(file.bytes()), AuditOptions::default()).unwrap();
    assert_eq!((audit.tally.sizes.text, audit.tally.sizes.sframe), (64, 6));
    assert_eq!(audit.sframe, Some(super::SframeVersion::Version(2)));
    assert_eq!(audit.compilers, ["GCC: (Debian 12.2.0-14) 12.2.0", "clang 14"]);
    assert_eq!(audit.build_id, "deadbeef");
}

/// Check that code with `.sframe` rows is counted, within executable sections only.
#[test]
fn code_with_sframe_rows_counts() {
    const SVMA: u64 = 0x9000;
    let start = i32::try_from(TEXT.cast_signed() - SVMA.cast_signed()).unwrap();
    // Version 2, one function of one row, whose CFA is sp + 8.
    let section = |size: u32| {
        let counts = [1_u32, 1, 3, 0, 20].map(u32::to_le_bytes).concat();
        let function = [start.to_le_bytes(), size.to_le_bytes(), [0; 4], [1, 0, 0, 0], [0; 4]].concat();
        [&[0xe2, 0xde, 2, 1, 3, 0, 0xf8, 0][..], &counts, &function, &[0, 3, 8]].concat()
    };
    for (size, covered) in [(40, 40), (64, 64), (1000, 64)] {
        let file = Elf::new().text(&[0xc3; 64]).section(".sframe", 2, SVMA, &section(size));
        let audit = examine(Cursor::new(file.bytes()), AuditOptions::default()).unwrap();
        assert_eq!(audit.tally.sframe_code, covered, "{size}");
    }
}

/// Check that files sum up to their package and the total, in an order that does not depend on their arrival.
#[test]
fn files_sum_up() {
    let audit = || {
        let file = Elf::new().text(&[0x90; 100]).function(TEXT, 40, &[]);
        examine(Cursor::new(file.bytes()), AuditOptions::default()).unwrap()
    };
    let mut survey = Survey::default();
    survey.add("/b".to_owned(), Some("p".to_owned()), audit());
    survey.add("/a".to_owned(), Some("p".to_owned()), audit());
    survey.add("/c".to_owned(), None, audit());
    survey.finish();
    assert_eq!(survey.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["/a", "/b", "/c"]);
    assert_eq!((survey.total.functions.total, survey.total.code.executable), (3, 300));
    assert_eq!((survey.packages.len(), survey.packages[0].files), (1, 2));
    assert_eq!(survey.packages[0].tally.code.drops_caller, 80);
}

/// Check that a share is counted in the right interval, a share of 100 per cent in the last one.
#[test]
fn histograms_count_shares() {
    let tally = |part: u64, whole: u64| {
        let mut tally = CodeTally::default();
        (tally.functions.non_leaf_framed, tally.functions.non_leaf) = (part, whole);
        tally
    };
    let tallies = [tally(0, 100), tally(4, 100), tally(5, 100), tally(100, 100), tally(19, 19)];
    let histogram = Histogram::of(&tallies);
    assert_eq!((histogram.bins[0], histogram.bins[1], histogram.bins[19], histogram.too_small), (2, 1, 1, 1));
    assert_eq!(SurveyMetric::NonLeaf.of(&tallies[2]), (5, 100));
}
