//! What is left out where there is too much.

use super::*;
use crate::parse::ParseHere;
use fpprof_recording::model::FileIdentity;
use std::os::unix::fs::MetadataExt as _;

fn modules(open_files: u64) -> Modules {
    let parser: Arc<dyn FileParser> = Arc::new(ParseHere);
    Modules::new(open_files, &parser).unwrap()
}

fn code(pid: u32, path: &[u8], identity: FileIdentity) -> Mmap {
    Mmap {
        time_ns: 1,
        pid,
        tid: pid,
        start: 0x1000,
        len: 0x1000,
        file_offset: 0,
        prot: 5,
        flags: 2,
        path: path.to_vec(),
        identity,
        synthesized: false,
    }
}

/// Check that of a user's files no more than half are kept open that may be, and that what is not is counted; and that each
/// file is counted once.
#[test]
fn files_that_are_too_many_are_counted() {
    let files: Vec<_> = (0..3).map(|_| tempfile::NamedTempFile::new().unwrap()).collect();
    let mut modules = modules(8);
    for file in files.iter().chain(&files) {
        let metadata = file.as_file().metadata().unwrap();
        let (dev, inode) = (metadata.dev(), metadata.ino());
        let (dev_major, dev_minor) = (libc::major(dev), libc::minor(dev));
        let identity = FileIdentity { dev_major, dev_minor, inode, ..FileIdentity::default() };
        let path = file.path().to_str().unwrap().as_bytes();
        modules.note(&mut code(std::process::id(), path, identity));
    }
    assert_eq!(modules.finish(drop), Omitted { files_over: 1, ..Omitted::default() });
}

/// Check that the tables of half as many processes of a user are looked for as of all, that the others are counted, and that
/// there is room again when they have ended.
#[test]
fn tables_that_are_too_many_are_counted() {
    let mut modules = modules(1024);
    // Larger than any process's number, and so ended, and of one user.
    let first = 1 << 23;
    let n = u32::try_from(MAX_TABLES).unwrap();
    let note = |modules: &mut Modules, pid| modules.note(&mut code(pid, b"//anon", FileIdentity::default()));
    (first..first + n).for_each(|pid| note(&mut modules, pid));
    assert_eq!(modules.n_over.tables_over, MAX_TABLES / 2);
    modules.look();
    while modules.tables.values().flatten().count() > 1 {
        note(&mut modules, first + n);
        std::thread::yield_now();
    }
    let before = modules.n_over.tables_over;
    note(&mut modules, first + n + 1);
    assert_eq!(modules.n_over.tables_over, before);
    assert_eq!(modules.finish(drop).tables_over, before);
}
