//! Look-up of FDEs: good and bad headers, scans, `.debug_frame`, overlapping FDEs.

use fpprof_unwind::{Error, Module, ModuleSections, Section, row_at};

use crate::build::{Cfi, Kind, RA, RSP, cfa};

/// FDEs that are distinguished by their CFA offset.
fn section(entries: &[(u64, u64, u32)]) -> Cfi {
    let mut cfi = Cfi::eh_frame();
    for &(start, len, offset) in entries {
        cfi.fde(start, len, &[cfa::def_cfa_offset(offset)]);
    }
    cfi
}

fn found(module: &Module, svma: u64) -> Option<String> {
    row_at(module, svma).ok().map(|row| row.to_string())
}

fn expected(offset: u32) -> Option<String> {
    Some(format!("CFA=rsp+{offset}, ra=c-8"))
}

const ENTRIES: [(u64, u64, u32); 4] = [(0x3000, 0x10, 24), (0x1000, 0x10, 8), (0x2000, 0x10, 16), (0x4000, 0x10, 32)];

fn check_all(module: &Module) {
    for (start, len, offset) in ENTRIES {
        assert_eq!(found(module, start), expected(offset));
        assert_eq!(found(module, start + len - 1), expected(offset));
        assert_eq!(row_at(module, start + len), Err(Error::NoRow(start + len)));
        assert_eq!(row_at(module, start - 1), Err(Error::NoRow(start - 1)));
    }
}

fn with_header(cfi: &Cfi, entries: &[(u64, usize)]) -> Module {
    Module::new(ModuleSections { eh_frame_hdr: Some(Cfi::header(entries)), ..cfi.sections() })
}

/// Check that FDEs are found with and without a header.
#[test]
fn finds_entries_with_and_without_a_header() {
    let cfi = section(&ENTRIES);
    check_all(&cfi.module());
    let mut sorted = cfi.entries.clone();
    sorted.sort_unstable();
    check_all(&with_header(&cfi, &sorted));
}

/// Check that no FDE is hidden by a header that is unsorted, empty, truncated, incomplete, of other addresses or
/// entries, or in an unknown encoding.
#[test]
fn survives_wrong_headers() {
    let cfi = section(&ENTRIES);
    let mut sorted = cfi.entries.clone();
    sorted.sort_unstable();
    check_all(&with_header(&cfi, &cfi.entries)); // unsorted
    check_all(&with_header(&cfi, &[]));
    for left_out in 0..sorted.len() {
        let mut entries = sorted.clone();
        entries.remove(left_out);
        check_all(&with_header(&cfi, &entries));
    }
    let shifted: Vec<_> = sorted.iter().map(|&(start, offset)| (start + 0x800, offset)).collect();
    check_all(&with_header(&cfi, &shifted));
    let mixed: Vec<_> = sorted.iter().map(|&(start, _)| (start, sorted[0].1)).collect();
    check_all(&with_header(&cfi, &mixed));
    let beyond: Vec<_> = sorted.iter().map(|&(start, offset)| (start, offset + 0x10_0000)).collect();
    check_all(&with_header(&cfi, &beyond));
    let whole = Cfi::header(&sorted);
    for len in 0..whole.bytes.len() {
        let header = Section { svma: whole.svma, bytes: whole.bytes.slice(..len) };
        check_all(&Module::new(ModuleSections { eh_frame_hdr: Some(header), ..cfi.sections() }));
    }
    let mut bytes = whole.bytes.to_vec();
    bytes[3] = 0x1b;
    let header = Section { svma: whole.svma, bytes: bytes.into() };
    check_all(&Module::new(ModuleSections { eh_frame_hdr: Some(header), ..cfi.sections() }));
}

/// Check that `.debug_frame` is used for addresses `.eh_frame` does not cover, and only for those.
#[test]
fn consults_debug_frame_per_address() {
    let mut debug = Cfi::new(Kind::DebugFrame);
    debug.cie("", &[cfa::def_cfa(RSP, 8), cfa::saved(RA, 8)].concat());
    debug.fde(0x1000, 0x10, &[cfa::def_cfa_offset(80)]).fde(0x5000, 0x10, &[cfa::def_cfa_offset(88)]);
    // Code the linker discarded: address 0, with its original length.
    debug.fde(0, 0x10_0000, &[cfa::def_cfa_offset(96)]);
    let eh_frame = section(&ENTRIES);
    let mut sorted = eh_frame.entries.clone();
    sorted.sort_unstable();
    for header in [None, Some(Cfi::header(&sorted))] {
        let sections = ModuleSections {
            eh_frame_hdr: header,
            debug_frame: Some(debug.section()),
            text: Some(0x1000..0x9000),
            ..eh_frame.sections()
        };
        let module = Module::new(sections);
        check_all(&module);
        assert_eq!(found(&module, 0x5008), expected(88));
        assert_eq!(found(&module, 0x6000), None);
    }
    assert_eq!(found(&debug.module(), 0x1008), expected(80));
}

