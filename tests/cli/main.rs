//! The command from outside, on inputs that need no recording of ours.

mod audit;
mod audit_disassembly;
mod emulated_cores;
mod flags;
mod imports;
mod serve;
mod serve_page;
#[path = "../support/mod.rs"]
mod support;
mod verify;
mod wrong_inputs;
