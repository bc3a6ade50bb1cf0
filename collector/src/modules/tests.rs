//! Limits on files and tables.

use super::*;
use crate::parse::ParseHere;
use crate::perf_maps::own_uid;
use crate::proc::parse_maps;
use crate::request::Target;
use crate::test_support::{code, identity};
use fpprof_recording::model::{FileIdentity, ModuleBytes};
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

fn modules(open_files: u64) -> Modules {
    Modules::new(open_files, &Request::new(Target::System)).unwrap()
}

/// A code mapping of the file in this process.
fn code_of(file: &tempfile::NamedTempFile) -> Mmap {
    code(std::process::id(), file.path().to_str().unwrap().as_bytes(), identity(file.path()))
}

/// Check that at most half of the open files allowed are kept for one user, and that those beyond that have a build ID, too.
#[test]
fn few_files_are_kept_open() {
    let files: Vec<_> = (0..3).map(|_| tempfile::NamedTempFile::new().unwrap()).collect();
    let mut modules = modules(8);
    for file in &files {
        std::fs::copy("/bin/true", file.path()).unwrap();
        let mut mmap = code_of(file);
        modules.note(&mut mmap, &Tracker::new(true));
        assert!(mmap.identity.build_id.is_some());
    }
    assert_eq!(modules.shares.open.left(own_uid()), 0);
    assert_eq!(modules.finish(None, drop), Omitted::default());
}

/// Check that a deleted file that was not kept open is opened again through its mapping, and counted if there is none.
#[test]
fn files_are_opened_again_through_their_mappings() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy("/bin/sleep", file.path()).unwrap();
    std::fs::set_permissions(file.path(), Permissions::from_mode(0o700)).unwrap();
    let program = file.into_temp_path();
    // A process that another test has just forked may still have it open for writing.
    let spawn = || std::process::Command::new(&program).arg("1000").spawn().ok();
    let mut running = std::iter::repeat_with(spawn).find_map(|started| started).unwrap();
    let path = program.as_os_str().as_bytes();
    let mapping = || {
        let maps = std::fs::read(format!("/proc/{}/maps", running.id())).unwrap();
        parse_maps(&maps).find(|entry| entry.path == path && entry.prot & 4 != 0).map(|entry| (entry.start, entry.end))
    };
    // Between fork and exec, it is still this program.
    let (start, end) = std::iter::repeat_with(mapping).find_map(|found| found).unwrap();
    let mut mmap = Mmap { start, len: end - start, ..code(running.id(), path, identity(&program)) };
    let mut saved = |program: Option<tempfile::TempPath>| {
        let mut modules = modules(0);
        modules.note(&mut mmap, &Tracker::new(true));
        drop(program);
        let mut n_saved = 0;
        let omitted = modules.finish(None, |_| n_saved += 1);
        (n_saved, omitted.files)
    };
    assert_eq!(saved(Some(program)), (1, 0));
    running.kill().and_then(|()| running.wait()).unwrap();
    assert_eq!(saved(None), (0, 1));
}

/// Check that a file that could not be opened is opened by a later mapping, and is then not lost; and that this is tried a
/// limited number of times, to which processes that are gone do not count.
#[test]
fn files_are_opened_by_later_mappings() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy("/bin/true", file.path()).unwrap();
    let identity = identity(file.path());
    let note_of = |modules: &mut Modules, pid, path: &[u8]| {
        let mut mmap = code(pid, path, identity);
        modules.note(&mut mmap, &Tracker::new(true));
        mmap.identity.build_id
    };
    let note = |modules: &mut Modules, path: &[u8]| note_of(modules, std::process::id(), path);
    let lost = |modules: &mut Modules| {
        while modules.files.values().any(|known| !known.is_lost) {
            assert_eq!(note(modules, b"/nowhere"), None);
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let mut modules = modules(8);
    assert_eq!(note(&mut modules, b"/nowhere"), None);
    lost(&mut modules);
    let path = file.path().to_str().unwrap().as_bytes();
    assert!(note(&mut modules, path).is_some() && note(&mut modules, b"/nowhere").is_some());
    drop(file);
    let mut n_saved = 0;
    assert_eq!(modules.finish(None, |_| n_saved += 1), Omitted::default());
    assert_eq!(n_saved, 1);

    let mut modules = self::modules(8);
    assert_eq!(note(&mut modules, b"/nowhere"), None);
    lost(&mut modules);
    let n_running = |modules: &Modules| modules.files.values().filter_map(|known| Some(known.failed?.n_running)).next();
    let before = n_running(&modules);
    (0..200).for_each(|_| assert_eq!(note_of(&mut modules, u32::MAX, b"/nowhere"), None));
    assert_eq!(n_running(&modules), before);
    (0..200).for_each(|_| assert_eq!(note(&mut modules, b"/nowhere"), None));
    assert_eq!(n_running(&modules), Some(MAX_TRIES));
    assert_eq!(modules.finish(None, drop), Omitted { files: 1, ..Omitted::default() });
}

/// Check that a file that is overwritten in place is read again when it is mapped again, also after it was copied to the
/// recording.
#[test]
fn overwritten_files_are_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (path, elsewhere) = (dir.path().join("program"), dir.path().join("elsewhere"));
    let contents = ["/bin/true", "/bin/sleep", "/bin/cat"].map(|program| std::fs::read(program).unwrap());
    let [first, others @ ..] = &contents;
    std::fs::write(&path, first).unwrap();
    let mapping = code(std::process::id(), path.to_str().unwrap().as_bytes(), identity(&path));
    let note = |modules: &mut Modules| {
        let mut mmap = mapping.clone();
        modules.note(&mut mmap, &Tracker::new(true));
        mmap.identity.build_id.unwrap()
    };
    let mut modules = modules(8);
    let mut build_ids = vec![note(&mut modules)];
    let room = modules.shares.files.left(own_uid());
    for other in others {
        std::fs::rename(&path, &elsewhere).unwrap();
        while modules.ready().is_empty() {
            modules.look();
            std::thread::sleep(Duration::from_millis(1));
        }
        std::fs::rename(&elsewhere, &path).unwrap();
        std::fs::write(&path, other).unwrap();
        std::thread::sleep(CHECK_EVERY);
        build_ids.push(note(&mut modules));
        assert_eq!(note(&mut modules), build_ids[build_ids.len() - 1]);
        assert_eq!(modules.shares.files.left(own_uid()), room);
    }
    let of_files = contents.map(|bytes| {
        std::fs::write(&elsewhere, bytes).unwrap();
        crate::proc::read_build_id(&File::open(&elsewhere).unwrap()).unwrap()
    });
    assert_eq!(build_ids, of_files);
}

