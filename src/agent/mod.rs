//! Continuous profiling: `fpprof agent`.
//!
//! ```text
//! collector (its thread) ── blocks ──▶ live ── an interval ──▶ analyst (a process without privileges) ── Parquet ──▶ store
//!                                        │                              └───── OTLP, pprof or Parquet ──▶ spool ── push ──▶ a collector, Pyroscope or a bucket
//!                                        └───── its balance ──▶ counters ──▶ store, metrics
//! ```
//!
//! The collector records the machine into memory. At the end of each interval its samples, and the process events that
//! still matter, go to a process that unwinds and symbolises them, writes them as a table, and exits: so its memory is
//! freed, and after a crash the interval is analysed again with fewer files. `run` waits for the end of the interval, a signal, or the
//! end of the recorder; `effort` keeps the cost below its limits, and `stopping` the time that the end takes.
//!
//! **Invariant:** in each interval, recorded = stored + discarded, and fired = recorded + lost + skipped + dropped +
//! unread, where ticks unread at the end of an interval are recorded in a later one.

mod analyst;
mod answer;
mod attempts;
mod compaction;
mod config;
mod cost;
mod counted;
mod effort;
mod interval;
mod labels;
mod metrics;
mod once;
mod outlook;
mod push;
mod run;
mod s3;
mod server;
mod session;
mod spool;
mod stopping;
mod store;
mod systemd;

pub(crate) use analyst::{MAX_TABLE_BYTES, run as run_analyst};
pub(crate) use config::Config;
pub(crate) use metrics::NOT_WRITTEN;
pub(crate) use once::{Recorded, record as record_once};
pub(crate) use outlook::{Outlook, outlook};
pub(crate) use push::check as check_push;
pub(crate) use run::run;
