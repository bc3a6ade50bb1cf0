//! A sample to unwind, and the data that the walk starts from.

use crate::address_space::Place;
use crate::replay::PlacedSpace;
use fpprof_recording::model::{ChunkHole, NO_PROCESS, Sample, UserRegs};
use fpprof_unwind::{Chunk, Chunks, NoStackReason, Root, StopReason, TruncatedReason};

/// A sample and where it was taken.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// The sample.
    pub sample: &'a Sample,
    /// Its process.
    pub place: Place,
    /// Its address space.
    pub space: &'a PlacedSpace,
}

/// Holes in the unwinder's form: those of the chunk, and those of the interrupted stack's.
pub(super) type Holes = [Vec<(u32, u32)>; 2];

/// The stop reason of a sample without a user stack, if the recording contains the reason.
pub(super) fn no_stack_reason(sample: &Sample) -> Option<StopReason> {
    let reason = match (sample.in_exec, sample.entering_kernel) {
        (true, _) => NoStackReason::InExec,
        (false, true) => NoStackReason::EnteringKernel,
        (false, false) if sample.pid == NO_PROCESS => NoStackReason::Exiting,
        (false, false) => return None,
    };
    Some(StopReason::NoStack(reason))
}

/// The stop reason of a sample without a user stack: it is of a kernel thread, or of a program's exiting thread. For a
/// process without events it is not known which.
///
/// A program that had given up its memory before the recorder read its name from `/proc` still looks like a kernel
/// thread.
pub(super) fn without_stack(item: &Item<'_>) -> StopReason {
    match (item.place.process, item.place.may_be_of_kernel && is_gone(item)) {
        (_, true) => StopReason::Complete(Root::KernelThread),
        (Some(_), false) => StopReason::NoStack(NoStackReason::Exiting),
        (None, false) => StopReason::Truncated(TruncatedReason::ProcessGone),
    }
}

/// Whether no code of the process is known. Its addresses are meaningless then, so there are no frames: every return
/// address would look like data, and an intact stack broken.
pub(super) fn is_gone(item: &Item<'_>) -> bool {
    item.space.space.mappings().is_empty()
}

/// The registers to start from, or the stop reason if there is no walk.
pub(super) fn user_regs<'a>(item: &Item<'a>) -> Result<&'a UserRegs, StopReason> {
    if let Some(stop) = no_stack_reason(item.sample) {
        return Err(stop);
    }
    let regs = item.sample.user_regs.as_ref().ok_or_else(|| without_stack(item))?;
    if is_gone(item) { Err(StopReason::Truncated(TruncatedReason::ProcessGone)) } else { Ok(regs) }
}

/// The copied bytes of a sample's stacks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copied<'a> {
    pub(super) current: Chunk<'a>,
    pub(super) interrupted: Option<Chunk<'a>>,
}

impl Copied<'_> {
    /// The memory for a walk.
    pub(super) fn memory(&self) -> Chunks<'_> {
        Chunks { current: self.current, interrupted: self.interrupted.as_ref() }
    }
}

/// What would have been copied with at most `max_bytes` from the stack pointers up: the interrupted stack gets what the
/// current one leaves.
pub(super) fn copied<'a>(sample: &'a Sample, [here, there]: &'a Holes, max_bytes: usize) -> Copied<'a> {
    let left = max_bytes.saturating_sub(sample.stack_from_sp().len());
    let up_to = |bytes: &'a [u8], below: u8, n: usize| bytes.get(..n.saturating_add(below.into())).unwrap_or(bytes);
    let current = Chunk {
        start: sample.stack_start(),
        bytes: up_to(&sample.stack, sample.bytes_below_sp, max_bytes),
        stack_end: sample.stack_end.map(|end| end.address),
        holes: here,
    };
    let interrupted = sample.interrupted.as_ref().map(|own| Chunk {
        start: own.stack_start(),
        bytes: if left == 0 { &[] } else { up_to(&own.stack, own.bytes_below_sp, left) },
        stack_end: own.stack_end.map(|end| end.address),
        holes: there,
    });
    Copied { current, interrupted }
}

pub(super) fn holes(sample: &Sample) -> Holes {
    let pairs = |holes: &[ChunkHole]| holes.iter().map(|hole| (hole.offset, hole.len)).collect();
    [pairs(&sample.stack_holes), sample.interrupted.as_ref().map_or(Vec::new(), |own| pairs(&own.stack_holes))]
}
