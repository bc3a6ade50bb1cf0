//! What parses strangers' files has no privileges.

use super::support::{fpprof, record, wait_until};
use std::collections::BTreeMap;
use std::process::Stdio;

/// The fields of a process's `status`.
pub(crate) fn status(pid: u32) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect()
}

/// Processes that the main thread of a process started.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Check that a process of this status can do nothing but compute and write to what is open.
pub(crate) fn assert_confined(status: &BTreeMap<String, String>) {
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(u64::from_str_radix(&status[set], 16), Ok(0), "{status:?}");
    }
    let fields = ["NoNewPrivs", "Seccomp", "Name"].map(|field| status[field].as_str());
    assert_eq!(fields, ["1", "2", "fpprof-worker"]);
}

/// Check that the process that reads has no capabilities, cannot gain any, and can call few system calls.
#[test]
fn files_are_parsed_without_privileges() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut import = fpprof();
    import.args(["import", "-", "-o"]).arg(dir.path().join("recording")).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut import = import.spawn().unwrap();
    assert_eq!(status(std::process::id())["Uid"].split('\t').next(), Some("0"), "this test needs root");
    let mut worker = BTreeMap::new();
    wait_until("a worker is confined", || {
        worker = children(import.id()).first().map(|&pid| status(pid)).unwrap_or_default();
        worker.get("Seccomp").is_some_and(|mode| mode == "2")
    });
    assert_confined(&worker);
    let pid = children(import.id())[0];
    import.kill().unwrap();
    import.wait().unwrap();
    wait_until("the worker ends with the first process", || status(pid).is_empty());
}

/// Check that root's report has the names of a program that only its owner may read, and is one's own only.
#[test]
fn files_of_other_users_are_found() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let source = "volatile long n; __attribute__((noinline)) void in_the_home(void) { while (n++ < 1L << 28) ; }
                  int main(void) { in_the_home(); }";
    let file = home.join("program.c");
    std::fs::write(&file, source).unwrap();
    let program = home.join("program");
    let compiled = std::process::Command::new("gcc").args(["-O1", "-o"]).arg(&program).arg(&file).status().unwrap();
    assert!(compiled.success());
    let recording = dir.path().join("recording");
    record(&recording, &["-q"], &[program.to_str().unwrap()]);
    for path in [&program, &home] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    }
    let picture = home.join("picture.svg");
    let drawn = fpprof().args(["flamegraph", "-o"]).args([&picture, &recording]).status().unwrap();
    assert!(drawn.success());
    assert!(std::fs::read_to_string(&picture).unwrap().contains("in_the_home"));
}
