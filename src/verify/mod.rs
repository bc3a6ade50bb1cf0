//! Stepping a program and checking every strategy against its true stack at every instruction.
//!
//! [`run`] starts the command under ptrace and steps it from its exec on. What each instruction did to the stack goes
//! to the thread's shadow stack, what is mapped to a history, and a sample of the moment before the instruction to the
//! oracle of the analysis, which judges, and to a recording if one was asked for. Only the main process is stepped: its
//! threads all, processes it makes not. With leaps, it runs from turn to turn at full speed between windows that are
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
