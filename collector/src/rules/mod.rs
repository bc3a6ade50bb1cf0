//! Rules for the kernel's walk by call frame information.
//!
//! ```text
//! sample that missed a rule ─▶ reader ─▶ RuleLoader: open the file, have it parsed ─▶ RuleTable: maps of the BPF programs
//! ```
//!
//! Rules are made for missed code, a function at a time, so nothing is spent on code that does not run. They belong to
//! files, whichever process has mapped them, at any address.

mod jit_processes;
mod loader;
mod table;

pub(crate) use jit_processes::{JitProcesses, MAX_JIT_PROCESSES};
pub(crate) use loader::{Missed, RuleLoader};
pub(crate) use table::{MAX_FILES, N_RULES, RULES_BYTES, RuleTable, n_sets, sets_bytes};
