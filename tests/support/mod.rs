//! What several integration tests need: the program under test and what came out of it.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

pub(crate) mod stacks;

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

/// The program under test.
pub(crate) fn fpprof() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fpprof"))
}

/// The source of a program for these tests.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Makes `output` of `source`. The compiler must be there, and succeed.
pub(crate) fn compile(compiler: &str, flags: &[&str], output: &Path, source: &Path) {
    let made = Command::new(compiler).args(flags).arg("-o").arg(output).arg(source).output();
    let made = made.unwrap_or_else(|error| panic!("{compiler} is needed: {error}"));
    assert!(made.status.success(), "{compiler}: {}", String::from_utf8_lossy(&made.stderr));
}

/// What a run printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A process that is ended with the test, however that goes.
pub(crate) struct Ended(pub(crate) Child);

impl Deref for Ended {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Ended {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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

/// Records `command` with `options` into `file` and expects that to work.
pub(crate) fn record(file: &Path, options: &[&str], command: &[&str]) -> Ran {
    let ran = ran(fpprof().arg("record").args(options).arg("-o").arg(file).arg("--").args(command));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    ran
}

/// `report --json` of a recording.
pub(crate) fn report(file: &Path, options: &[&str]) -> serde_json::Value {
    let ran = ran(fpprof().arg("report").arg(file).arg("--json").args(options));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout))
}

/// The number at `key`.
pub(crate) fn number(value: &serde_json::Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} is no number in {value}"))
}

/// Checks that every tick of a report is accounted for.
pub(crate) fn assert_balance(report: &serde_json::Value) {
    let lost: u64 = report["lost"].as_object().expect("lost").values().filter_map(serde_json::Value::as_u64).sum();
    let known = number(report, "recorded") + lost + number(report, "skipped") + number(report, "dropped");
    assert_eq!(number(report, "fired"), known, "{report}");
}