/// Check that of overlapping FDEs the innermost is used, and the outer one after its end.
#[test]
fn takes_the_innermost_of_overlapping_entries() {
    let module = section(&[
        (0x1000, 0x1000, 8),
        (0x1100, 0x100, 16),
        (0x1180, 0x180, 24), // begins in the second and outlives it
        (0x1000, 0x10, 32),  // begins with the first
        (0x5000, 0, 40),     // covers nothing
    ])
    .module();
    for (svma, offset) in [
        (0x1000, 32),
        (0x100f, 32),
        (0x1010, 8),
        (0x10ff, 8),
        (0x1100, 16),
        (0x117f, 16),
        (0x1180, 24),
        (0x12ff, 24),
        (0x1300, 8),
        (0x1fff, 8),
    ] {
        assert_eq!(found(&module, svma), expected(offset), "{svma:#x}");
    }
    assert_eq!((found(&module, 0x2000), found(&module, 0x5000)), (None, None));
}

/// Check that a terminator in the middle hides nothing, that a bad entry hides only itself, and that a length beyond
/// the section ends the scan.
#[test]
fn scans_past_what_is_wrong() {
    let mut cfi = section(&ENTRIES[..2]);
    cfi.bytes.extend([0; 4]);
    // An FDE whose CIE pointer is invalid.
    cfi.bytes.extend([12, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    cfi.cie("zR", &[cfa::def_cfa(RSP, 8), cfa::saved(RA, 8)].concat());
    for (start, len, offset) in &ENTRIES[2..] {
        cfi.fde(*start, *len, &[cfa::def_cfa_offset(*offset)]);
    }
    check_all(&cfi.module());
    assert_eq!(cfi.module().count_entries(), (4, 1));
    cfi.bytes.extend([0xf0, 0xff, 0xff, 0x7f, 1, 2, 3]);
    check_all(&cfi.module());
    assert_eq!(cfi.module().count_entries(), (4, 2));
}

/// Check that 64-bit lengths are read, in either section.
#[test]
fn reads_64_bit_dwarf() {
    for kind in [Kind::EhFrame, Kind::DebugFrame] {
        let mut narrow = Cfi::new(kind);
        narrow.cie("", &[cfa::def_cfa(RSP, 8), cfa::saved(RA, 8)].concat());
        let n_cie = narrow.bytes.len();
        narrow.fde(0x1000, 0x10, &[cfa::def_cfa_offset(16)]);
        // Widen the length fields, and the ids if they are as wide as lengths.
        let mut wide = Cfi::new(kind);
        let widen = |body: &[u8], id: u64, wide: &mut Vec<u8>| {
            let id = if kind == Kind::EhFrame { (id as u32).to_le_bytes().to_vec() } else { id.to_le_bytes().to_vec() };
            let body = [id, body.to_vec()].concat();
            wide.extend(u32::MAX.to_le_bytes());
            wide.extend((body.len() as u64).to_le_bytes());
            wide.extend(body);
        };
        let cie_id = if kind == Kind::EhFrame { 0 } else { u64::MAX };
        widen(&narrow.bytes[8..n_cie], cie_id, &mut wide.bytes);
        let pointer = if kind == Kind::EhFrame { wide.bytes.len() as u64 + 12 } else { 0 };
        widen(&narrow.bytes[n_cie + 8..], pointer, &mut wide.bytes);
        assert_eq!(found(&wide.module(), 0x1008), expected(16));
    }
}

/// Check that big-endian sections are rejected with a reason.
#[test]
fn refuses_big_endian() {
    let sections = ModuleSections { little_endian: false, ..section(&ENTRIES).sections() };
    assert_eq!(row_at(&Module::new(sections), 0x1000), Err(Error::BigEndian));
}
