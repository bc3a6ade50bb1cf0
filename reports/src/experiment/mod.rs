//! The report of `fpprof compare`: one table for the terminal, in Markdown, and as a page that opens offline.
//!
//! You provide an experiment whose aggregates are made (`Experiment::complete`). In turn all three forms show the same
//! figures in the same words, with the reason where a tool cannot give one, and a verdict with the rule behind it.

mod cells;
mod html;
mod link;
mod markdown;
mod marks;
mod terminal;
mod verdict;
mod words;

pub use html::{Pictures, html, html_with};
pub use markdown::markdown;
pub use terminal::terminal;
