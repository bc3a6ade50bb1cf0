//! Programs whose stacks are known, and real workloads.
//!
//! [`programs`] lists programs in C, each around one construct that is hard to unwind. A program burns CPU in a known
//! function for as many seconds as its first argument says, and this crate states which functions called it: nearly all
//! samples must have one of the program's [`Chain`]s. A chain also states the stack that each strategy must return, and
//! how it must end: a strategy that returns a different stack is wrong, even if it reports it as complete.
//!
//! You provide a compiler and a directory for [`build`]. In turn you get the path of a program, which can be run in any
//! directory. Nothing here runs or records anything, and only tests link this crate.
//!
//! The directory also has `nbdkit-fio.sh` and `nbd.fio`, a real workload.
#![forbid(unsafe_code)]

mod building;
mod manifest;
mod outcome;
mod program;
mod truth;

pub use building::{Error, build, build_with};
pub use manifest::programs;
pub use outcome::{Chain, Frame, Outcome, Stop};
pub use program::{Compiler, Part, Program};
pub use truth::Fit;
