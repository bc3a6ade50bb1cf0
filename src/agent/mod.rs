//! Continuous profiling: what `fpprof agent` does, day and night.
//!
//! ```text
//! collector (its thread) ── blocks ──▶ live ── an interval ──▶ analyst (a process without privileges) ── Parquet ──▶ store
//!                                        │                              └───── OTLP ──▶ spool ── push ──▶ a collector
//!                                        └───── its balance ──▶ counters ──▶ store, metrics
//! ```
//!
//! The collector records the machine into memory. At the end of each interval the samples of it go, with the process events
//! that still matter, to a process that unwinds and names them, writes them as a table, and ends: so nothing it allocates
//! stays, and whatever makes it crash costs one interval, which is counted. `run` waits for the end of the interval, a signal,
//! or the end of the recorder; `effort` keeps the cost below its limits.
//!
//! **Invariant:** samples recorded = stored + discarded, in each interval; and fired = recorded + lost + skipped + dropped +
//! unread, where what is unread at the end of an interval is part of a later one.

mod analyst;
mod config;
mod cost;
mod counted;
mod effort;
mod metrics;
mod push;
mod run;
mod server;
mod session;
mod spool;
mod store;

pub(crate) use analyst::{MAX_TABLE_BYTES, run as run_analyst};
pub(crate) use config::Config;
pub(crate) use push::check as check_push;
pub(crate) use run::run;
