//! The evaluation for machines.

use fpprof_analysis::flags::Evaluation;
use std::io::{self, Write};

/// Writes the evaluation as JSON.
///
/// # Errors
/// Those of the writer.
pub fn json(evaluation: &Evaluation, out: &mut impl Write) -> io::Result<()> {
    crate::json::value(evaluation, out)
}
