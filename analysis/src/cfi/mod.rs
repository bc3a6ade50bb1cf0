//! One row of call frame information, told for people who debug it: the model behind `fpprof cfi`.
//!
//! You provide a file and an SVMA ([`crate::modules::LoneModule`]). In turn [`explain`] says which entry and which row
//! cover it and what the row means, register by register: exactly what the unwinder would follow there.

mod explain;

pub use explain::{ExplainedRow, RegisterRow, explain, what_there_is};

#[cfg(test)]
mod tests;
