//! The collector on the running kernel: it loads the real programs and profiles programs whose stacks are known.
//!
//! Needs what recording needs (root, or `CAP_BPF` and `CAP_PERFMON`), and fails without it.

mod balance;
mod chain;
mod ending;
mod floods;
mod groups;
mod hard_cases;
mod kernel_names;
mod perf_event;
mod processes;
mod refusals;
mod stacks;
mod support;
mod targets;
