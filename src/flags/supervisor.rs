//! Runs of benchmarks, by a process of its own that outlives this one by as long as it takes to end them.
//!
//! ```text
//! flags run ──▶ supervisor ──▶ benchmark ──▶ whatever that starts
//!     │ pipe       └ adopts all below it that lose their parent
//!     └ closed by an end of any kind: the supervisor ends all below it, and itself
//! ```

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The subcommand that serves, not meant for people.
pub(crate) const SUBCOMMAND: &str = "supervise";

/// A command to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) dir: PathBuf,
    /// All of the environment; that of this process without.
    pub(super) env: Option<Vec<(OsString, OsString)>>,
    /// Where what it prints goes; nowhere without.
    pub(super) output: Option<PathBuf>,
    /// How long it may take, milliseconds.
    pub(super) limit_ms: u64,
}

/// How a run ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Ended {
    /// `None` if it ended well; else how, or why it did not start.
    pub(super) fault: Option<String>,
    /// CPU time of it and of all that it waited for, microseconds.
    pub(super) cpu_us: i64,
    /// Processes it left behind that did not end by themselves, and were ended.
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
    /// Starts it. Runs may take `limit`.
    pub(super) fn start(limit: Duration) -> anyhow::Result<Self> {
        // By this path even if the file was replaced; in a group of its own, since the terminal's signals are not for it.
        let mut command = Command::new("/proc/self/exe");
        command.args(["flags", SUBCOMMAND]).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting the process that runs benchmarks")?;
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().context("opening a pipe")?);
        Ok(Self { child, to, from, limit })
    }

    /// Has a command run to its end.
    ///
    /// # Errors
    /// If it did not end well, or not in time.
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
        // It ends when its pipe does.
        self.to = None;
        let _ = self.child.wait();
    }
}
