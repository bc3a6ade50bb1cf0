//! A recording that is moved to another machine, with all files needed to read it.

use crate::support::{compile, fpprof, ran, record};
use std::process::Command;

/// Check that an archive, unpacked where the program and its debug information are missing, gives the same output as
/// the recording on its own machine: stacks, names, inlined functions and lines.
#[test]
fn an_archive_reads_as_the_recording_did() {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, source) = (dir.path().join("program"), dir.path().join("program.c"));
    let text = "static inline __attribute__((always_inline)) void innermost(volatile long *n) { ++*n; }
        static __attribute__((noinline)) void inner(volatile long *n) { for (int i = 0; i < 1000; i++) innermost(n); }
        int main(void) { volatile long n = 0; while (n < 600000000) inner(&n); return 0; }";
    std::fs::write(&source, text).expect("written");
    compile("gcc", &["-O2", "-g", "-Wl,--build-id"], &program, &source);
    let debug = dir.path().join("program.debug");
    let run = |command: &mut Command| assert!(command.status().expect("it starts").success(), "{command:?}");
    run(Command::new("objcopy").arg("--only-keep-debug").args([&program, &debug]));
    run(Command::new("objcopy")
        .arg("--strip-all")
        .arg(format!("--add-gnu-debuglink={}", debug.display()))
        .arg(&program));
    let file = dir.path().join("run.fpprof");
    record(&file, &["--call-graph", "dwarf"], &[program.to_str().expect("UTF-8")]);
    let folded = |file, symfs: &[&str]| {
        ran(fpprof().arg("export").arg(file).args(["--lines", "--comm", "program"]).args(symfs)).stdout
    };
    let expected = folded(&file, &[]);
    assert!(expected.contains("inner (program.c:2);innermost (program.c:1)_[i]"), "{expected}");

    let archived = ran(fpprof().arg("archive").arg(&file));
    assert_eq!(archived.status, 0, "{}", archived.stderr);
    std::fs::remove_file(&program).and_then(|()| std::fs::remove_file(&debug)).expect("they were there");
    assert_ne!(folded(&file, &[]), expected, "nothing was missing");
    run(Command::new("tar").arg("xf").arg(dir.path().join("run.tar.zst")).arg("-C").arg(dir.path()));
    let unpacked = dir.path().join("run");
    let symfs = unpacked.join("files");
    assert_eq!(folded(&unpacked.join("run.fpprof"), &["--symfs", symfs.to_str().expect("UTF-8")]), expected);
}

/// Check that an archive has the split debug information of a program, but not any other file that the program names as
/// such: the program may be another user's, and the archive root's.
#[test]
fn an_archive_has_no_file_that_debug_information_merely_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, source) = (dir.path().join("program"), dir.path().join("program.c"));
    let text = "int main(void) { for (volatile long n = 0; n < 300000000; n++) {} return 0; }";
    std::fs::write(&source, text).expect("written");
    compile("gcc", &["-O1", "-g", "-gsplit-dwarf", "-Wl,--build-id"], &program, &source);
    let file = dir.path().join("run.fpprof");
    record(&file, &["--call-graph", "dwarf"], &[program.to_str().expect("UTF-8")]);
    let packed = || {
        let archived = ran(fpprof().arg("archive").arg(&file));
        assert_eq!(archived.status, 0, "{}", archived.stderr);
        ran(Command::new("tar").arg("tf").arg(dir.path().join("run.tar.zst"))).stdout
    };
    let is_split = |entry: &str| entry.ends_with(".dwo");
    assert!(packed().lines().any(is_split), "{}", packed());
    let entries = std::fs::read_dir(dir.path()).expect("it is there").map(|entry| entry.expect("an entry").path());
    let split = entries.into_iter().find(|path| is_split(&path.to_string_lossy())).expect("gcc wrote it");
    // A file that ordinary users cannot read may be an ELF file, too.
    std::fs::copy("/bin/true", &split).expect("copied");
    let entries = packed();
    assert!(!entries.lines().any(is_split) && entries.lines().any(|entry| entry.ends_with("/program")), "{entries}");
}
