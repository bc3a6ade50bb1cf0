//! Tests of the command on the running kernel: it loads the real BPF programs, and profiles real programs.
//!
//! Needs root, and fails without it. Changes nothing on the machine: mounts are in a separate mount namespace.

mod agent;
mod aggregate;
mod archive;
mod curve;
mod debuginfod;
mod endings;
mod events;
mod filters;
mod formats;
mod groups;
mod hard_cases;
mod host_walk;
mod jit;
mod jitdump;
mod kept;
mod kernel_walks;
mod live_store;
mod nbdkit_fio;
mod off_cpu;
mod privileged;
mod processes;
mod push;
mod recordings;
mod runtimes;
mod serve;
mod sframe;
mod signals;
mod storms;
#[path = "../support/mod.rs"]
mod support;
mod threads;
mod top;
mod totals;
mod worker;
