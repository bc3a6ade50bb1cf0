//! Checks of what can be known to fail before anything runs.

use super::Rights;
use crate::error::Error;
use crate::event::Event;
use crate::plan::{Command, check_aggregation, check_rate, check_target};
use crate::proc::online_cpus;
use crate::request::{MAX_PERF_EVENT_STACK_BYTES, Request, Target};
use crate::sys::{PerfEvent, StackEvent};
use fpprof_recording::model::CaptureMode;

/// A request that is possible as far as can be known beforehand.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) cpus: Vec<u32>,
    pub(super) command: Option<Command>,
    /// The event as first opened; the ring decides the watermark that wakes the reader.
    pub(super) event: StackEvent,
    pub(super) is_system: bool,
    /// Sizes of a CPU's ring to try, largest first.
    pub(super) ring_bytes: Vec<usize>,
}

/// Room for a sample besides its stack: header, registers, and a chain of 127 frames with its markers. Rounded up.
const OTHER_BYTES: u64 = 2048;
/// The largest ring requested by default: 250 samples of 64 KiB.
const LARGEST_DEFAULT_RING: u64 = 16 << 20;
/// The most for all CPUs by default, unless two samples need more.
const MAX_DEFAULT_TOTAL: u64 = 256 << 20;
/// The same limit as the eBPF collector's.
const LARGEST_RING: u64 = 256 << 20;

impl Plan {
    pub(super) fn new(request: &Request) -> Result<Self, Error> {
        check_aggregation(request)?;
        let command = check_target(request)?;
        if let Some(action) = refused_target(request) {
            let missing = "eBPF; record without --collector perf-event (`fpprof doctor` shows what eBPF needs)";
            return Err(Error::PerfEventRefused { action, missing });
        }
        check_rate(request.sampling)?;
        let stack_bytes = stack_bytes(request.mode)?;
        let cpus = online_cpus();
        let asked = request.ring_bytes.map(|bytes| bytes as u64);
        let ring_bytes = ring_sizes(asked, u64::from(stack_bytes), cpus.len() as u64)?;
        let rights = Rights::now();
        let is_system = matches!(request.target, Target::System | Target::SystemWhile { .. });
        rights.check(is_system)?;
        let excludes_kernel = !rights.may_sample_kernel();
        let event = StackEvent {
            event: Event::cpu_clock(),
            sampling: request.sampling,
            mode: request.mode,
            kernel_stacks: request.kernel_stacks && !excludes_kernel,
            excludes_kernel,
            starts_on_exec: matches!(request.target, Target::Command { .. }),
            wakeup_bytes: 0,
            counts_lost: true,
        };
        let requested = Event::find(&request.event, &*request.parser)?;
        requested.iter().try_for_each(|requested| check(requested, &event))?;
        let event = choose(event, requested, cpus.first().copied().unwrap_or(0))?;
        Ok(Self { cpus, command, event, is_system, ring_bytes })
    }
}

/// What the request asks of perf events that they alone cannot do.
pub(crate) fn refused_target(request: &Request) -> Option<&'static str> {
    match request.target {
        Target::Threads(_) => Some("sample single threads (-t)"),
        Target::Cgroup { .. } => Some("sample cgroups (-G)"),
        _ if request.off_cpu.is_some() => Some("sample waits (--off-cpu)"),
        _ if matches!(request.mode, CaptureMode::Cfi { .. }) => Some("walk stacks in the kernel (--call-graph cfi)"),
        _ if request.mode.copies_some() => Some("copy the stacks of one sample in N (--call-graph both:1/N)"),
        _ if request.event.is_probe() => Some("sample a probe (-e uprobe:...)"),
        _ => None,
    }
}

fn stack_bytes(mode: CaptureMode) -> Result<u32, Error> {
    match mode {
        CaptureMode::Fp => Ok(0),
        CaptureMode::Dwarf { stack_bytes }
        | CaptureMode::Both { stack_bytes, .. }
        | CaptureMode::Cfi { stack_bytes, .. } => {
            let is_possible =
                stack_bytes <= MAX_PERF_EVENT_STACK_BYTES && stack_bytes > 0 && stack_bytes.is_multiple_of(8);
            let refused = || Error::PerfEventStackBytes { asked: stack_bytes, max: MAX_PERF_EVENT_STACK_BYTES };
            is_possible.then_some(stack_bytes).ok_or_else(refused)
        }
    }
}

