//! Changes to the machine during a test.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A change that is undone when this is dropped, and also when the test is killed: a shell waits for the end of a pipe
/// that the test holds. Only one test at a time has one.
pub(crate) struct Changed {
    undo: Child,
    _one: MutexGuard<'static, ()>,
}

impl Changed {
    /// A change that the caller makes next, and `script` undoes.
    pub(crate) fn undone_by(script: &str, arguments: &[&str]) -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut undo = Command::new("sh");
        undo.args(["-c", &format!("cat > /dev/null\n{script}"), "sh"]).args(arguments);
        // In another process group, so that Ctrl-C in the terminal does not end it.
        let undo = undo.stdin(Stdio::piped()).process_group(0).spawn().expect("a shell starts");
        Self { undo, _one: one }
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        drop(self.undo.stdin.take());
        let undone = self.undo.wait();
        assert!(
            undone.is_ok_and(|status| status.success()) || std::thread::panicking(),
            "the machine is not as it was"
        );
    }
}

/// Check that a change is undone when its test ends, and when the test is killed.
#[test]
fn changes_are_undone() {
    const FILE: &str = "FPPROF_TEST_UNDONE";
    let change = |file: &str| Changed::undone_by("touch \"$1\"", &[file]);
    if let Ok(file) = std::env::var(FILE) {
        let _change = change(&file);
        let own = std::process::id().to_string();
        Command::new("kill").args(["-KILL", &own]).status().expect("it does not come back");
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory for the test");
    let [ended, killed] = ["ended", "killed"].map(|name| directory.path().join(name));
    let changed = change(ended.to_str().expect("a path"));
    assert!(!ended.exists());
    drop(changed);
    assert!(ended.exists());
    let mut again = Command::new(std::env::current_exe().expect("this program"));
    let status = again.args(["--exact", "changed::changes_are_undone"]).env(FILE, &killed).status().expect("it starts");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    let began = std::time::Instant::now();
    while !killed.exists() {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "it is not undone");
        std::thread::yield_now();
    }
}
