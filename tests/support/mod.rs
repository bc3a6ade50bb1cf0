//! Helpers shared by the integration tests: run the program under test and inspect its output.
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part of it")]

pub(crate) mod crash;
mod ended;
pub(crate) mod serving;
pub(crate) mod stacks;
#[path = "../../reports/tests/support/stored.rs"]
pub(crate) mod stored;

pub(crate) use ended::Ended;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The program under test.
pub(crate) fn fpprof() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fpprof"))
}

/// A command that computes until it is killed, or for 200 s: a single process, so that none is left behind after a
/// kill.
pub(crate) const ENDLESS: [&str; 3] = ["perl", "-e", "alarm 200; while (1) {}"];

/// The path of a test program's source.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Copies a program that is then run. A separate process copies it: a child started by another thread meanwhile would
/// inherit the file open for writing, and such a file cannot be executed.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().expect("cp starts").success());
}

/// Compiles `source` to `output`. The compiler must exist and succeed.
pub(crate) fn compile(compiler: &str, flags: &[&str], output: &Path, source: &Path) {
    let made = Command::new(compiler).args(flags).arg("-o").arg(output).arg(source).output();
    let made = made.unwrap_or_else(|error| panic!("{compiler} is needed: {error}"));
    assert!(made.status.success(), "{compiler}: {}", String::from_utf8_lossy(&made.stderr));
}

/// The output and exit status of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `command` to its end.
pub(crate) fn ran(command: &mut Command) -> Ran {
    let Output { status, stdout, stderr } = command.output().expect("the program under test starts");
    Ran {
        status: status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// Runs `fpprof` with `args` to its end.
pub(crate) fn run<const N: usize>(args: [&str; N]) -> Ran {
    ran(fpprof().args(args))
}

/// Records `command` with `options` into `file`, which must succeed.
pub(crate) fn record(file: &Path, options: &[&str], command: &[&str]) -> Ran {
    let ran = ran(fpprof().arg("record").args(options).arg("-o").arg(file).arg("--").args(command));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    ran
}

/// Records a command that does not end, for some seconds; the recorder must end it then.
pub(crate) fn record_endless(file: &Path, seconds: u32, options: &[&str], command: &[&str]) {
    let mut recorder = fpprof();
    recorder.args(["record", "-q", "--duration", &seconds.to_string()]).args(options);
    let ran = ran(recorder.arg("-o").arg(file).arg("--").args(command));
    assert_eq!(ran.status, 128 + 15, "{}", ran.stderr);
}

/// `report --json` of a recording.
pub(crate) fn report(file: &Path, options: &[&str]) -> serde_json::Value {
    let ran = ran(fpprof().arg("report").arg(file).arg("--json").args(options));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout))
}

/// Runs `attempt` with 1, 2, 4 … seconds until it returns a result: how many samples a second gives depends on the
/// machine's load.
pub(crate) fn until_enough<T>(what: &str, mut attempt: impl FnMut(u32) -> Option<T>) -> T {
    let found = [1, 2, 4, 8, 16, 32, 64].into_iter().find_map(&mut attempt);
    found.unwrap_or_else(|| panic!("{what}: not enough of it in a minute"))
}

/// Waits until a condition holds, however busy the machine is.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}: not so in two minutes");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a running recorder has written samples to its file.
pub(crate) fn wait_for_samples(file: &Path) {
    let is_begun = || std::fs::metadata(file).is_ok_and(|meta| meta.len() > 4096);
    wait_until("samples are written", || is_begun() && number(&report(file, &[]), "recorded") > 0);
}

/// CPU time of a process, in steps of a hundredth of a second: fields 14 and 15 of its `stat`.
pub(crate) fn cpu_time(pid: &str) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let fields = stat.rsplit_once(") ").expect("a name").1.split(' ').skip(11).take(2);
    Duration::from_millis(fields.map(|ticks| ticks.parse::<u64>().expect("ticks") * 10).sum())
}

/// The integer at `key`.
pub(crate) fn number(value: &serde_json::Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} is no number in {value}"))
}

/// Checks that every tick of a report is accounted for.
pub(crate) fn assert_balance(report: &serde_json::Value) {
    let lost: u64 = report["lost"].as_object().expect("lost").values().filter_map(serde_json::Value::as_u64).sum();
    let known = number(report, "recorded") + lost + number(report, "skipped") + number(report, "dropped");
    assert_eq!(number(report, "fired"), known, "{report}");
}

/// Ids of the BPF programs (`prog_id:`) or maps (`map_id:`) that a process has open.
pub(crate) fn bpf_ids(key: &str, pid: u32) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("descriptors");
    let texts = entries.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    texts.filter_map(|text| Some(text.lines().find_map(|line| line.strip_prefix(key))?.trim().to_owned())).collect()
}
