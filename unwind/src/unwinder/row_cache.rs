//! A cache of rows for walks with all registers.

use alloc::vec::Vec;

use super::code::{Code, CodeRow, NO_CFI};
use super::resolve::name_end;
use super::{plt, trampoline};
use crate::cfi::Scratch;
use crate::space::{ModuleId, Modules};
use crate::stack::{BrokenReason, StopReason};

/// Half a MiB, allocated on first use: few programs have many such rows.
const N_SLOTS: usize = 1024;

/// A direct-mapped table from (module, address) to row.
#[derive(Debug, Default)]
pub(super) struct RowCache {
    slots: Vec<Slot>,
}

#[derive(Debug, Clone)]
struct Slot {
    key: Option<(ModuleId, u64)>,
    row: Result<CodeRow, StopReason>,
}

impl RowCache {
    /// The row that covers an address, or why a walk stops.
    pub(super) fn find<M: Modules + ?Sized>(
        &mut self,
        modules: &M,
        code: &Code<'_>,
        scratch: &mut Scratch,
    ) -> Result<&CodeRow, StopReason> {
        const NONE: Result<CodeRow, StopReason> = Err(NO_CFI);
        if self.slots.is_empty() {
            self.slots.resize(N_SLOTS, Slot { key: None, row: NONE });
        }
        let mixed = (code.svma ^ u64::from(code.id.0) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The ten highest bits are always a valid slot.
        let slot = usize::try_from(mixed >> 54).ok().and_then(|number| self.slots.get_mut(number));
        let Some(slot) = slot else { return Err(StopReason::Broken(BrokenReason::BadCfi)) };
        let key = Some((code.id, code.svma));
        if slot.key != key {
            slot.row = match code.row(scratch) {
                Ok(row) if row.is_outermost() => match name_end(modules, code, StopReason::Complete(row.root)) {
                    StopReason::Complete(root) => Ok(CodeRow { root, ..row }),
                    _ => Ok(row),
                },
                Ok(row) => Ok(row),
                Err(stop) => match name_end(modules, code, stop) {
                    NO_CFI => trampoline::row(modules, code).or_else(|| plt::row(modules, code)).ok_or(NO_CFI),
                    stop => Err(stop),
                },
            };
            slot.key = key;
        }
        slot.row.as_ref().map_err(|stop| *stop)
    }
}
