//! Deliberately damaged files.

use super::elf::{Elf, TEXT};
use crate::audit::{AuditOptions, examine};
use std::io::Cursor;

fn sample() -> Vec<u8> {
    let framed = [0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x0a, 0x45, 0x0c, 7, 8, 0x0b];
    let code: Vec<u8> = (0..=255).cycle().take(600).collect();
    Elf::new()
        .text(&code)
        .got()
        .section(".sframe", 2, 0x9000, &[0xe2, 0xde, 2, 0])
        .section(".debug_info", 0, 0, &[12, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, 1, 0, 0, 0, 0])
        .section(".debug_abbrev", 0, 0, &[1, 0x11, 0, 0x25, 0x0e, 0, 0, 0])
        .section(".debug_str", 0, 0, b"GNU C17 12.2.0 -O2\0")
        .function(TEXT, 200, &framed)
        .function(TEXT + 208, 100, &[0x41, 0x0f, 3, 0x76, 0x78, 0x06])
        .function(TEXT + 320, 200, &framed)
        .bytes()
}

/// Audits a file, and checks what must hold for any file.
fn check(bytes: &[u8]) {
    for disassemble in [false, true] {
        let Ok(audit) = examine(Cursor::new(bytes), AuditOptions { disassemble, records: true, ranges: true }) else {
            continue;
        };
        let code = audit.tally.code;
        let sum = [code.ok, code.drops_caller, code.breaks_chain, code.padding, code.go, code.no_cfi];
        assert_eq!(u128::from(code.executable), sum.into_iter().map(u128::from).sum::<u128>(), "{code:?}");
        let functions = audit.tally.functions;
        assert_eq!(functions.total, functions.leaf + functions.non_leaf + functions.unread);
        assert!(code.executable <= 64 * bytes.len() as u64);
        let covered = audit.ranges.iter().map(|range| u128::from(range.end - range.start)).sum::<u128>();
        assert_eq!(covered, u128::from(code.judged()));
        assert!(audit.ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert!(audit.records.iter().all(|record| record.ok + record.drops_caller + record.breaks_chain <= record.len));
    }
}

/// Check that the undamaged sample is audited completely, including its producer.
#[test]
fn undamaged_sample_is_judged() {
    let audit = examine(Cursor::new(sample()), AuditOptions::default()).unwrap();
    assert_eq!(audit.tally.functions.total, 3);
    assert_eq!(audit.producers.len(), 1);
    assert_eq!(audit.producers[0].flags, ["-O2"]);
    check(&sample());
}

/// Check that an audit of a truncated file neither panics nor loses count.
#[test]
fn cut_files_are_harmless() {
    let whole = sample();
    for len in 0..whole.len() {
        check(&whole[..len]);
    }
}

/// Check the same for files with one changed byte, and with many.
#[test]
fn changed_files_are_harmless() {
    let whole = sample();
    for at in 0..whole.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            check(&bytes);
        }
    }
    // Xorshift (Marsaglia 2003), for the same damage in every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..=next(12) {
            bytes[next(whole.len())] = u8::try_from(next(256)).unwrap();
        }
        check(&bytes);
    }
}
