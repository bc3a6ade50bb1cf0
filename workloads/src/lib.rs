//! Programs whose stacks are known, and real workloads.
//!
//! [`programs`] lists programs in C, each around one construct that is hard to unwind. A program burns CPU in a known
//! function for as many seconds as its first argument says, and this crate says which functions called it: nearly all
//! samples must have one of the program's [`Chain`]s. A chain also says what each strategy must make of it, and how the
//! stack must end: a strategy that gives a different stack is wrong, also where it calls it complete.
//!
//! You provide a compiler and a directory for [`build`]. In turn you get the path of a program, to be run in the directory it
//! lies in or any other. Nothing here runs or records anything, and nothing but tests links this crate.
//!
//! Beside it are `nbdkit-fio.sh` and `nbd.fio`, a real workload.
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
