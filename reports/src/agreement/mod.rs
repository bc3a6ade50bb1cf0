//! What `fpprof diff` prints. Its JSON is the model as it is ([`crate::json::value`]).

mod examples;
mod terminal;

pub use terminal::terminal;

#[cfg(test)]
mod tests;
