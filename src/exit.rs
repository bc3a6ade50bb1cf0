//! Exit statuses, and how an error is told.

use std::io;
use std::process::ExitCode;

/// Done.
pub(crate) const DONE: u8 = 0;
/// Failed.
pub(crate) const FAILED: u8 = 1;
/// Wrong usage.
pub(crate) const USAGE: u8 = 2;

/// An error of usage that only shows after parsing: exit status 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Prints clap's message; help and version are no errors.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // A closed stdout or stderr leaves nobody to tell.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { USAGE } else { DONE })
}

/// The exit status of a command; its error goes to stderr in one line.
pub(crate) fn code(result: anyhow::Result<u8>) -> ExitCode {
    let error = match result {
        Ok(status) => return ExitCode::from(status),
        Err(error) => error,
    };
    if is_broken_pipe(&error) {
        // Whoever read our output had enough of it.
        return ExitCode::from(DONE);
    }
    crate::output::say(&format!("fpprof: {error:#}"));
    ExitCode::from(if error.is::<Usage>() { USAGE } else { FAILED })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    kinds.any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
