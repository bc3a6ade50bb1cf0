//! Replay, strategies, symbols, folding, balance, volume, quality, overhead and statistics.
//!
//! A recording goes in; models for reports come out ([`summary`], [`folded`]): [`analyse()`] does all of it.
//!
//! ```text
//! sideband ─▶ address_space (who had what mapped when) ─▶ modules (found, verified, read when needed)
//!                                                            │
//! samples ──▶ replay × strategy (all cores) ─▶ stacks ─▶ fold ─▶ symbols ─▶ folded, summary
//! ```
//!
//! You provide the recording, and a [`modules::Resolver`] that finds files by name. In turn nothing of a file is used
//! before it is verified to be the one that was mapped, every sample ends in exactly one way under every strategy, and
//! the result is the same on any number of threads. The crate neither prints nor draws.
#![forbid(unsafe_code)]

pub mod accuracy;
pub mod address_space;
pub mod agreement;
pub mod attribution;
pub mod audit;
pub mod callers;
pub mod cfi;
pub mod changes;
pub mod core_dump;
pub mod detail;
pub mod events;
pub mod experiment;
pub mod filter;
pub mod flags;
pub mod fold;
pub mod folded;
pub mod hottest;
pub mod import;
pub mod modules;
pub mod oracle;
pub mod overhead;
pub mod profile;
mod quality;
pub mod replay;
mod shown_frame;
pub mod spread;
pub mod statistics;
pub mod strategy;
pub mod summary;
pub mod symbols;
pub mod totals;

mod abbreviations;
mod analyse;
mod error;
pub mod kernel_walks;
mod listed;
mod signals;
mod summarise;
#[cfg(test)]
mod test_support;

pub use analyse::perf_data::{PerfStacks, fold_perf_data};
pub use analyse::{Analysis, Options, analyse};
pub use error::Error;
pub use signals::signal_name;
