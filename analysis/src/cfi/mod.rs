//! One row of call frame information in readable form, for debugging: the model behind `fpprof cfi`.
//!
//! You provide a file and an SVMA ([`crate::modules::LoneModule`]). In turn [`explain`] returns the FDE and the row
//! that cover it and what the row means, register by register: exactly what the unwinder would use there.

mod explain;

pub use explain::{ExplainedRow, RegisterRow, describe_coverage, explain};

#[cfg(test)]
mod tests;
