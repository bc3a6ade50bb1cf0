//! Flame graphs as SVG, drawn by inferno.
//!
//! Complete stacks stand under the name of their thread when it was sampled; all others under a root that says how they ended,
//! such as `[truncated: chunk_end]` or `[broken: ra_not_exec]`, and then under that name. The colour of a frame shows how it was
//! found; the legend under the title explains the colours. Equal stacks give equal bytes.

mod difference;
mod draw;
mod error;
mod header;
mod palette;
mod paths;
mod rows;

pub use difference::{Side, svg_difference};
pub use draw::{Options, svg};
pub use error::Error;
