//! What `fpprof verify` prints. Its JSON is the model as it is ([`crate::json::value`]).

mod disagreements;
mod terminal;

pub use terminal::terminal;

#[cfg(test)]
mod tests;
