//! Tests of the command on inputs that need no new recording.

mod audit;
mod audit_disassembly;
mod emulated_cores;
mod export_store;
mod flags;
mod imports;
mod serve;
mod serve_access;
mod serve_page;
#[path = "../support/mod.rs"]
mod support;
mod verify;
mod wrong_inputs;
