//! What `fpprof diff` prints of two strategies, and `report` of every pair. Its JSON is the model as it is ([`crate::json::value`]).

mod examples;
mod pairs;
mod terminal;
mod words;

pub(crate) use pairs::pairs;
pub use terminal::terminal;

#[cfg(test)]
mod tests;
