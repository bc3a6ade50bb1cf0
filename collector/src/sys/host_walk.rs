//! The kernel's walk by call frame information, compiled for the host.

use crate::bpf::types::{cfi_end, cfi_frame, limit};
use fpprof_recording::model::CfiFrame;
use std::ffi::c_void;

/// As in `bpf/host_walk.c`.
#[repr(C)]
struct StackCopy {
    copy: *const u8,
    start: u64,
    bytes: u64,
}

/// As in `bpf/host_walk.c`.
#[repr(C)]
struct HostWalk {
    find_rule: unsafe extern "C" fn(*mut c_void, u64, *mut u64) -> u32,
    read_code: unsafe extern "C" fn(*mut c_void, *mut u64, u64) -> i32,
    context: *mut c_void,
    stacks: [StackCopy; 2],
    stack_ends: [u64; 2],
}

unsafe extern "C" {
    fn fpprof_host_walk(
        input: *mut HostWalk,
        registers: *const [u64; 3],
        frames: *mut cfi_frame,
        n_frames: *mut u32,
    ) -> u32;
}

const MAX_FRAMES: usize = limit::MAX_FRAMES.0 as usize;

/// The code of a process.
pub(crate) struct HostCode<R, C> {
    /// Returns the rule of the code at an address.
    pub(crate) rule: R,
    /// Returns the bytes before a return address; see [`crate::walk_copied_stack`].
    pub(crate) before: C,
}

/// Walks from these registers (ip, sp, fp) over the bytes of two stacks, each with its start, and with its end or 0;
/// returns `enum cfi_end` and all frames of a complete walk, or none.
pub(crate) fn host_walk<R, C>(
    registers: [u64; 3],
    stacks: [(u64, &[u8]); 2],
    stack_ends: [u64; 2],
    code: &mut HostCode<R, C>,
) -> (cfi_end, Vec<CfiFrame>)
where
    R: FnMut(u64) -> Option<u64>,
    C: FnMut(u64) -> Option<Option<[u8; 8]>>,
{
    let mut frames = [cfi_frame { address: 0, cfa: 0 }; MAX_FRAMES];
    let mut n_frames = 0;
    let context: *mut HostCode<R, C> = code;
    let mut input = HostWalk {
        find_rule: find_rule::<R, C>,
        read_code: read_code::<R, C>,
        context: context.cast(),
        stacks: stacks.map(|(start, copy)| StackCopy { copy: copy.as_ptr(), start, bytes: copy.len() as u64 }),
        stack_ends,
    };
    // SAFETY: all pointers are those of values that live until the call returns; the C code writes at most MAX_FRAMES frames,
    //         reads at most `bytes` of each `copy`, and calls the functions with `context` alone.
    let end = unsafe { fpprof_host_walk(&raw mut input, &raw const registers, frames.as_mut_ptr(), &raw mut n_frames) };
    let frames = frames.iter().take(n_frames as usize);
    (cfi_end(end), frames.map(|frame| crate::decode::cfi_frame(frame.address, frame.cfa)).collect())
}

/// # Safety
/// `context` is the code that [`host_walk`] was given, and `rule` can be written.
unsafe extern "C" fn find_rule<R: FnMut(u64) -> Option<u64>, C>(
    context: *mut c_void,
    address: u64,
    rule: *mut u64,
) -> u32 {
    // SAFETY: as above; nobody else uses the code during the call.
    let code = unsafe { &mut *context.cast::<HostCode<R, C>>() };
    match (code.rule)(address) {
        Some(found) => {
            // SAFETY: as above.
            unsafe { *rule = found };
            cfi_end::CFI_END_NONE.0
        }
        None => cfi_end::CFI_MISS_NO_RULE.0,
    }
}

/// As `READ_CODE` in `bpf/cfi_walk.bpf.h`.
///
/// # Safety
/// As for [`find_rule`], with `bytes` to be written.
unsafe extern "C" fn read_code<R, C: FnMut(u64) -> Option<Option<[u8; 8]>>>(
    context: *mut c_void,
    bytes: *mut u64,
    address: u64,
) -> i32 {
    // SAFETY: as above.
    let code = unsafe { &mut *context.cast::<HostCode<R, C>>() };
    match (code.before)(address) {
        Some(Some(found)) => {
            // SAFETY: as above.
            unsafe { *bytes = u64::from_le_bytes(found) };
            0
        }
        Some(None) => -1,
        None => 1,
    }
}
