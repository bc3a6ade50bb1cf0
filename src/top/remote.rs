//! Runs the analyst, which parses the profiled programs' files, in a process without privileges.
//!
//! The process requests seconds of the recording and ELF files over the worker's socket, and writes its counts to its
//! standard output, one JSON line per second.

use super::analyst::{Second, ViewUpdate, work};
use crate::live::{Feed, Part};
use crate::worker::{self, Files};
use anyhow::Context as _;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::Sender;

/// Maximum length of a line in bytes: rows of three strategies, with the longest names that are kept.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// The connection to the analyst's process.
#[derive(Debug)]
pub(crate) struct Remote {
    socket: OwnedFd,
    updates: ChildStdout,
}

/// Starts the process, which ends with the calling thread.
///
/// # Errors
/// If no process can be started.
pub(crate) fn start() -> anyhow::Result<(Child, Remote)> {
    let (mut child, socket) = worker::start(["top".into()], |command| {
        // The terminal is in use.
        command.stdout(Stdio::piped()).stderr(Stdio::null());
    })?;
    let updates = child.stdout.take().context("no pipe from the process without privileges")?;
    Ok((child, Remote { socket, updates }))
}

impl Remote {
    /// Passes seconds to the process and its results to `updates`, until the process ends.
    pub(crate) fn work(self, feed: &Feed, updates: &Sender<ViewUpdate>) {
        let Self { socket, updates: lines } = self;
        let failed = |words: String| _ = updates.send(ViewUpdate::Failed(words));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut parts = || {
                    let file = into_file(&feed.next()?);
                    file.inspect_err(|error| failed(format!("cannot send an update: {error}"))).ok()
                };
                if let Err(error) = worker::serve(&socket, &Files::default(), &mut parts) {
                    failed(format!("cannot answer the process that parses files: {error}"));
                }
            });
            match pass_on(lines, updates) {
                Ok(()) => failed("the process that parses files has ended; recording goes on".to_owned()),
                Err(error) => failed(format!("the process that parses files: {error:#}; recording goes on")),
            }
        });
    }
}

fn pass_on(lines: ChildStdout, updates: &Sender<ViewUpdate>) -> anyhow::Result<()> {
    let mut lines = BufReader::new(lines);
    loop {
        let mut line = Vec::new();
        if (&mut lines).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let update = serde_json::from_slice(&line).context("unexpected answer")?;
        if updates.send(update).is_err() {
            return Ok(());
        }
    }
}

/// Copies a second into a file without a name; returns it with the number of blocks left out.
fn into_file(second: &Part) -> io::Result<(File, u64)> {
    let mut file = worker::memory_file("fpprof-second")?;
    second.write(&mut file)?;
    file.rewind()?;
    Ok((file, second.left_out))
}

/// The main function of the process without privileges.
///
/// # Errors
/// If its standard output is closed.
pub(crate) fn run() -> anyhow::Result<u8> {
    let client = worker::client().context("no connection to the process that opens files")?;
    let next = || {
        let (mut file, left_out) = client.part().ok()??;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        Some(Second { bytes, left_out })
    };
    let mut out = io::stdout().lock();
    let mut line = |update: &ViewUpdate| -> io::Result<()> {
        serde_json::to_writer(&mut out, update)?;
        out.write_all(b"\n")?;
        out.flush()
    };
    work(next, |update| line(&update).is_ok());
    Ok(crate::exit::DONE)
}
