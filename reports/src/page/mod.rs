//! The page of one recording, `report --html`: one file that works offline.
//!
//! You provide an analysis with its detail. In turn you get a page that has its verdict and tables even without a
//! script, and whose script draws curves, the recording by time, and flame graphs that can be filtered, searched and
//! zoomed. The script is bundled from `reports/page/` into `reports/assets/`. The page runs only this script, allowed
//! by its hash, and may load nothing. The recording's content is data in an element that is not executed.

mod assets;
mod curves;
mod data;
mod figures;
mod first_screen;
mod html;
mod processes;
mod prune;
mod tables;

pub(crate) use assets::{SCRIPT, bundled, script_policy};
pub use html::{MissingDetail, html};
