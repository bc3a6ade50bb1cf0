//! Programs that crash, and their cores.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::{compile, fpprof, ran, source};
use serde_json::Value;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const SIGSEGV: i32 = 11;

/// The functions of `crash.c` for each of its arguments, and how the stack ends.
pub(crate) const CHAINS: [(&str, &[&str], &str); 4] = [
    ("qsort", &["leaf", "deep", "deep", "deep", "deep", "compare", "outer", "main"], "_start"),
    ("signal", &["leaf", "deep", "deep", "deep", "deep", "on_signal", "outer", "main"], "_start"),
    ("thread", &["leaf", "deep", "deep", "deep", "deep", "thread_main"], "thread_start"),
    ("context", &["leaf", "deep", "deep", "deep", "deep", "coroutine"], "__start_context"),
];

/// A program and how to run it.
pub(crate) struct Crash {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) program: PathBuf,
    /// The emulator's command, before the program's.
    emulator: &'static [&'static str],
}

impl Crash {
    pub(crate) fn new(compiler: &str, flags: &[&str], emulator: &'static [&'static str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("crash");
        let usual: &[&str] = &["-O2", "-fomit-frame-pointer", "-Wall", "-Werror", "-pthread"];
        compile(compiler, &[usual, flags].concat(), &program, &source("crash.c"));
        Self { dir, program, emulator }
    }

    /// Runs the program until it crashes, and returns its core.
    pub(crate) fn core(&self, argument: &str) -> PathBuf {
        let folder = self.dir.path().join(argument);
        std::fs::create_dir(&folder).unwrap();
        let mut run = Command::new("sh");
        run.args(["-c", "ulimit -c unlimited && exec \"$@\"", "sh"]).args(self.emulator).arg(&self.program);
        let output = run.arg(argument).current_dir(&folder).output().unwrap();
        assert_eq!(output.status.signal(), Some(SIGSEGV), "{output:?}");
        // An emulator dies of the same signal, and leaves its own core next to the program's.
        let is_wanted = |name: &str| name.ends_with(".core") || self.emulator.is_empty() && name.starts_with("core");
        let mut files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let core = files.find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_wanted));
        core.unwrap_or_else(|| panic!("no core in {}", folder.display()))
    }

    /// The output of `fpprof unwind` for a core.
    pub(crate) fn unwind(&self, core: &Path, options: &[&str]) -> Value {
        let mut command = fpprof();
        command.args(["unwind", "--json", "--core"]).arg(core).arg("--exe").arg(&self.program).args(options);
        let ran = ran(&mut command);
        assert_eq!(ran.status, 0, "{}\n{}", ran.stderr, ran.stdout);
        serde_json::from_str(&ran.stdout).unwrap()
    }

    /// The addresses of the crashed thread's frames, according to gdb.
    pub(crate) fn gdb(&self, core: &Path, gdb: &str, root: Option<&str>) -> Vec<u64> {
        let script = self.dir.path().join("frames.gdb");
        let frames = "python
frame = gdb.newest_frame()
while frame:
    if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
        print('FRAME', frame.pc())
    frame = frame.older()
end
";
        std::fs::write(&script, frames).unwrap();
        let mut command = Command::new(gdb);
        command.args(["-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set backtrace past-main on"]);
        if let Some(root) = root {
            command.args(["-ex", &format!("set sysroot {root}")]);
        }
        command.args(["-ex", &format!("core-file {}", core.display()), "-x"]).arg(&script).arg(&self.program);
        let output = command.output().unwrap_or_else(|error| panic!("{gdb}: {error}"));
        let text = String::from_utf8_lossy(&output.stdout);
        let frames = text.lines().filter_map(|line| line.strip_prefix("FRAME ")?.parse().ok());
        let frames: Vec<u64> = frames.collect();
        assert!(!frames.is_empty(), "{gdb}: {output:?}");
        frames
    }
}

/// The thread that crashed.
pub(crate) fn died(unwound: &Value) -> &Value {
    let threads = unwound["threads"].as_array().unwrap();
    threads.iter().find(|thread| thread["signal"] == SIGSEGV).unwrap_or_else(|| panic!("{unwound:#}"))
}

pub(crate) fn frames(thread: &Value) -> &[Value] {
    thread["frames"].as_array().unwrap()
}

pub(crate) fn addresses(thread: &Value) -> Vec<u64> {
    frames(thread).iter().map(|frame| frame["address"].as_u64().unwrap()).collect()
}

/// Checks that a thread has a chain's functions in this order, and otherwise only functions of libraries.
pub(crate) fn assert_chain(thread: &Value, functions: &[&str], root: &str, context: &str) {
    let all = ["leaf", "deep", "compare", "on_signal", "outer", "thread_main", "coroutine", "main"];
    let names = frames(thread).iter().filter_map(|frame| frame["symbol"].as_str());
    let ours: Vec<&str> = names.filter(|name| all.contains(name)).collect();
    assert_eq!(ours, functions, "{context}: {thread:#}");
    assert_eq!((&thread["status"], &thread["reason"]), (&"complete".into(), &root.into()), "{context}: {thread:#}");
    for frame in frames(thread).iter().skip(1) {
        assert_eq!(frame["found"], "cfi", "{context}: {thread:#}");
    }
}
