//! The collector where the machine has to be changed for it: CPUs, process numbers, control groups. Each test puts back
//! what it changed. Needs root, and two CPUs; run by `just test-host` only.

mod changed;
mod cpus;
mod group;
mod groups;
mod numbers;
#[path = "../live/support.rs"]
#[expect(dead_code, reason = "the tests that change nothing use the rest")]
mod support;
