//! Progress messages.

use std::io::Write as _;

/// Prints one line to stderr.
pub(crate) fn print_progress(line: &str) {
    // If stderr is closed, there is nowhere to report the error.
    let _ = writeln!(std::io::stderr(), "bench-collect: {line}");
}
