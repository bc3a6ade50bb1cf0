//! What `fpprof flags report` prints: plain text for a mail first, a page, and JSON.
//!
//! You provide an [`Evaluation`](fpprof_analysis::flags::Evaluation). In turn every form says the same figures, above
//! zero meaning slower or larger, each with its interval.

mod figures;
mod html;
mod json;
mod marks;
mod text;

pub use html::html;
pub use json::json;
pub use text::text;

#[cfg(test)]
mod tests;
