//! What is said while it runs.

use std::io::Write as _;

/// Says one line on stderr.
pub(crate) fn say(line: &str) {
    // A closed stderr leaves nobody to tell.
    let _ = writeln!(std::io::stderr(), "bench-collect: {line}");
}
