//! What `fpprof cfi` and `fpprof unwind` print. Their JSON is the model as it is ([`crate::json::value`]).

mod row;
mod stacks;

pub use row::row;
pub use stacks::stacks;

#[cfg(test)]
mod tests;
