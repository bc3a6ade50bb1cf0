//! The output of `fpprof verify`. Its JSON is the model itself ([`crate::json::value`]).

mod disagreements;
mod terminal;

pub use terminal::terminal;

#[cfg(test)]
mod tests;
