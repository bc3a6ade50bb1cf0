use super::*;
use fpprof_recording::model::{FileIdentity, ModuleBytes};
use proptest::prelude::*;

fn header(flags: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for field in [40u32, 62, 0, 7] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend(5u64.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes
}

fn record(kind: u32, time_ns: u64, fields: &[u64], name: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    let len = PREFIX_BYTES + 8 + fields.len() * 8 + name.len();
    bytes.extend(u32::try_from(len).unwrap().to_le_bytes());
    bytes.extend(time_ns.to_le_bytes());
    bytes.extend([7; 8]);
    bytes.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
    bytes.extend(name);
    bytes
}

fn load(time_ns: u64, start: u64, bytes: u64, index: u64, name: &str) -> Vec<u8> {
    record(CODE_LOAD, time_ns, &[start, start, bytes, index], &[name.as_bytes(), b"\0"].concat())
}

fn moved(time_ns: u64, old: u64, new: u64, bytes: u64, index: u64) -> Vec<u8> {
    record(CODE_MOVE, time_ns, &[new, old, new, bytes, index], b"")
}

fn read(modules: &[ModuleBytes]) -> JitCodes {
    JitCodes::read(modules.iter().map(|module| (&*module.path, &*module.bytes)))
}

fn codes(flags: u64, records: &[Vec<u8>]) -> JitCodes {
    let bytes = [header(flags), records.concat()].concat();
    read(&[ModuleBytes { path: b"[jitdump 7]".to_vec(), identity: FileIdentity::default(), bytes }])
}

/// Check that the pieces of a dump are combined: code loaded in an earlier piece may move, and warnings are not
/// repeated.
#[test]
fn pieces_are_one_dump() {
    let (first, second) = (load(10, 0x1000, 0x10, 1, "f"), moved(20, 0x1000, 0x2000, 0x10, 1));
    let piece = |flags, record: &[u8]| ModuleBytes {
        path: b"[jitdump 7]".to_vec(),
        identity: FileIdentity::default(),
        bytes: [&header(flags), record].concat(),
    };
    let codes = read(&[piece(0, &first), piece(0, &second)]);
    assert_eq!(names(&codes, &[(0x1000, 15), (0x1000, 25), (0x2000, 25)]), ["f", "", "f"]);
    assert_eq!(read(&[piece(1, &first), piece(1, &second)]).warnings().len(), 1);
}

fn names(codes: &JitCodes, wanted: &[(u64, u64)]) -> Vec<String> {
    let name = |&(address, time)| codes.find(7, address, time).and_then(|code| codes.name(code)).unwrap_or_default();
    wanted.iter().map(name).collect()
}

/// Check that an address has the name of the code that was there at the time, that the rest of overwritten code keeps
/// its name, and that there is none before the first load and outside the ranges.
#[test]
fn names_are_those_of_the_time() {
    let codes = codes(0, &[load(10, 0x1000, 0x100, 1, "old"), load(20, 0x1040, 0x20, 2, "new")]);
    let wanted = [(0x1040, 9), (0x1040, 10), (0x1040, 19), (0x1040, 20), (0x105f, 99), (0x1060, 99), (0x1100, 99)];
    assert_eq!(names(&codes, &wanted), ["", "old", "old", "new", "new", "old", ""]);
    assert_eq!(codes.find(8, 0x1040, 20), None, "another process");
    assert!(codes.warnings().is_empty());
}

/// Check that code that moves is found at its new place only, also if the two overlap, and that a move of code that was
/// never loaded is left out with a warning.
#[test]
fn code_moves() {
    let codes =
        codes(0, &[load(10, 0x1000, 0x100, 1, "f"), moved(20, 0x1000, 0x1080, 0x100, 1), moved(30, 0, 0x10, 8, 9)]);
    let wanted = [(0x1000, 19), (0x1000, 20), (0x10ff, 20), (0x117f, 20), (0x117f, 19), (0x10, 30)];
    assert_eq!(names(&codes, &wanted), ["f", "", "f", "f", "", ""]);
    assert_eq!(codes.warnings(), ["1 records of jitdumps were ignored: corrupt or too many"]);
}

/// A record with `.eh_frame`, followed by a header of 20 bytes.
fn unwinding(eh_frame: &[u8]) -> Vec<u8> {
    let sizes = [eh_frame.len() as u64 + 20, 20, 64];
    let fields = sizes.map(u64::to_le_bytes).concat();
    let mut bytes = record(UNWINDING_INFO, 1, &[], &[&fields[..], eh_frame, &[0x55; 20]].concat());
    // Unlike loads, these records have no process and thread before the fields.
    bytes.drain(PREFIX_BYTES..PREFIX_BYTES + 8);
    let len = u32::try_from(bytes.len()).unwrap();
    bytes[4..8].copy_from_slice(&len.to_le_bytes());
    bytes
}

/// Check that call frame information belongs to the next load, also in a later piece, with its address after the code;
/// and that it is not used for code whose addresses ever had other code.
#[test]
fn unwinding_is_of_code_that_is_alone() {
    let first =
        [unwinding(b"one"), load(10, 0x1000, 0x13, 1, "f"), load(11, 0x1100, 0x10, 2, "none"), unwinding(b"two")];
    let second = [load(20, 0x1200, 0x10, 3, "g"), unwinding(b"three"), load(30, 0x1300, 0x10, 4, "h")];
    let third = [load(40, 0x130f, 0x10, 5, "i"), unwinding(b"four"), moved(50, 0x1200, 0x1400, 0x10, 3)];
    let piece = |records: &[Vec<u8>]| ModuleBytes {
        path: b"[jitdump 7]".to_vec(),
        identity: FileIdentity::default(),
        bytes: [header(0), records.concat()].concat(),
    };
    let read = |pieces: &[ModuleBytes]| {
        let codes = read(pieces);
        assert!(codes.warnings().is_empty(), "{:?}", codes.warnings());
        let numbers = codes.unwinding_of(7);
        let of = |own: &JitUnwinding| (own.code.clone(), own.eh_frame_at, own.eh_frame.to_vec());
        codes.unwinding()[numbers].iter().map(of).collect::<Vec<_>>()
    };
    let (f, g, h) = (
        (0x1000..0x1013, 0x1018, b"one".to_vec()),
        (0x1200..0x1210, 0x1210, b"two".to_vec()),
        (0x1300..0x1310, 0x1310, b"three".to_vec()),
    );
    let pieces = [piece(&first), piece(&second), piece(&third)];
    assert_eq!(read(&pieces[..2]), [f.clone(), g, h]);
    assert_eq!(read(&pieces), [f]);
    // The header is longer than the whole.
    let mut bad = unwinding(b"bad");
    bad[PREFIX_BYTES + 8] = 0xff;
    let codes = codes(0, &[bad, load(10, 0x1000, 0x13, 1, "f")]);
    assert_eq!((codes.unwinding().len(), codes.warnings().len()), (0, 1));
}

/// Check that times of another clock are not used, with a warning.
#[test]
fn times_of_other_clocks_are_none() {
    let codes = codes(ARCH_TIMESTAMP, &[load(1 << 60, 0x1000, 8, 1, "first"), load(1 << 61, 0x1000, 8, 2, "last")]);
    assert_eq!(names(&codes, &[(0x1000, 1)]), ["last"]);
    assert!(codes.warnings()[0].contains("unknown clock"), "{:?}", codes.warnings());
}

/// Check that the records before one without a length, or truncated at any byte, keep their names, that no range wraps,
/// and that there is a warning about what is left out.
#[test]
fn hostile_records_are_left_out() {
    let good = load(1, 0x1000, 8, 1, "good");
    let wraps = load(1, u64::MAX, 8, 2, "wraps");
    let (empty, nameless) = (load(1, 0x2000, 0, 2, "empty"), load(1, 0x3000, 8, 3, ""));
    let strange = codes(0, &[wraps, empty, nameless, good.clone()]);
    assert_eq!(names(&strange, &[(0x1000, 1), (0x2000, 1), (0x3000, 1), (u64::MAX, 1)]), ["good", "", "", ""]);
    assert_eq!(strange.warnings(), ["3 records of jitdumps were ignored: corrupt or too many"]);
    for n in 1..good.len() {
        let cut = codes(0, &[good.clone(), good[..n].to_vec()]);
        assert_eq!((names(&cut, &[(0x1000, 1)]), cut.warnings().len()), (vec!["good".to_owned()], 1), "{n}");
    }
    let none = read(&[ModuleBytes {
        path: b"[jitdump 7]".to_vec(),
        identity: FileIdentity::default(),
        bytes: header(0)[..39].to_vec(),
    }]);
    assert_eq!((none.find(7, 0, 0), none.warnings().len()), (None, 1));
}

proptest! {
    /// Check that the name at an address and time is that of the last load up to then that contains the address.
    #[test]
    fn the_last_load_counts(
        loads in prop::collection::vec((0u64..20, 0u64..40, 1u64..12), 0..40),
        wanted in prop::collection::vec((0u64..60, 0u64..22), 0..60),
    ) {
        let mut records: Vec<_> = loads.iter().enumerate().collect();
        records.sort_by_key(|&(_, &(time, ..))| time);
        let written: Vec<_> =
            loads.iter().zip(0..).map(|(&(time, start, bytes), n)| load(time, start, bytes, n, &format!("f{n}"))).collect();
        let codes = codes(0, &written);
        for (address, time) in wanted {
            let has = |&&(_, &(from, start, bytes)): &&(usize, &(u64, u64, u64))| {
                from <= time && (start..start + bytes).contains(&address)
            };
            let last = records.iter().rfind(has).map_or_else(String::new, |(n, _)| format!("f{n}"));
            prop_assert_eq!(names(&codes, &[(address, time)]), [last]);
        }
    }

    /// Check that no bytes cause a panic.
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200), is_one: bool) {
        let bytes = if is_one { [header(0), bytes].concat() } else { bytes };
        let module = ModuleBytes { path: b"[jitdump 7]".to_vec(), identity: FileIdentity::default(), bytes };
        let codes = read(&[module]);
        prop_assert!(codes.find(7, 0x1000, 1).is_none_or(|code| codes.name(code).is_some()));
    }
}
