//! Processes that parse other users' files have no privileges.

use super::kept::modules;
use super::support::{assert_balance, compile, copy_program, fpprof, number, record, report, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};

/// The fields of `/proc/PID/status`.
pub(crate) fn status(pid: u32) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect()
}

/// Child processes of a process's main thread.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Checks that a process with this status can only compute and write to open files.
pub(crate) fn assert_confined(status: &BTreeMap<String, String>) {
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(u64::from_str_radix(&status[set], 16), Ok(0), "{status:?}");
    }
    let fields = ["NoNewPrivs", "Seccomp", "Name"].map(|field| status[field].as_str());
    assert_eq!(fields, ["1", "2", "fpprof-worker"]);
}

/// Check that the process that reads has no capabilities, cannot gain any, and may use only few system calls.
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

/// Check that the time and memory of parsers are limited, and that exceeding a limit is reported.
#[test]
fn what_parses_is_limited() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (signal, words) in
        [(Signal::SIGXCPU, "24 hours of CPU time"), (Signal::SIGABRT, "more memory than it may have")]
    {
        let mut import = fpprof();
        import.args(["import", "-", "-o"]).arg(dir.path().join("recording"));
        let import = import.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let is_confined =
            || children(import.id()).iter().any(|&pid| status(pid).get("Seccomp").is_some_and(|it| it == "2"));
        wait_until("a worker is confined", is_confined);
        let worker = Pid::from_raw(i32::try_from(children(import.id())[0]).unwrap());
        let limits = std::fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
        let limit = |name: &str| {
            let line = limits.lines().find_map(|line| line.strip_prefix(name)).expect("a limit");
            line.split_ascii_whitespace().next().and_then(|most| most.parse::<u64>().ok())
        };
        assert_eq!(limit("Max cpu time"), Some(24 * 60 * 60), "{limits}");
        assert!(limit("Max address space").is_some() && limit("Max open files").is_some(), "{limits}");
        kill(worker, signal).unwrap();
        let output = import.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains(words) && output.status.code() == Some(128 + signal as i32),
            "{stderr} {:?}",
            output.status
        );
    }
}

/// Records a shell that waits for a line; returns the recorder, and the processes that parse files for it.
fn recording_shell(file: &Path, script: &str) -> (Child, Vec<u32>) {
    let mut record = fpprof();
    record.args(["record", "-o"]).arg(file).args(["--", "sh", "-c", &format!("read line; {script}")]);
    let record = record.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut parsers = Vec::new();
    wait_until("parsers and shell are started", || {
        let children = children(record.id());
        let is_confined = |pid: &u32| status(*pid).get("Seccomp").is_some_and(|mode| mode == "2");
        parsers = children.iter().copied().filter(is_confined).collect();
        parsers.len() == 2 && children.len() == 3
    });
    (record, parsers)
}

/// The capabilities that a recorder keeps: `CAP_DAC_READ_SEARCH`, `CAP_KILL`, `CAP_IPC_LOCK`, `CAP_SYS_PTRACE`,
/// `CAP_SYSLOG`, `CAP_PERFMON`, `CAP_BPF`, `CAP_CHECKPOINT_RESTORE`.
const SAMPLING_CAPABILITIES: u64 = 0x1c4_0008_4024;

/// Check that the recorder has files of profiled programs parsed by processes without privileges, that these have none
/// of its files open, and that they end with it; that it drops what sampling does not need, and that the command keeps
/// its original rights.
#[test]
fn the_recorder_parses_nothing_itself() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (mut record, parsers) = recording_shell(&dir.path().join("recording"), "true");
    let set = |pid: u32, set: &str| u64::from_str_radix(&status(pid)[set], 16).unwrap();
    let ours = set(std::process::id(), "CapPrm");
    wait_until("the recorder has dropped capabilities", || set(record.id(), "CapPrm") != ours);
    for name in ["CapPrm", "CapEff"] {
        assert_eq!(set(record.id(), name), ours & SAMPLING_CAPABILITIES, "{name}");
    }
    assert_eq!(status(record.id())["NoNewPrivs"], "1");
    let command = children(record.id()).into_iter().find(|pid| !parsers.contains(pid)).unwrap();
    assert_eq!((set(command, "CapPrm"), status(command)["NoNewPrivs"].as_str()), (ours, "0"));
    for &pid in &parsers {
        assert_confined(&status(pid));
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let open: Vec<_> = open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect();
        let shown = |what: &str| open.iter().any(|path| path.to_string_lossy().contains(what));
        assert!(!shown("bpf") && !shown("perf_event") && !shown("recording"), "{open:?}");
    }
    record.kill().unwrap();
    record.wait().unwrap();
    wait_until("they end with it", || parsers.iter().all(|&pid| status(pid).is_empty()));
}

/// Check that a parser may die: its current file is left out, with a message, and the next file is parsed by another
/// process.
#[test]
fn a_parser_that_dies_costs_one_file() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("recording");
    let source = "int main(void) { for (volatile long n; ; n++) ; }";
    std::fs::write(dir.path().join("program.c"), source).unwrap();
    let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
    compile("gcc", &["-O1"], &one, &dir.path().join("program.c"));
    copy_program(&one, &other);
    let run = |path: &Path| {
        let path = path.to_str().unwrap();
        // It is deleted while it runs, not before.
        format!("{path} & p=\"$p $!\"; until [ \"$(readlink /proc/$!/exe)\" = {path} ]; do :; done; rm {path}; ")
    };
    let script = format!("{}{}read line; kill $p", run(&one), run(&other));
    let (mut record, parsers) = recording_shell(&file, &script);
    for pid in parsers {
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
    }
    let mut lines = record.stdin.take().unwrap();
    lines.write_all(b"\n").unwrap();
    let begun = || std::fs::metadata(&file).is_ok_and(|metadata| metadata.len() > 0);
    wait_until("the recording is begun", begun);
    let kept = || ["/one", "/other"].map(|name| modules(&file, name).len()).iter().sum::<usize>();
    wait_until("one of two is kept", || kept() == 1);
    lines.write_all(b"\n").unwrap();
    let output = record.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    assert!(words.contains("the process that parses files of the profiled programs crashed"), "{words}");
    assert!(words.contains("1 deleted or replaced file could not be saved"), "{words}");
    let report = report(&file, &["--strategies", "dwarf"]);
    assert_balance(&report);
    assert!(number(&report, "recorded") > 0);
    assert_eq!(kept(), 1, "{words}");
}

/// Check that root's report has the names of a program that only its owner may read, and that the report is private.
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
