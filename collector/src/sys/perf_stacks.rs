//! Perf events that write samples with stacks into their ring.

use super::PerfEvent;
use crate::arch::NATIVE;
use crate::event::Event;
use fpprof_recording::model::{Abi, CaptureMode, MAX_REGISTERS, Sampling, UserRegs};
use perf_event_open_sys::bindings;
use std::io;

/// What a sampling event with stacks is to do.
#[derive(Debug, Clone)]
pub(crate) struct StackEvent {
    pub(crate) event: Event,
    pub(crate) sampling: Sampling,
    pub(crate) mode: CaptureMode,
    /// Take the kernel's chain too.
    pub(crate) kernel_stacks: bool,
    /// Do not fire in the kernel at all: all that ordinary users may.
    pub(crate) excludes_kernel: bool,
    /// Begin with the thread's next exec, rather than by [`PerfEvent::enable`].
    pub(crate) starts_on_exec: bool,
    /// So many bytes in the ring wake the reader.
    pub(crate) wakeup_bytes: u32,
    /// Let the kernel count what it loses (since 6.0); else only its records say so.
    pub(crate) counts_lost: bool,
}

/// What a sample holds, in the order of the bits of `enum perf_event_sample_format` but for the first, see
/// `perf_event::decode`.
const SAMPLE_TYPE: u64 = (bindings::PERF_SAMPLE_IDENTIFIER
    | bindings::PERF_SAMPLE_IP
    | bindings::PERF_SAMPLE_TID
    | bindings::PERF_SAMPLE_TIME
    | bindings::PERF_SAMPLE_CPU
    | bindings::PERF_SAMPLE_PERIOD) as u64;

/// perf's registers that samples of this mode have: all that a recording has; in mode `fp` what it keeps there.
pub(crate) fn user_registers(mode: CaptureMode) -> u64 {
    let all = UserRegs::new(NATIVE, Abi::Bits64, &[1; MAX_REGISTERS]);
    let wanted = if mode == CaptureMode::Fp { all.of_leaf() } else { Some(all) };
    let numbers = wanted.iter().flat_map(|regs| regs.own().iter().zip(NATIVE.perf_registers()));
    numbers.filter(|&(&wanted, _)| wanted != 0).fold(0, |bits, (_, number)| bits | 1 << number)
}

impl PerfEvent {
    /// Opens an event with stacks for a thread and all that will descend from it, or for all that runs, on one CPU.
    /// It is disabled.
    pub(crate) fn stacks(spec: &StackEvent, tid: Option<u32>, cpu: u32) -> io::Result<Self> {
        let mut attr = Self::sampling_attr(&spec.event, spec.sampling);
        let takes_chain = spec.mode.has_frame_pointers();
        let stack_bytes = match spec.mode {
            CaptureMode::Fp => None,
            CaptureMode::Dwarf { stack_bytes }
            | CaptureMode::Both { stack_bytes }
            | CaptureMode::Cfi { stack_bytes, .. } => Some(stack_bytes),
        };
        attr.sample_type = SAMPLE_TYPE;
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
