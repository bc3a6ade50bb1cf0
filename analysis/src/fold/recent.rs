//! A cache of recent frames: stacks share most frames with previous ones.

use super::frame::{locate, origin};
use super::{FrameKey, Where};
use crate::folded::Origin;
use crate::replay::PlacedSpace;
use fpprof_unwind::{Frame, Modules};

/// Number of cached frames, 32 bytes each: they fit in a core's cache.
const N_SLOTS: usize = 2048;

/// A direct-mapped table from (space, address, origin) to the number of the frame.
#[derive(Debug, Default)]
pub(super) struct Recent(Vec<Slot>);

#[derive(Debug, Clone, Copy)]
struct Slot {
    space: u32,
    number: u32,
    address: u64,
    origin: Origin,
    is_return: bool,
}

impl Recent {
    /// The number of a frame at a time. `number` computes it if it is not cached.
    pub(super) fn number(
        &mut self,
        frame: &Frame,
        space: &PlacedSpace,
        modules: &impl Modules,
        time_ns: u64,
        number: impl FnOnce(FrameKey) -> u32,
    ) -> u32 {
        let (id, address, origin) = (space.space.id(), frame.lookup(), origin(frame));
        let is_return = !frame.flags.is_instruction;
        let mixed = (address ^ u64::from(id) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if self.0.is_empty() {
            // An empty slot: 0 is the id of the empty space, which has no frames.
            let none = Slot { space: 0, number: 0, address: 0, origin: Origin::Inlined, is_return: false };
            self.0 = vec![none; N_SLOTS];
        }
        // The eleven highest bits are always a valid slot.
        let slot = usize::try_from(mixed >> 53).ok().and_then(|at| self.0.get_mut(at));
        match slot {
            Some(slot)
                if (slot.space, slot.address, slot.origin, slot.is_return) == (id, address, origin, is_return) =>
            {
                slot.number
            }
            slot => {
                let place = locate(frame, space, modules, time_ns);
                let number = number(FrameKey { place, origin, is_return });
                // A place in a dump may have another meaning at another time.
                let is_for_all_times = !matches!(place, Where::Compiled(..)) || !space.has_dump();
                if let Some(slot) = slot.filter(|_| is_for_all_times) {
                    *slot = Slot { space: id, number, address, origin, is_return };
                }
                number
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Interned;
    use super::*;
    use fpprof_unwind::{FrameFlags, FrameSource, Mapping, ModuleId, Space};

    /// The bias of each mapping is that of its module.
    const NO_MODULES: Vec<fpprof_unwind::Module> = Vec::new();

    fn space(id: u32, module: u32) -> PlacedSpace {
        let mapping =
            Mapping { start: 0x1000, end: 0x9_0000, executable: true, module: Some(ModuleId(module)), bias: 0 };
        PlacedSpace::new(Space::new(id, vec![mapping]))
    }

    /// Check that the cache does not change the number of a frame, whatever spaces, addresses or origins precede it,
    /// and however many.
    #[test]
    fn numbers_are_those_of_the_frames() {
        let spaces = [space(0, 0), space(1, 1), space(2, 0)];
        let (mut recent, mut known, mut plain) = (Recent::default(), Interned::default(), Interned::default());
        for address in (0x1000..0x8_0000).step_by(16).chain((0x1000..0x8_0000).step_by(512)) {
            for (space, source) in spaces.iter().zip([FrameSource::Cfi, FrameSource::FramePointer, FrameSource::Cfi]) {
                for is_instruction in [false, true] {
                    let flags = FrameFlags { is_instruction, ..FrameFlags::default() };
                    let frame = Frame { address, cfa: 0, source, flags };
                    let is_return = !frame.flags.is_instruction;
                    let key =
                        FrameKey { place: locate(&frame, space, &NO_MODULES, 0), origin: origin(&frame), is_return };
                    let number = recent.number(&frame, space, &NO_MODULES, 0, |key| known.number(key));
                    assert_eq!(number, plain.number(key));
                }
            }
        }
        let nowhere = Frame { address: 0, cfa: 0, source: FrameSource::Registers, flags: FrameFlags::default() };
        assert_eq!(recent.number(&nowhere, &spaces[0], &NO_MODULES, 0, |_| 77), 77);
    }
}
