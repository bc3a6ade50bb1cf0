//! The walk from frame to frame.

mod batch;
mod caller;
mod fallback;
mod fast;
mod frame_pointers;
mod full;
mod options;
mod resolve;

pub use batch::Job;
pub use fast::Unwinder;
pub use frame_pointers::{Chain, ChainEnd, ChainEntry};
pub use options::{Fallback, Options};
