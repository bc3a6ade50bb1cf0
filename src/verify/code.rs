//! A cache of what the instruction at an address does.

use super::breakpoints::Breakpoints;
use fpprof_analysis::oracle::{Flow, MAX_INSTRUCTION_BYTES, flow};

/// Number of cached instructions, indexed by the low bits of their address. A loop of up to this many is never decoded
/// twice.
const SLOTS: usize = 1 << 16;

/// A cache of decoded instructions. It is emptied whenever mappings change. The caller says which memory can be
/// modified without a change of its protection; instructions there are not cached.
#[derive(Debug)]
pub(super) struct Code {
    slots: Vec<Option<(u64, Flow)>>,
}

impl Code {
    pub(super) fn new() -> Self {
        Self { slots: vec![None; SLOTS] }
    }

    pub(super) fn clear(&mut self) {
        self.slots.fill(None);
    }

    /// Returns what the instruction at `ip` does.
    pub(super) fn at(&mut self, ip: u64, breakpoints: &Breakpoints, may_change: impl FnOnce() -> bool) -> Flow {
        let index = usize::try_from(ip).unwrap_or(0) % SLOTS;
        if let Some(Some((address, flow))) = self.slots.get(index)
            && *address == ip
        {
            return *flow;
        }
        let mut bytes = [0; MAX_INSTRUCTION_BYTES];
        let n = breakpoints.memory.read(ip, &mut bytes);
        breakpoints.restore(ip, &mut bytes);
        let flow = flow(bytes.get(..n).unwrap_or(&[]), ip);
        // What cannot be read now may be readable later.
        if n > 0
            && !may_change()
            && let Some(slot) = self.slots.get_mut(index)
        {
            *slot = Some((ip, flow));
        }
        flow
    }
}
