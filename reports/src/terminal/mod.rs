//! The output of `record`, `report` and `doctor`.
//!
//! You provide the model, a [`Style`] (width and colours: nothing here reads the environment) and a writer. In turn
//! every name is escaped, every line of prose fits the width, and no count is left out.

mod checks;
mod chunks;
mod closing;
mod frame;
mod overhead;
mod paint;
mod strategies;
mod summary;
mod table;
mod verdict;

pub use checks::{Check, CheckStatus, checks};
pub use closing::{Closing, closing, waits_line};
pub use paint::Style;
pub use summary::summary;
pub use verdict::{rule, verdict};

pub(crate) use frame::frame_line;
pub(crate) use overhead::overhead_words;
pub(crate) use paint::{Paragraph, Tone};
pub(crate) use table::{Cell, Column, Table};
