//! The recording format from outside.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "the tests' helpers fail by panicking, as tests do")]

mod damage;
mod golden;
mod hostile;
mod layout;
mod repeats;
mod round_trip;
mod scrubbing;
mod sinks;
mod values;
mod walks;
