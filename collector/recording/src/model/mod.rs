//! The contents of a recording as plain values.
//!
//! Words: `pid` is a process (the kernel's tgid), `tid` a thread (the kernel's pid). Times are nanoseconds of
//! `CLOCK_MONOTONIC` on the recorded machine. Addresses are AVMAs (actual virtual memory addresses, as in the running
//! process) unless a name says otherwise. Names, paths and comms are bytes: the profiled machine chooses them.

mod end;
mod gap;
mod machine;
mod meta;
mod sample;
mod sideband;

pub use end::{Checkpoint, CpuCounters, End, EndReason, LossCause, OwnCost, SidebandLoss, SkippedWaits, Uncounted};
pub use gap::Gap;
pub(crate) use machine::Machine;
pub use machine::{Arch, MAX_REGISTERS};
pub use meta::{CaptureMode, Collector, Event, Host, KernelSymbol, Measure, Meta, NotCounted, Sampling, Target};
pub use sample::{
    Abi, CfiEnd, CfiFrame, ChunkHole, FoundBy, FpEnd, FpFrame, Interrupted, NO_PROCESS, Sample, StackEnd,
    StackEndSource, UserRegs,
};
pub use sideband::{BuildId, Cgroup, Comm, Exit, FileIdentity, Fork, KERNEL_SYMBOLS_PATH, Mmap, ModuleBytes, Sideband};
