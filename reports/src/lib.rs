//! Model in, bytes out: tables, flame graphs, HTML, JSON. Same input, same bytes.
//!
//! You provide a model of `fpprof-analysis` and a writer. In turn you get text for a person or a program. No clock, no
//! randomness, no environment, no files. Names come from the profiled machine and are hostile until escaped: each
//! format has one escaper, and [`escape`] comes before all of them.
#![forbid(unsafe_code)]

pub mod agreement;
pub mod audit;
pub mod calls;
pub mod changes;
pub mod escape;
pub mod experiment;
mod figures;
mod finding;
pub mod flags;
pub mod flamegraph;
pub mod folded;
pub mod json;
mod kernel_walks;
pub mod oracle;
pub mod page;
pub mod parquet;
pub mod profile;
mod shell;
pub mod store;
pub mod terminal;
pub mod unwinding;
mod verdict;

#[cfg(test)]
#[path = "../tests/support/browser.rs"]
#[expect(dead_code, reason = "every test binary uses a part of it")]
mod browser;
#[cfg(test)]
#[path = "../tests/support/stored.rs"]
mod stored;
