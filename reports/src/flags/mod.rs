//! The output of `fpprof flags report`: plain text for a mail, a page, or JSON.
//!
//! You provide an [`Evaluation`]. In turn you get the same figures in every format, each with its interval; above zero
//! is slower or larger.

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
/// If the writer fails.
pub fn json(evaluation: &Evaluation, out: &mut dyn Write) -> io::Result<()> {
    crate::json::value(evaluation, out)
}

#[cfg(test)]
mod tests;
