//! Steps a program and checks every strategy against its true stack at every instruction.
//!
//! [`run`] starts the command under ptrace and steps it from its exec on. The effect of each instruction on the stack
//! goes to the thread's shadow stack, mappings go to a history, and a sample of the state before the instruction goes
//! to the oracle of the analysis, which judges it, and to a recording if requested. Only the main process is stepped,
//! with all its threads; its child processes are not. With leaps, it runs at full speed between windows that are
//! stepped.

mod breakpoints;
mod code;
mod launch;
mod leap;
mod maps;
mod pace;
mod run;
mod samples;
mod stepper;
mod thread;
mod tracee;

pub(crate) use launch::become_stepped;
pub(crate) use pace::{Choice, Leaps};
pub(crate) use run::{Options, run};