/// The requested size, rounded up; or powers of two from the largest useful one down to what two samples need.
fn ring_sizes(asked: Option<u64>, stack_bytes: u64, n_cpus: u64) -> Result<Vec<usize>, Error> {
    let needed = (2 * (stack_bytes + OTHER_BYTES)).next_power_of_two();
    let sizes = match asked {
        Some(asked) if asked < needed => return Err(Error::RingTooSmall { asked, needed }),
        Some(asked) if asked > LARGEST_RING => return Err(Error::RingTooLarge { asked, max: LARGEST_RING }),
        Some(asked) => vec![asked.next_power_of_two()],
        None => {
            let share = 1 << (MAX_DEFAULT_TOTAL / n_cpus.max(1)).max(1).ilog2();
            let largest = (256 * (stack_bytes + OTHER_BYTES)).next_power_of_two().min(LARGEST_DEFAULT_RING);
            let largest = largest.min(share).max(needed);
            std::iter::successors(Some(largest), |size| Some(size / 2)).take_while(|&size| size >= needed).collect()
        }
    };
    Ok(sizes.into_iter().filter_map(|size| usize::try_from(size).ok()).collect())
}

/// Checks what can be known about an event requested by name.
fn check(requested: &Event, event: &StackEvent) -> Result<(), Error> {
    requested.check_sampling(event.sampling)?;
    if requested.is_of_kernel() && event.excludes_kernel {
        let action = "sample an event in the kernel";
        return Err(Error::PerfEventRefused {
            action,
            missing: "CAP_PERFMON (or: sysctl kernel.perf_event_paranoid=1)",
        });
    }
    Ok(())
}

/// Tries on this very thread what the kernel supports: the requested event, else cycles, else a timer; and whether it
/// counts losses.
///
/// When the kernel is sampled, the timer is tried first. It only fires while interrupts are enabled, when the kernel
/// has already saved the user's registers. A counter's interrupt can come before that; perf then reports the registers
/// of the thread's previous kernel entry (`perf_get_regs_user` in `arch/x86/kernel/perf_regs.c`).
fn choose(mut event: StackEvent, requested: Option<Event>, cpu: u32) -> Result<StackEvent, Error> {
    let mut refused = None;
    let usual = || match event.excludes_kernel {
        true => vec![Event::cycles(), Event::cpu_clock()],
        false => vec![Event::cpu_clock(), Event::cycles()],
    };
    for tried in requested.map_or_else(usual, |requested| vec![requested]) {
        for counts_lost in [true, false] {
            event = StackEvent { event: tried.clone(), counts_lost, ..event };
            match PerfEvent::stacks(&event, Some(0), cpu) {
                Ok(_) => return Ok(event),
                Err(source) => refused = Some(tried.refused(cpu, source)),
            }
        }
    }
    Err(refused.unwrap_or(Error::NoProcess))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that two samples fit the smallest ring, that sizes are halved, and that a requested size is the only one.
    #[test]
    fn rings_hold_two_samples() {
        let sizes = ring_sizes(None, 65_528, 2).expect("sizes");
        assert_eq!((sizes.first(), sizes.last()), (Some(&(16 << 20)), Some(&(256 << 10))));
        assert!(sizes.windows(2).all(|pair| pair[0] == 2 * pair[1]));
        assert_eq!(ring_sizes(Some(300_000), 65_528, 2).expect("sizes"), [512 << 10]);
        assert!(matches!(ring_sizes(Some(4096), 65_528, 2), Err(Error::RingTooSmall { needed: 262_144, .. })));
        assert!(matches!(ring_sizes(Some(1 << 30), 0, 2), Err(Error::RingTooLarge { .. })));
        assert!(ring_sizes(None, 0, 2).expect("sizes").iter().all(|size| size.is_multiple_of(4096)));
    }

    /// Check that the rings of many CPUs are smaller, but still hold two samples.
    #[test]
    fn rings_of_many_cpus_are_bounded() {
        for (n_cpus, expected) in [(16, 16 << 20), (48, 4 << 20), (256, 1 << 20), (4096, 256 << 10)] {
            assert_eq!(ring_sizes(None, 65_528, n_cpus).expect("sizes").first(), Some(&expected), "{n_cpus} CPUs");
        }
    }

    /// Check that the kernel's limit of stack bytes and its granularity are enforced.
    #[test]
    fn the_kernels_limit_is_ours() {
        let dwarf = |stack_bytes| stack_bytes_of(CaptureMode::Dwarf { stack_bytes });
        assert_eq!((dwarf(8), dwarf(65_528)), (Some(8), Some(65_528)));
        assert_eq!((dwarf(0), dwarf(65_536), dwarf(100)), (None, None, None));
        assert_eq!(stack_bytes_of(CaptureMode::Fp), Some(0));
    }

    fn stack_bytes_of(mode: CaptureMode) -> Option<u32> {
        stack_bytes(mode).ok()
    }
}
