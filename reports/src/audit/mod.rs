//! The output of `fpprof audit`: text for a terminal or a mail, JSON for programs, or one HTML page.
//!
//! You provide a [`Survey`](fpprof_analysis::audit::Survey). In turn you get the same figures in each format.

mod figures;
mod html;
mod json;
mod lists;
mod marks;
mod text;
mod weight;

pub use html::{Audited, html};
pub use json::json;
pub use lists::Listing;
pub use text::text;

#[cfg(test)]
mod tests;
