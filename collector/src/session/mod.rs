//! One recording, from the first check to the last byte.

mod balance;
mod closing;
mod counted;
mod cpus;
mod interrupt;
mod meta;
mod open_waits;
mod pace;
mod reader;
mod record;
mod samplers;
mod stack_hints;
mod target;
mod ticks;
mod wait_halves;
mod waits;

pub(crate) use counted::shared;
pub(crate) use cpus::Cpus;
pub(crate) use meta::{events, meta};
pub(crate) use pace::{DESCRIBE, FLUSH, SETTLE_NS, must_flush};
pub(crate) use reader::{add_start, errno_of, note, write_event};
pub(crate) use record::{Loaded, cpu_ns, load};
pub(crate) use target::Running;
pub(crate) use ticks::{TicksBegun, ticks_in};
