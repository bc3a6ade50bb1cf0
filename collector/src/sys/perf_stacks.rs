//! Perf events that write samples with stacks into their ring.

use super::PerfEvent;
use crate::arch::NATIVE;
use crate::event::Event;
use fpprof_recording::model::{Abi, CaptureMode, MAX_REGISTERS, Sampling, UserRegs};
use perf_event_open_sys::bindings;
use std::io;

/// Settings of a sampling event with stacks.
#[derive(Debug, Clone)]
pub(crate) struct StackEvent {
    pub(crate) event: Event,
    pub(crate) sampling: Sampling,
    pub(crate) mode: CaptureMode,
    /// Also take the kernel's chain.
    pub(crate) kernel_stacks: bool,
    /// Do not fire in the kernel: the only events ordinary users may open.
    pub(crate) excludes_kernel: bool,
    /// Start with the thread's next exec, rather than by [`PerfEvent::enable`].
    pub(crate) starts_on_exec: bool,
    /// Bytes in the ring that wake the reader.
    pub(crate) wakeup_bytes: u32,
    /// Let the kernel count losses (since 6.0); else they only appear in records.
    pub(crate) counts_lost: bool,
}

/// What each sample contains, in the order of the bits of `enum perf_event_sample_format` except for the first; see
/// `perf_event::decode`.
const SAMPLE_TYPE: u64 = (bindings::PERF_SAMPLE_IDENTIFIER
    | bindings::PERF_SAMPLE_IP
    | bindings::PERF_SAMPLE_TID
    | bindings::PERF_SAMPLE_TIME
    | bindings::PERF_SAMPLE_CPU) as u64;

/// The registers in samples of this mode, as perf's bits: all that a recording has; in mode `fp` those that it keeps.
pub(crate) fn user_registers(mode: CaptureMode) -> u64 {
    let all = UserRegs::new(NATIVE, Abi::Bits64, &[1; MAX_REGISTERS]);
    let wanted = if mode == CaptureMode::Fp { all.of_leaf() } else { Some(all) };
    let numbers = wanted.iter().flat_map(|regs| regs.own().iter().zip(NATIVE.perf_registers()));
    numbers.filter(|&(&wanted, _)| wanted != 0).fold(0, |bits, (_, number)| bits | 1 << number)
}

impl PerfEvent {
    /// Opens a disabled event with stacks on one CPU, for a thread and its future descendants, or for everything that
    /// runs there.
    pub(crate) fn stacks(spec: &StackEvent, tid: Option<u32>, cpu: u32) -> io::Result<Self> {
        let mut attr = Self::sampling_attr(&spec.event, spec.sampling);
        let takes_chain = spec.mode.has_frame_pointers();
        let stack_bytes = match spec.mode {
            CaptureMode::Fp => None,
            CaptureMode::Dwarf { stack_bytes }
            | CaptureMode::Both { stack_bytes, .. }
            | CaptureMode::Cfi { stack_bytes, .. } => Some(stack_bytes),
        };
        attr.sample_type = SAMPLE_TYPE;
        // With a fixed period the kernel would sample every software event (`perf_swevent_event`, kernel/events/core.c).
        if matches!(spec.sampling, Sampling::FrequencyHz(_)) {
            attr.sample_type |= u64::from(bindings::PERF_SAMPLE_PERIOD);
        }
        if takes_chain || spec.kernel_stacks {
            attr.sample_type |= u64::from(bindings::PERF_SAMPLE_CALLCHAIN);
            attr.set_exclude_callchain_user(u64::from(!takes_chain));
            attr.set_exclude_callchain_kernel(u64::from(!spec.kernel_stacks));
        }
        attr.sample_regs_user = user_registers(spec.mode);
        if attr.sample_regs_user != 0 {
            attr.sample_type |= u64::from(bindings::PERF_SAMPLE_REGS_USER);
        }
        if let Some(bytes) = stack_bytes {
            attr.sample_type |= u64::from(bindings::PERF_SAMPLE_STACK_USER);
            attr.sample_stack_user = bytes;
        }
        if spec.counts_lost {
            attr.read_format |= u64::from(bindings::PERF_FORMAT_LOST);
        }
        attr.set_inherit(u64::from(tid.is_some()));
        attr.set_enable_on_exec(u64::from(spec.starts_on_exec));
        attr.set_exclude_kernel(u64::from(spec.excludes_kernel));
        attr.set_exclude_hv(u64::from(spec.excludes_kernel));
        attr.set_watermark(1);
        attr.__bindgen_anon_2.wakeup_watermark = spec.wakeup_bytes;
        Self::open(&mut attr, tid, cpu)
    }
}
