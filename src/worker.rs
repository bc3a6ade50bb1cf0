//! Parses other users' files without privileges.
//!
//! ```text
//! fpprof (root) ──▶ worker: no capabilities, no new files, no programs
//!     ▲   └ opens what it asks for: ELF files, and the files of the command line
//!     └ one socket, the worker's standard input
//! ```
//!
//! A command that has privileges and parses other users' files (recordings, ELF files, cores) runs itself a second
//! time. The second process does the work and cannot open any file itself. Without privileges there is only one
//! process.

mod broker;
mod client;
mod confine;
mod files;
mod message;
mod modules;
mod parser;
mod process;
mod run;
#[cfg(test)]
mod tests;

pub(crate) use broker::serve;
pub(crate) use client::{client, open_input, standard_input};
pub(crate) use confine::{confine, is_privileged, limit_memory};
pub(crate) use files::{Files, KernelNames};
pub(crate) use message::Older;
pub(crate) use modules::{Modules, Owners};
pub(crate) use parser::{parser, serve_parser};
pub(crate) use process::{cpu_time, is_worker, memory_file, rss_bytes, start};
pub(crate) use run::{PIPE_PATIENCE, run};
