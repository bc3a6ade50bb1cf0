//! One recording, from the first check to the last byte.

mod balance;
mod closing;
mod cpus;
mod interrupt;
mod meta;
mod reader;
mod record;
mod samplers;
mod target;

pub use record::record;
