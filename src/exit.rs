//! Exit statuses, and how errors are printed.

use crate::output::{lines, print_drawn, print_message};
use clap::error::ContextValue;
use fpprof_reports::escape::visible;
use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

/// Success.
pub(crate) const DONE: u8 = 0;
/// Failure.
pub(crate) const FAILED: u8 = 1;
/// Usage error.
pub(crate) const USAGE: u8 = 2;

/// A usage error that is only found after parsing: exit status 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Refuses to write binary output to a terminal.
///
/// # Errors
/// If `path` is stdout and stdout is a terminal.
pub(crate) fn refuse_terminal(path: &Path) -> Result<(), Usage> {
    let words = "the output is binary: give a file with -o, or send stdout to a file or a pipe";
    let is_terminal = path == Path::new("-") && io::stdout().is_terminal();
    if is_terminal { Err(Usage(words.to_owned())) } else { Ok(()) }
}

/// Prints clap's message; help and version are no errors. If an argument has characters that a terminal interprets, as
/// a file name that a shell expanded may, the message is printed without colours and with them escaped: clap does not
/// escape them. A line break in an argument does not begin a line of the message.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let is_nonprinting = |argument: OsString| visible(&argument.to_string_lossy()) != argument.to_string_lossy();
    if std::env::args_os().any(is_nonprinting) {
        print_drawn(lines(&with_visible_values(error), "\n").trim_end());
    } else {
        let printed = error.print();
        // If stderr is closed, there is nowhere to report that.
        if !error.use_stderr()
            && let Err(failed) = printed
        {
            return code(Err(anyhow::Error::new(failed).context("cannot write to stdout")));
        }
    }
    ExitCode::from(if error.use_stderr() { USAGE } else { DONE })
}

/// clap's message with the arguments it repeats escaped.
fn with_visible_values(error: &clap::Error) -> String {
    let written_out = |text: String, value: &str| match visible(value) {
        Cow::Borrowed(_) => text,
        Cow::Owned(shown) => text.replace(value, &shown),
    };
    error.context().fold(error.render().to_string(), |text, (_, value)| match value {
        ContextValue::String(value) => written_out(text, value),
        ContextValue::Strings(values) => values.iter().fold(text, |text, value| written_out(text, value)),
        _ => text,
    })
}

/// Converts a command's result to its exit status; prints its error to stderr on one line.
pub(crate) fn code(result: anyhow::Result<u8>) -> ExitCode {
    let error = match result {
        Ok(status) => return ExitCode::from(status),
        Err(error) => error,
    };
    if is_broken_pipe(&error) {
        // The reader of our output closed it early, which is no error.
        return ExitCode::from(DONE);
    }
    print_message(&format!("fpprof: {}", error_chain(&error)));
    ExitCode::from(if error.is::<Usage>() { USAGE } else { FAILED })
}

/// Prints an error and its consequence.
pub(crate) fn print_failure(error: &anyhow::Error, what: &str) {
    print_message(&format!("fpprof: {}; {what}", error_chain(error)));
}

/// An error and its causes on one line. Some libraries repeat a cause in the message above it; it is printed once.
pub(crate) fn error_chain(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |mut line, cause| {
        let words = cause.to_string();
        if !line.contains(&words) {
            line.push_str(if line.is_empty() { "" } else { ": " });
            line.push_str(&words);
        }
        line
    })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    kinds.any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    /// Check that a cause which the message above it repeats is printed once.
    #[test]
    fn causes_are_reported_once() {
        let error = Err::<(), _>(io::Error::other("disk on fire")).context("writing a: disk on fire").context("saving");
        assert_eq!(error_chain(&error.unwrap_err()), "saving: writing a: disk on fire");
    }
}
