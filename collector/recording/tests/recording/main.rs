//! The recording format from outside.

mod round_trip;
mod values;
