//! The metadata of a recording.

use super::target::Running;
use super::waits::wait_event;
use crate::event::Event;
use crate::host::host;
use crate::request::{Request, Target};
use crate::sys::{monotonic_ns, realtime_ns};
use fpprof_recording::model::{self, Collector, Meta, Sampling};

/// Metadata: what was requested, and where and when it is recorded.
pub(crate) fn meta(request: &Request, event: &Event, running: &Running) -> Meta {
    let target = match &request.target {
        Target::Command { argv } => model::Target::Command {
            argv: argv.iter().map(|argument| argument.to_string_lossy().into_owned()).collect(),
            pid: running.command_pid().unwrap_or(0),
        },
        Target::Pids(pids) => model::Target::Pids(pids.clone()),
        Target::Threads(tids) => model::Target::Threads(tids.clone()),
        Target::Cgroup { path, .. } => model::Target::Cgroup(path.to_string_lossy().into_owned()),
        Target::System | Target::SystemWhile { .. } => model::Target::System,
    };
    Meta {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        start_ns: monotonic_ns(),
        start_unix_ns: realtime_ns(),
        host: host(),
        collector: Collector::Ebpf,
        events: events(request, event),
        mode: request.mode,
        kernel_stacks: request.kernel_stacks,
        scrubbed: !request.keep_raw_stacks,
        target,
        not_counted: Vec::new(),
        aggregated_ns: request.aggregate.map(|apart| u64::try_from(apart.as_nanos()).unwrap_or(u64::MAX)),
    }
}

/// The sampled event, and the wait event if requested.
pub(crate) fn events(request: &Request, event: &Event) -> Vec<model::Event> {
    std::iter::once(described(event, request.sampling)).chain(request.off_cpu.map(wait_event)).collect()
}

fn described(event: &Event, sampling: Sampling) -> model::Event {
    model::Event { name: event.name().to_owned(), sampling, measure: event.measure(sampling) }
}
