//! The output of `fpprof cfi` and `fpprof unwind`. Their JSON is the model itself ([`crate::json::value`]).

mod row;
mod stacks;

pub use row::row;
pub use stacks::stacks;

#[cfg(test)]
mod tests;
