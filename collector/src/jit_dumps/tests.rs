use super::*;
use crate::parse::ParseHere;
use crate::test_support::code;
use std::io::Write;

fn header() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for field in [40u32, 62, 0, 7] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend([0; 16]);
    bytes
}

fn record(kind: u32, time: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(u32::try_from(PREFIX_BYTES + body.len()).unwrap().to_le_bytes());
    bytes.extend(time.to_le_bytes());
    bytes.extend(body);
    bytes
}

fn load(name: &[u8], code: &[u8]) -> Vec<u8> {
    let mut body = vec![7; 40];
    body.extend(name);
    body.push(0);
    body.extend(code);
    record(CODE_LOAD, 1, &body)
}

fn all_of(bytes: &[u8], room: usize) -> Option<(Vec<u8>, bool)> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    whole(take(&file, &mut JitDumpPosition::default(), room))
}

fn whole(taken: Option<(Vec<u8>, bool)>) -> Option<(Vec<u8>, bool)> {
    taken.map(|(bytes, is_cut)| (bytes, !is_cut))
}

/// Check that loads are taken without their code, moves and call frame information in full, and no other records,
/// whatever the length of the header.
#[test]
fn names_are_taken_and_code_is_not() {
    let moved = record(CODE_MOVE, 2, &[3; 48]);
    let unwinding = record(UNWINDING_INFO, 2, &[5; 124]);
    let too_long = record(UNWINDING_INFO, 2, &vec![5; 70_000]);
    let parts = [
        load(b"f", &[0xcc; 9000]),
        record(2, 1, &[1; 100]),
        moved.clone(),
        record(3, 3, &[]),
        unwinding.clone(),
        too_long,
        load(b"g", b""),
    ];
    let wanted = [header(), load(b"f", b""), moved, unwinding, load(b"g", b"")].concat();
    assert_eq!(all_of(&[header(), parts.concat()].concat(), 1 << 20), Some((wanted.clone(), true)));
    let mut longer = header();
    longer[8] = 48;
    longer.extend([9; 8]);
    assert_eq!(all_of(&[longer, parts.concat()].concat(), 1 << 20), Some((wanted, true)));
}

/// Check that a dump ends at a record that is cut anywhere, is too short for its kind or longer than the file, or has
/// an unterminated name, and that this is reported.
#[test]
fn records_that_make_no_sense_end_it() {
    let good = [header(), load(b"first", b"code")].concat();
    let kept = [header(), load(b"first", b"")].concat();
    let second = load(b"second", b"code");
    for n in 1..second.len() {
        assert_eq!(all_of(&[&good[..], &second[..n]].concat(), 1 << 20), Some((kept.clone(), false)), "{n} bytes");
    }
    let mut huge = second.clone();
    huge[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut nothing = second.clone();
    nothing[4..8].copy_from_slice(&0u32.to_le_bytes());
    let no_end = record(CODE_LOAD, 1, &[7; 60]);
    let short = [(CODE_LOAD, 40), (CODE_MOVE, 47), (UNWINDING_INFO, 23)].map(|(kind, n)| record(kind, 1, &vec![0; n]));
    for hostile in [huge, nothing, no_end].into_iter().chain(short) {
        let bytes = [&good[..], &hostile, &second].concat();
        assert_eq!(all_of(&bytes, 1 << 20), Some((kept.clone(), false)), "{hostile:?}");
    }
}

/// Check that a dump is taken as far as there is room, and never with more bytes than that.
#[test]
fn there_is_an_end_to_what_is_taken() {
    let bytes = [header(), load(b"first", b"code"), load(&[b'n'; 300], b"code")].concat();
    let kept = [header(), load(b"first", b"")].concat();
    for room in 0..600 {
        let taken = all_of(&bytes, room);
        assert!(taken.as_ref().is_none_or(|(taken, _)| taken.len() <= room), "{room}");
        if (kept.len()..kept.len() + 300).contains(&room) {
            assert_eq!(taken, Some((kept.clone(), false)), "{room}");
        }
    }
    assert!(all_of(&bytes, 600).is_some_and(|(_, is_whole)| is_whole));
}

/// Check that each record is taken once, as soon as it is complete, after a header of its own.
#[test]
fn dumps_are_taken_as_they_grow() {
    let mut file = tempfile::tempfile().unwrap();
    let mut taken = JitDumpPosition::default();
    let second = load(b"second", b"code");
    let mut look = |bytes: &[u8]| {
        file.write_all(bytes).unwrap();
        whole(take(&file, &mut taken, 1 << 20))
    };
    assert_eq!(look(&header()[..30]), None);
    assert_eq!(look(&header()[30..]), Some((header(), true)));
    let first = [&load(b"first", b"code")[..], &second[..20]].concat();
    assert_eq!(look(&first), Some(([header(), load(b"first", b"")].concat(), false)));
    assert_eq!(look(b""), Some((header(), false)));
    assert_eq!(look(&second[20..]), Some(([header(), load(b"second", b"")].concat(), true)));
    file.set_len(50).unwrap();
    assert_eq!(take(&file, &mut taken, 1 << 20), None);
}

/// Check that a dump is looked at once more when its process has ended, that its room is then free, and that what could
/// not be taken is still counted.
#[test]
fn dumps_of_ended_processes_are_let_go() {
    let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid = process.id();
    let (mut file, mut dumps) = (tempfile::tempfile().unwrap(), JitDumps::default());
    file.write_all(&header()).unwrap();
    let mmap = code(pid, b"/tmp/jit-1.dump", FileIdentity::default());
    dumps.add(JitDump::of(&mmap, 0, Some(file.try_clone().unwrap())));
    dumps.add(JitDump::of(&mmap, 0, None));
    let look = |dumps: &mut JitDumps| {
        let mut taken = Vec::new();
        let ended = dumps.look(&ParseHere, &|| true, &mut |module| taken.push(module.bytes));
        (ended.iter().map(|dump| dump.pid).collect::<Vec<_>>(), taken)
    };
    assert_eq!(look(&mut dumps), (vec![], vec![header()]));
    file.write_all(&load(b"last", b"code")).unwrap();
    file.write_all(&load(b"cut", b"code")[..20]).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(look(&mut dumps), (vec![pid, pid], vec![[header(), load(b"last", b"")].concat()]));
    assert_eq!((dumps.dumps.len(), dumps.untaken()), (0, Untaken { refused: 1, cut: 1 }));
    assert_eq!(look(&mut dumps), (vec![], vec![]));
}

/// Check that a file that does not start like a dump of this version and byte order is refused.
#[test]
fn other_files_are_none() {
    let broken = |at: usize, byte: u8| {
        let mut bytes = header();
        bytes[at] = byte;
        bytes
    };
    for bytes in [vec![], header()[..39].to_vec(), broken(0, b'J'), broken(4, 2), broken(8, 39), broken(11, 255)] {
        assert_eq!(all_of(&bytes, 1 << 20), None, "{bytes:?}");
    }
    assert_eq!(all_of(&header(), 1 << 20), Some((header(), true)));
}

/// Check that a very long sparse file, all of it meaningless records, costs nothing.
#[test]
fn holes_are_passed_over() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&header()).unwrap();
    file.write_all(&record(99, 0, &[])[..4]).unwrap();
    file.write_all(&u32::MAX.to_le_bytes()).unwrap();
    file.set_len(1 << 42).unwrap();
    assert_eq!(whole(take(&file, &mut JitDumpPosition::default(), 1 << 20)), Some((header(), false)));
}
