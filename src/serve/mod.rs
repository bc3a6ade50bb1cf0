//! The page for a store or a recording: what `fpprof serve` shows.
//!
//! ```text
//! browser ── HTTP ──▶ server ── parameters ──▶ answers ── rows ──▶ fpprof_reports::store
//!                     (one query at a time)      └── files of the range ◀── store or recording
//! ```
//!
//! **Invariant:** nothing is kept from one query to the next. What cannot be read is named in the answer. The process has no
//! privileges once it listens, and answers this machine only.

mod address;
mod answers;
mod files;
mod parameters;
mod server;

pub(crate) use address::{Listen, listen};
pub(crate) use files::Files;
pub(crate) use server::run;
