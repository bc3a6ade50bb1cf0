//! The system calls: with `bpf`, the only place with `unsafe` code. Everything above is safe Rust.
//!
//! Uses `libc`, not `rustix`: most of the calls (`perf_event_open`, `bpf`, `fork` with a held child, signal handlers,
//! rings that the kernel writes) are missing there or need `unsafe` all the same, and the rest are some twenty lines
//! each.

mod bpf;
mod child;
mod code;
mod epoll;
mod heap;
mod host_walk;
mod names;
mod perf;
mod perf_ring;
mod perf_stacks;
#[cfg(target_arch = "aarch64")]
mod pointer_authentication;
mod process;
mod rule_keys;
mod shared_map;
mod signal;
mod uevents;

pub(crate) use bpf::{
    ObjectStorage, ProgramStatistics, StatisticsGuard, program_statistics, read_pod, wait_for_programs,
};
pub(crate) use child::{ChildError, HeldChild};
pub use code::unmap_code;
pub(crate) use epoll::Poller;
pub use heap::{keep_little_freed_memory, return_freed_memory};
pub(crate) use host_walk::{HostCode, host_walk};
pub use names::resolve_without_plugins;
pub(crate) use perf::{Count, PerfEvent};
pub(crate) use perf_ring::PerfRing;
pub(crate) use perf_stacks::{StackEvent, user_registers};
#[cfg(target_arch = "aarch64")]
pub(crate) use pointer_authentication::code_address_bits;
pub(crate) use process::{
    OpenFiles, Rusage, has_ended, is_secure_execution, open_pidfd, read_memory, realtime_ns, rusage, set_realtime,
    terminate, thread_cpu_ns, try_wait,
};
pub use process::{monotonic_ns, share_memory, step_thread, stop_thread};
pub(crate) use rule_keys::{key_hash, rule_key, second_key_hash};
pub(crate) use shared_map::{OnDemandMap, SharedMap};
pub use signal::{StopFlag, ignores_hangup, keep_ended_children};
pub(crate) use uevents::Uevents;
