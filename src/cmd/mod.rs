//! The subcommands, one per file: their arguments and their work.

pub(crate) mod agent;
pub(crate) mod archive;
pub(crate) mod audit;
pub(crate) mod cfi;
pub(crate) mod compare;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod flags;
pub(crate) mod flamegraph;
pub(crate) mod import;
pub(crate) mod query;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod serve;
pub(crate) mod top;
pub(crate) mod unwind;
#[cfg_attr(not(target_arch = "x86_64"), path = "verify_elsewhere.rs")]
pub(crate) mod verify;
