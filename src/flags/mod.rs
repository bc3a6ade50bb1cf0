//! Build-flag evaluation: builds programs under flag sets, times replicated binaries in rounds, records them, and saves
//! all results, so that an interrupted run can continue.

mod build;
mod collect;
mod environment;
mod identity;
mod instructions;
mod manifest;
mod plan;
mod recordings;
mod rounds;
mod run;
mod shell;
mod sources;
mod store;
mod supervising;
mod supervisor;

pub(crate) use collect::collect;
pub(crate) use manifest::{Manifest, TEMPLATE};
pub(crate) use run::run;
pub(crate) use store::Store;
pub(crate) use supervising::serve;
pub(crate) use supervisor::SUBCOMMAND as SUPERVISE;
