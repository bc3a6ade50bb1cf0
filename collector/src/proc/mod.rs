//! `/proc`: what existed before the recording, and the kernel's state.

mod blocking;
mod cgroup;
mod environment;
mod files;
mod io;
mod maps;
mod memory;
mod status;

pub use blocking::{BlockingCalls, Place};
pub(crate) use cgroup::cgroup_of;
pub(crate) use environment::environment_of;
pub(crate) use files::{Changed, Opened, last_change, open_mapped, read_build_id, still_at};
pub(crate) use io::{Written, written};
pub use maps::{MapsEntry, parse_maps};
pub(crate) use memory::MemoryReads;
pub use status::is_gone;
pub(crate) use status::{
    Capabilities, effective_uid, idle_times_ns, inner_pid, is_kernel_thread, is_of_user, is_secure_execution,
    n_possible_cpus, online_cpus, parent_of, process_of, processes, read_number, runs_program, start_stack,
    start_ticks, thread_comm, thread_runs, threads,
};
