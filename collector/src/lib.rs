//! The collector: it records what programs do on this machine, with eBPF if allowed, else with perf events alone.
//!
//! [`record`] takes a [`Request`] and a sink, and writes a recording ([`fpprof_recording`]) until the target ends, the
//! time is over, or a [`StopFlag`] is set. [`doctor::probe`] reports what this kernel and this user support.
//!
//! **What you provide:** for eBPF, root, or `CAP_BPF` and `CAP_PERFMON` (older kernels want `CAP_SYS_PTRACE` to attach to other users'
//! processes); a kernel of 5.17 or later with BTF, on x86-64 or aarch64; the sink, preferably the file itself. Perf
//! events alone need no rights for one's own processes (`perf_event/` lists their limits).
//!
//! **What you get in turn:** nothing of the target runs if it cannot be recorded; samples from its first instruction
//! on, and none of this process; every tick of every CPU in exactly one place of the balance; and nothing left in the
//! kernel afterwards.
//!
//! **How it works.** With eBPF, one event fires on each CPU, and a BPF program takes the sample: user registers, the
//! stack from the stack pointer up to its end or to a limit, a frame-pointer chain walked in that copy, and the
//! kernel's chain. It writes them in place into the CPU's ring buffer, which is shared memory. perf's process events
//! arrive separately. The reader merges everything by time, and identifies files by device, inode and build ID. A
//! separate thread looks for files that are gone, and keeps their contents.
//!
//! **What it is not for:** unwinding, symbols, or reading recordings on other machines.
//!
//! Memory: the ring buffers (see [`Request::ring_bytes`]) and slack after each of their segments, 2 MiB for process
//! events for each CPU (512 KiB with more than 16), and what the writer takes (see
//! [`fpprof_recording::RecordingWriter`]).
mod arch;
mod backoff;
mod bpf;
mod cgroup;
mod choice;
mod decode;
pub mod doctor;
mod error;
mod event;
mod groups;
mod host;
mod jit_dumps;
mod kernel_symbols;
mod modules;
mod note;
pub mod parse;
mod parts_control;
mod perf_event;
mod perf_maps;
mod plan;
mod privileges;
mod proc;
mod request;
mod ring;
mod rules;
mod sampled;
mod session;
mod share;
mod sideband;
mod synthesis;
mod sys;
#[cfg(test)]
mod test_support;
mod vdso;
mod walk;

pub use bpf::print_libbpf_messages;
pub use choice::{record, rehearse};
pub use error::Error;
pub use event::{BadEvent, EventSpec};
pub use host::{host, n_online_cpus};
pub use note::Note;
pub use parts_control::{PartsControl, UnusedFile};
pub use privileges::user_of_file_capabilities;
pub use proc::{BlockingCalls, MapsEntry, Place, is_gone, parse_maps};
pub use request::{
    CollectorKind, Fallback, MAX_PERF_EVENT_STACK_BYTES, ModeChoice, Outcome, Progress, Request, Target, TargetStatus,
    Update,
};
pub use sys::{
    StopFlag, ignores_hangup, keep_ended_children, keep_little_freed_memory, monotonic_ns, resolve_without_plugins,
    return_freed_memory, share_memory, step_thread, stop_thread, unmap_code,
};
pub use walk::{JIT_RULE, walk_copied_stack};

/// The most bytes of stack that can be copied for one sample.
pub const MAX_STACK_BYTES: u64 = bpf::MAX_CHUNK_BYTES;
