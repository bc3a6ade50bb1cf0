//! Runs benchmarks in a separate process, which outlives this one for as long as it takes to end them.
//!
//! ```text
//! flags run ──▶ supervisor ──▶ benchmark ──▶ its descendants
//!     │ pipe       └ adopts orphaned descendants
//!     └ closed when `flags run` ends for any reason: the supervisor ends all descendants and exits
//! ```

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The internal subcommand of the supervisor, not meant for users.
pub(crate) const SUBCOMMAND: &str = "supervise";

/// A command to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) dir: PathBuf,
    /// The whole environment; `None` inherits this process's.
    pub(super) env: Option<Vec<(OsString, OsString)>>,
    /// The file for the output; `None` discards it.
    pub(super) output: Option<PathBuf>,
    /// The time limit in milliseconds.
    pub(super) limit_ms: u64,
}

/// The result of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Ended {
    /// `None` if it succeeded; else how it failed, or why it did not start.
    pub(super) fault: Option<String>,
    /// CPU time of the process and of all children it waited for, in microseconds.
    pub(super) cpu_us: i64,
    /// Number of processes it left behind that did not end by themselves, and were ended.
    pub(super) n_left: u64,
}

/// The process that runs benchmarks.
#[derive(Debug)]
pub(super) struct Supervisor {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    limit: Duration,
}

impl Supervisor {
    /// Starts the supervisor. Runs may take `limit` each.
    pub(super) fn start(limit: Duration) -> anyhow::Result<Self> {
        // `/proc/self/exe` works even if the file was replaced. In a group of its own, since it must not receive the
        // terminal's signals.
        let mut command = Command::new("/proc/self/exe");
        command.args(["flags", SUBCOMMAND]).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting the process that runs benchmarks")?;
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().context("opening a pipe")?);
        Ok(Self { child, to, from, limit })
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// If it failed, or exceeded the time limit.
    pub(super) fn run(&mut self, run: &Run) -> anyhow::Result<Ended> {
        let run = Run { limit_ms: u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX), ..run.clone() };
        let mut line = serde_json::to_vec(&run).context("the command is not UTF-8")?;
        line.push(b'\n');
        let to = self.to.as_mut().context("opening a pipe")?;
        to.write_all(&line).context("requesting a benchmark")?;
        let mut answer = String::new();
        self.from.read_line(&mut answer).context("waiting for a benchmark")?;
        anyhow::ensure!(!answer.is_empty(), "the process that runs benchmarks was ended");
        let ended: Ended = serde_json::from_str(&answer).context("parsing the result of a benchmark")?;
        match ended.fault {
            Some(fault) => anyhow::bail!(fault),
            None => Ok(ended),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // The supervisor ends when its pipe is closed.
        self.to = None;
        let _ = self.child.wait();
    }
}
