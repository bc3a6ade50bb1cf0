//! The walk from frame to frame.

mod batch;
mod caller;
mod code;
mod fallback;
mod frame_pointers;
mod full;
mod function_rules;
mod lane;
mod near;
mod options;
mod outermost;
mod plt;
mod resolve;
mod row_cache;
mod single;
mod trampoline;

pub use batch::Job;
pub use fallback::MAX_BETWEEN;
pub use frame_pointers::{Chain, ChainEnd, ChainEntry};
pub use options::{Fallback, Options};
pub use outermost::MAX_START_BYTES;
pub use single::Unwinder;
