//! Files that are not what they seem.

use super::*;
use crate::test_support::{code, identity};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

fn open(path: &std::path::Path, identity: &FileIdentity) -> Option<Opened> {
    let path = path.as_os_str().as_bytes();
    // No mapping starts at 0, so only the path can work.
    open_mapped(&Mmap { start: 0, ..code(std::process::id(), path, *identity) }, &[])
}

/// Check that a path is trusted only if it leads to the mapped file, and that nothing but regular files is opened:
/// neither a FIFO, which would block, nor a device.
#[test]
fn only_the_mapped_regular_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("mapped"), "mapped").expect("a file");
    std::fs::write(at("other"), "other").expect("a file");
    symlink(at("mapped"), at("link")).expect("a link");
    assert!(Command::new("mkfifo").arg(at("fifo")).status().expect("mkfifo").success());
    let mapped = identity(&at("mapped"));
    for (name, is_it) in [("mapped", true), ("link", true), ("other", false), ("missing", false)] {
        assert_eq!(open(&at(name), &mapped).is_some(), is_it, "{name}");
        assert_eq!(still_at(at(name).as_os_str().as_bytes(), &mapped, None), is_it, "{name}");
    }
    assert!(open(&at("fifo"), &identity(&at("fifo"))).is_none());
    let device = std::path::Path::new("/dev/zero");
    assert!(open(device, &identity(device)).is_none());
    assert!(open("relative".as_ref(), &mapped).is_none());
}

/// Check that the file of a process that is gone is found as its ancestors see it, and only if it is the one that was mapped.
#[test]
fn ancestors_see_what_a_process_saw() {
    let directory = tempfile::tempdir().expect("a directory");
    let mounted = directory.path().to_str().expect("a path");
    let script =
        format!("mount -t tmpfs none {mounted} && echo 1 >{mounted}/a && echo 2 >{mounted}/b && echo && read line");
    let mut parent = Command::new("unshare");
    let parent = parent.args(["-m", "sh", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut parent = parent.spawn().expect("unshare runs, as root");
    let mut line = [0];
    parent.stdout.as_mut().expect("its output").read_exact(&mut line).expect("a line");
    let identity = identity(Path::new(&format!("/proc/{}/root/{mounted}/a", parent.id())));
    let own = std::process::id();
    let opens = |name: &str, ancestors: &[u32]| {
        let gone = code(u32::MAX, format!("{mounted}/{name}").as_bytes(), identity);
        open_mapped(&gone, ancestors).is_some()
    };
    let found = [opens("a", &[]), opens("a", &[own]), opens("a", &[own, parent.id()]), opens("b", &[own, parent.id()])];
    parent.kill().and_then(|()| parent.wait()).expect("it ends");
    assert_eq!(found, [false, false, true, false]);
}

/// Check that a file is identified by what mappings show of it, as the kernel shows those of this program.
#[test]
fn mappings_show_the_file_system() {
    let maps = std::fs::read("/proc/self/maps").expect("maps");
    let program = std::fs::read_link("/proc/self/exe").expect("a program");
    let entry = crate::proc::parse_maps(&maps).find(|entry| entry.path == program.as_os_str().as_bytes());
    let entry = entry.expect("its mapping");
    let shown = shown_identity(&File::open(&program).expect("a file"), "self");
    assert_eq!(shown, Some((entry.dev_major, entry.dev_minor, entry.inode)));
}

/// Check that what is mapped now is not taken for the file of an earlier mapping in its place, even with the same inode number.
#[test]
fn another_file_may_be_mapped_by_now() {
    let maps = std::fs::read("/proc/self/maps").expect("maps");
    let entry = parse_maps(&maps).find(|entry| entry.is_executable() && entry.is_of_file()).expect("own code");
    let MapsEntry { dev_major, dev_minor, inode, .. } = entry;
    let opens = |dev_minor| {
        let identity = FileIdentity { dev_major, dev_minor, inode, ..FileIdentity::default() };
        let (start, len) = (entry.start, entry.end - entry.start);
        open_mapped(&Mmap { start, len, ..code(std::process::id(), b"", identity) }, &[]).is_some()
    };
    assert_eq!([dev_minor, dev_minor + 1].map(opens), [true, false]);
}

/// A 64-bit ELF file with one program header, followed by these bytes.
fn elf(patch: impl Fn(&mut [u8]), behind: &[u8]) -> File {
    let mut bytes = vec![0u8; 120];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
    bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
    bytes[56..58].copy_from_slice(&1u16.to_le_bytes());
    bytes[64..68].copy_from_slice(&4u32.to_le_bytes());
    bytes[72..80].copy_from_slice(&120u64.to_le_bytes());
    bytes[96..104].copy_from_slice(&(behind.len() as u64).to_le_bytes());
    patch(&mut bytes);
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&[&bytes, behind].concat()).expect("its bytes");
    file
}

fn note(owner: &[u8], kind: u32, description: &[u8]) -> Vec<u8> {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("short").to_le_bytes();
    let mut note = [&length(owner)[..], &length(description), &kind.to_le_bytes(), owner].concat();
    note.resize(note.len().next_multiple_of(4), 0);
    note.extend_from_slice(description);
    note.resize(note.len().next_multiple_of(4), 0);
    note
}

/// Check that the build ID is found after other notes.
#[test]
fn build_id_after_other_notes() {
    let notes = [note(b"GNU\0", 1, &[9; 16]), note(b"Xen", 3, b"xyz"), note(b"GNU\0", 3, &[1, 2, 3, 4, 5])].concat();
    let file = elf(|_| {}, &notes);
    assert_eq!(read_build_id(&file), BuildId::new(&[1, 2, 3, 4, 5]));
}

/// Check that files with wrong headers have no build ID and do no harm.
#[test]
fn lying_files() {
    let good = note(b"GNU\0", 3, &[1, 2, 3]);
    let lies: [fn(&mut [u8]); 7] = [
        |bytes| bytes[0] = 0,
        |bytes| bytes[5] = 2,
        |bytes| bytes[32..40].fill(0xff),
        |bytes| bytes[56..58].fill(0),
        |bytes| bytes[64] = 1,
        |bytes| bytes[72..80].fill(0xff),
        |bytes| bytes[96..104].fill(0xff),
    ];
    for (i, lie) in lies.into_iter().enumerate() {
        assert_eq!(read_build_id(&elf(lie, &good)), None, "lie {i}");
    }
    for at in [0, 4] {
        let mut endless = good.clone();
        endless[at..at + 4].fill(0xff);
        assert_eq!(read_build_id(&elf(|_| {}, &endless)), None, "length at {at}");
    }
    for len in 0..120 {
        let file = elf(|_| {}, &good);
        file.set_len(len).expect("cut");
        assert_eq!(read_build_id(&file), None, "cut to {len} bytes");
    }
}
