//! Runs all samples of a recording through the requested strategies, on all cores.
//!
//! Blocks of samples are decoded and unwound by whichever thread is free. The stacks are processed by a [`Collect`],
//! one for each thread, merged at the end. If a collector's result does not depend on the order of samples, it is the
//! same on any number of threads.

mod collect;
mod driver;
mod input;
mod recorded;
mod spaces;

pub use collect::{Collect, Seen};
pub use driver::{Block, Replay, Replayed};
pub use input::Input;
pub use recorded::Recorded;
pub use spaces::{PlacedModule, PlacedSpace, Spaces};
