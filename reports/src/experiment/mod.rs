//! The report of `fpprof compare`: one table for the terminal, in Markdown, and as a page that opens offline.
//!
//! You provide an experiment whose aggregates are computed (`Experiment::complete`). In turn you get the same figures
//! and words in all three formats, with the reason where a tool cannot give a figure, and a verdict with its rule.

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
