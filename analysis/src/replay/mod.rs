//! All samples of a recording through all asked strategies, on all cores.
//!
//! Blocks of samples are decoded and unwound by whichever thread is free; what is made of the stacks is up to a
//! [`Collect`], one for each thread, joined at the end. A collector whose result does not depend on the order of its
//! samples gives the same result at any number of threads.

mod collect;
mod driver;
mod recorded;
mod spaces;

pub use collect::{Collect, Seen};
pub use driver::{Block, Replay, Replayed};
pub use recorded::Recorded;
pub use spaces::{PlacedModule, PlacedSpace, Spaces};
