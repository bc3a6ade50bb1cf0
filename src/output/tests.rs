use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::process::Command;

/// Check that the time in the name of a recording stays, and that only its usual extension is replaced.
#[test]
fn what_is_made_of_recordings_has_their_names() {
    let svg = |name: &str| beside(Path::new(name), "svg").display().to_string();
    assert_eq!(svg("/tmp/a.fpprof"), "/tmp/a.svg");
    assert_eq!(svg("all.20261125T103000Z"), "all.20261125T103000Z.svg");
    assert_eq!(svg("v1.2.fpprof"), "v1.2.svg");
}

const NOBODY: u32 = 65_534;

/// Creates a directory like `/tmp`: everyone may create files in it.
fn shared() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    dir
}

fn write_report(path: &Path) -> anyhow::Result<()> {
    write_whole(path, |out| out.write_all(b"words"))
}

/// Check that another user's pipe, or link to a device, in a shared directory is not written to, by recordings or
/// reports, while one's own is.
#[test]
fn what_others_planted_is_refused() {
    let dir = shared();
    let (pipe, link) = (dir.path().join("pipe"), dir.path().join("link"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    symlink("/dev/null", &link).unwrap();
    let _reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    for path in [&pipe, &link] {
        assert!(write_report(path).is_ok() && RecordingFile::new(path).write(b"x").is_ok(), "one's own");
        lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        let refused =
            [write_report(path).unwrap_err().to_string(), format!("{:?}", RecordingFile::new(path).write(b"x"))];
        assert!(refused.iter().all(|words| words.contains("another user")), "{refused:?}");
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(write_report(&pipe).is_ok(), "nobody else could have put it there");
    chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    assert!(write_report(&pipe).is_err(), "a directory of another user");
}

/// Check that a link to a file is replaced as the output, and its target is unchanged.
#[test]
fn links_to_files_are_not_followed() {
    let dir = shared();
    let (link, file) = (dir.path().join("link"), dir.path().join("file"));
    for write in [write_report, |path: &Path| Ok(RecordingFile::new(path).write_all(b"x")?)] {
        fs::write(&file, "of value").unwrap();
        symlink(&file, &link).unwrap();
        write(&link).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "of value");
        assert!(link.symlink_metadata().unwrap().is_file());
        fs::remove_file(&link).unwrap();
    }
}

/// Check that an output stays in the directory that was checked, whatever replaces that directory meanwhile: a report,
/// a recording that is moved aside for another, and one that is removed.
#[test]
fn directories_are_held() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let swap = || {
        fs::rename(at("named"), at("moved")).unwrap();
        symlink(at("elsewhere"), at("named")).unwrap();
    };
    let back = || {
        fs::remove_file(at("named")).unwrap();
        fs::rename(at("moved"), at("named")).unwrap();
    };
    fs::create_dir(at("named")).unwrap();
    fs::create_dir(at("elsewhere")).unwrap();
    let (path, elsewhere) = (at("named/output"), at("elsewhere/output"));
    fs::write(&elsewhere, "of value").unwrap();
    let (mut file, pending) = Pending::create(&path, Older::Replaced).unwrap();
    file.write_all(b"words").unwrap();
    swap();
    pending.commit().unwrap();
    back();
    assert_eq!(fs::read_to_string(&path).unwrap(), "words");
    let mut recording = RecordingFile::new(&path);
    recording.write_all(b"x").unwrap();
    swap();
    recording.undo().undo();
    back();
    assert_eq!(fs::read_to_string(&path).unwrap(), "words", "the older one is back");
    let (_, pending) = Pending::create(&path, Older::Replaced).unwrap();
    swap();
    drop(pending);
    back();
    assert_eq!(fs::read_dir(at("named")).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "of value");
    assert_eq!(fs::read_dir(at("elsewhere")).unwrap().count(), 1);
}

/// Check that a directory that is a link of another user is refused, but one's own link is not.
#[test]
fn links_of_others_to_directories_are_refused() {
    let dir = shared();
    let (link, real) = (dir.path().join("link"), dir.path().join("real"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    write_report(&link.join("report")).unwrap();
    lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
    let refused = [
        write_report(&link.join("other")).unwrap_err().to_string(),
        format!("{:?}", RecordingFile::new(&link.join("other")).write(b"x")),
    ];
    assert!(refused.iter().all(|words| words.contains("is a link of another user")), "{refused:?}");
    assert_eq!(fs::read_dir(&real).unwrap().count(), 1);
    for name in ["", "/", "real/"] {
        assert!(write_report(&dir.path().join(name)).is_err(), "{name} is not a file name");
    }
}

/// Check that files written step by step are private too, and that links are not followed.
#[test]
fn what_is_written_in_steps_is_private() {
    let dir = shared();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("of value"), "of value").unwrap();
    symlink(at("of value"), at("link")).unwrap();
    private_directory(&at("made/below"), true).unwrap();
    assert!(private_directory(&at("made"), false).is_err(), "it is there");
    for make in [private_file, private_log] {
        assert!(make(&at("link")).is_err());
        make(&at("made/file")).unwrap().write_all(b"x").unwrap();
        assert_eq!(at("made/file").metadata().unwrap().mode() & 0o777, 0o600);
    }
    assert_eq!(fs::read_to_string(at("made/file")).unwrap(), "xx", "a log goes on");
    assert_eq!(fs::read_to_string(at("of value")).unwrap(), "of value");
    for name in ["made", "made/below"] {
        assert_eq!(at(name).metadata().unwrap().mode() & 0o777, 0o700);
    }
}

/// Check that other users cannot read a recording or its reports.
#[test]
fn outputs_are_private() {
    let dir = shared();
    let (report, recording) = (dir.path().join("report"), dir.path().join("recording"));
    write_report(&report).unwrap();
    RecordingFile::new(&recording).write_all(b"x").unwrap();
    for path in [report, recording] {
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    }
}

/// Check that a recording that is written as a whole moves an older one aside at its end, and changes nothing if it does not come
/// to it.
#[test]
fn whole_recordings_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let (path, old) = (dir.path().join("recording"), dir.path().join("recording.old"));
    fs::write(&path, "of value").unwrap();
    let (mut file, whole) = Whole::create(&path, Older::SetAside).unwrap();
    file.write_all(b"half").unwrap();
    drop(whole);
    assert_eq!((fs::read_to_string(&path).unwrap(), fs::read_dir(dir.path()).unwrap().count()), ("of value".into(), 1));
    let (mut file, whole) = Whole::create(&path, Older::SetAside).unwrap();
    file.write_all(b"whole").unwrap();
    whole.commit().unwrap();
    assert_eq!(
        (fs::read_to_string(&path).unwrap(), fs::read_to_string(&old).unwrap()),
        ("whole".into(), "of value".into())
    );
    let refused = Whole::create(&path, Older::SetAside).unwrap_err().to_string();
    assert!(refused.contains("recording.old is not a recording and would be overwritten"), "{refused}");
}

/// Check that a file that is no recording is moved aside once and then not replaced, and that removing a recording does
/// not affect what an earlier one moved aside.
#[test]
fn what_was_kept_aside_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (path, old) = (dir.path().join("notes"), dir.path().join("notes.old"));
    fs::write(&path, "of value").unwrap();
    RecordingFile::new(&path).write_all(b"x").unwrap();
    assert_eq!(fs::read_to_string(&old).unwrap(), "of value");
    let refused = format!("{:?}", RecordingFile::new(&path).write_all(b"y"));
    assert!(refused.contains("notes.old is not a recording and would be overwritten"), "{refused}");
    assert_eq!(
        (fs::read_to_string(&old).unwrap(), fs::read_to_string(&path).unwrap()),
        ("of value".into(), "x".into())
    );
    fs::remove_file(&path).unwrap();
    let mut recording = RecordingFile::new(&path);
    recording.write_all(b"z").unwrap();
    recording.undo().undo();
    assert!(old.exists() && !path.exists(), "it was there before");
}

/// Check that names cannot control the terminal, nor begin a line of their own.
#[test]
fn words_are_escaped() {
    assert_eq!(
        lines("no such file: \u{1b}[2Ja\rb\nfpprof: done", "\n  "),
        "no such file: \\u{1b}[2Ja\\rb\n  fpprof: done"
    );
}