/// Check that deleted files, however many, take no room from later ones, and are forgotten.
#[test]
fn deleted_files_make_room() {
    let mut modules = modules(8);
    let mut packed = 0;
    // All exist at the same time, so that they are distinct.
    let files: Vec<_> = (0..20).map(|_| tempfile::NamedTempFile::new().unwrap()).collect();
    for file in &files {
        modules.note(&mut code_of(file), &Tracker::new(true));
        assert_eq!(modules.shares.open.left(own_uid()), 1);
        std::fs::remove_file(file.path()).unwrap();
        while modules.shares.open.left(own_uid()) == 1 {
            modules.look();
            packed += modules.ready().len();
            modules.give_back_done();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    modules.finish(None, |_| packed += 1);
    assert_eq!((packed, modules.n_over.files_over), (20, 0));
    assert_eq!((modules.files.len(), modules.deleted.len()), (20, 20));
    modules.forget_deleted(Instant::now());
    assert_eq!(modules.files.len(), 20, "may be mapped again");
    modules.forget_deleted(Instant::now() + DELETED_FILES_KEPT);
    assert!(modules.files.is_empty() && modules.deleted.is_empty());
    assert_eq!(modules.shares.files.left(own_uid()), MAX_FILES / 2);
}

/// Check that a file that is not at its path is saved once, and again if its bytes were dropped before it is mapped again.
#[test]
fn dropped_files_are_saved_again() {
    let control = Arc::new(PartsControl::default());
    let request = Request { parts_control: Some(Arc::clone(&control)), ..Request::new(Target::System) };
    let mut modules = Modules::new(8, &request).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (path, elsewhere) = (dir.path().join("program"), dir.path().join("moved"));
    std::fs::copy("/bin/true", &path).unwrap();
    let mapping = code(std::process::id(), path.to_str().unwrap().as_bytes(), identity(&path));
    let room = modules.shares.files.left(own_uid());
    let map = |modules: &mut Modules| {
        let mut mmap = mapping.clone();
        modules.forget_unused();
        modules.note(&mut mmap, &Tracker::new(true));
        assert!(mmap.identity.build_id.is_some());
        mmap.identity
    };
    for _ in 0..2 {
        let file = map(&mut modules);
        std::fs::rename(&path, &elsewhere).unwrap();
        while modules.ready().is_empty() {
            modules.look();
            std::thread::sleep(Duration::from_millis(1));
        }
        std::fs::rename(&elsewhere, &path).unwrap();
        map(&mut modules);
        assert_eq!((modules.files.len(), modules.shares.files.left(own_uid())), (1, room - 1));
        control.forget(vec![UnusedFile { identity: file, as_of_ns: u64::MAX }; 2]);
    }
    modules.forget_unused();
    assert_eq!((modules.files.len(), modules.shares.files.left(own_uid())), (0, room));
    assert_eq!(modules.finish(None, |_| panic!("saved a third time")), Omitted::default());
}

/// Check that a file that no process has mapped any more is closed and forgotten, unless it was mapped after that was known;
/// and that it is known again when it is mapped again.
#[test]
fn unused_files_are_forgotten() {
    let control = Arc::new(PartsControl::default());
    let request = Request { parts_control: Some(Arc::clone(&control)), ..Request::new(Target::System) };
    let mut modules = Modules::new(8, &request).unwrap();
    let (file, room) = (tempfile::NamedTempFile::new().unwrap(), modules.shares.open.left(own_uid()));
    std::fs::copy("/bin/true", file.path()).unwrap();
    let mut known = |map_at: Option<u64>, as_of_ns| {
        let mut mmap = Mmap { time_ns: map_at.unwrap_or(0), ..code_of(&file) };
        map_at.iter().for_each(|_| modules.note(&mut mmap, &Tracker::new(true)));
        control.forget(vec![UnusedFile { identity: mmap.identity, as_of_ns }]);
        modules.forget_unused();
        let n = modules.files.len();
        // The saver closes it, and reports that.
        while n == 0 && modules.shares.open.left(own_uid()) < room {
            modules.look();
            std::thread::sleep(Duration::from_millis(1));
        }
        (n, modules.shares.open.left(own_uid()) == room)
    };
    assert_eq!(known(Some(5), 4), (1, false));
    assert_eq!(known(Some(7), 6), (1, false));
    assert_eq!(known(None, 7), (0, true));
    assert_eq!(known(Some(9), 8), (1, false));
    assert_eq!(known(None, 9), (0, true));
}

/// Check that of many files the deleted one is saved after some looks, and all deleted ones at the end.
#[test]
fn many_files_are_checked_in_turn() {
    let files: Vec<_> = (0..100).map(|_| tempfile::NamedTempFile::new().unwrap()).collect();
    let mut modules = modules(4096);
    files.iter().for_each(|file| modules.note(&mut code_of(file), &Tracker::new(true)));
    let is_saved = |modules: &mut Modules| {
        modules.look();
        std::thread::yield_now();
        !modules.ready().is_empty()
    };
    assert!((0..100).all(|_| !is_saved(&mut modules)));
    std::fs::remove_file(files[50].path()).unwrap();
    while !is_saved(&mut modules) {}
    std::fs::remove_file(files[99].path()).unwrap();
    let mut saved = 0;
    assert_eq!(modules.finish(None, |_| saved += 1), Omitted::default());
    assert_eq!(saved, 1);
}

/// Check that for one user, tables of half the maximum number of processes are looked for, that others are counted, and
/// that there is room again when processes have ended.
#[test]
fn tables_that_are_too_many_are_counted() {
    let mut modules = modules(8 * MAX_TABLES);
    // Larger than any process number, so these have ended, and count for one user.
    let first = 1 << 23;
    let n = u32::try_from(MAX_TABLES).unwrap();
    let note = |modules: &mut Modules, pid| {
        modules.note(&mut code(pid, b"//anon", FileIdentity::default()), &Tracker::new(true))
    };
    (first..first + n).for_each(|pid| note(&mut modules, pid));
    assert_eq!(modules.n_over.tables_over, MAX_TABLES / 2);
    while modules.tables.values().flatten().count() > 1 {
        modules.look();
        note(&mut modules, first + n);
        std::thread::sleep(Duration::from_millis(1));
    }
    let before = modules.n_over.tables_over;
    note(&mut modules, first + n + 1);
    assert_eq!(modules.n_over.tables_over, before);
    assert_eq!(modules.finish(None, drop).tables_over, before);
}

/// Check that files that are deleted together are passed on together, and that after the limit those left are counted.
#[test]
fn many_deleted_files_are_passed_on_together() {
    let deleted = || {
        let files: Vec<_> = (0..300).map(|_| tempfile::NamedTempFile::new().unwrap()).collect();
        let mut modules = modules(4096);
        files.iter().for_each(|file| modules.note(&mut code_of(file), &Tracker::new(true)));
        let marker = ModuleBytes { path: Vec::new(), identity: FileIdentity::default(), bytes: Vec::new() };
        modules.saver.send(Job::Bytes(marker));
        while modules.ready().is_empty() {
            std::thread::yield_now();
        }
        modules
    };
    let mut copied = deleted();
    let batch = loop {
        copied.look();
        std::thread::yield_now();
        let batch = copied.ready().len();
        if batch > 0 {
            break batch;
        }
    };
    assert_eq!((batch, copied.finish(None, drop)), (300, Omitted::default()));
    let files = 300;
    assert_eq!(deleted().finish(Some(Duration::ZERO), drop), Omitted { files, ..Omitted::default() });
}

/// Check that files beyond the limit of bytes are lost, and that none are once users may have as many bytes again.
#[test]
fn limits_of_bytes_are_renewed() {
    let lost = |renewed_after| {
        let parser: Arc<dyn FileParser> = Arc::new(ParseHere);
        let mut modules = modules(4096);
        modules.saver = FileSaver::start(parser, renewed_after).unwrap();
        for _ in 0..8 {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::copy("/bin/true", file.path()).unwrap();
            file.as_file().set_len(40 << 20).unwrap();
            modules.note(&mut code_of(&file), &Tracker::new(true));
            drop(file);
            // The next file may have the same inode.
            modules.files.clear();
            // A look that takes too long finds nothing.
            while !modules.saver.done().any(|done| matches!(done, Done::File { .. })) {
                modules.look();
                modules.ready();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        modules.finish(None, drop).files
    };
    assert!(lost(None) > 0);
    assert_eq!(lost(Some(Duration::ZERO)), 0);
}
