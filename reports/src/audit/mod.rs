//! What `fpprof audit` prints: text for a terminal or a mail, JSON for machines, one page of HTML.
//!
//! You provide a [`Survey`](fpprof_analysis::audit::Survey). In turn each form says the same figures.

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
