//! What `fpprof flags report` prints: plain text for a mail first, a page, and JSON.
//!
//! You provide an [`Evaluation`]. In turn every form says the same figures, above
//! zero meaning slower or larger, each with its interval.

mod figures;
mod html;
mod marks;
mod text;

pub use html::html;
pub use text::text;

use fpprof_analysis::flags::Evaluation;
use std::io::{self, Write};

/// Writes the evaluation as JSON.
///
/// # Errors
/// Those of the writer.
pub fn json(evaluation: &Evaluation, out: &mut impl Write) -> io::Result<()> {
    crate::json::value(evaluation, out)
}

#[cfg(test)]
mod tests;
