//! The output of `fpprof diff` for two strategies, and of `report` for every pair. The JSON is the model itself
//! ([`crate::json::value`]).

mod examples;
mod pairs;
mod terminal;
mod words;

pub(crate) use pairs::pairs;
pub use terminal::terminal;

#[cfg(test)]
mod tests;
