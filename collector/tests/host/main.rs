//! Collector tests that change the machine: CPUs, process IDs, control groups. Each test restores
//! what it changed. Needs root, and two CPUs; only run by `just test-host`.

mod changed;
mod cpus;
mod group;
mod groups;
mod numbers;
#[path = "../live/support.rs"]
#[expect(dead_code, reason = "the tests that change nothing use the rest")]
mod support;
