//! Rules remembered by address.

use alloc::boxed::Box;
use alloc::vec;

use crate::rule::Rule;

/// One slot for every value of 16 bits: 1 MiB, which stays in the second-level cache.
const N_SLOTS: usize = 1 << 16;

/// A direct-mapped table from (space, address) to rule.
#[derive(Debug)]
pub(crate) struct RuleCache {
    slots: Box<[Slot; N_SLOTS]>,
}

/// `tag` and the slot's number together are the whole key: nothing is ever taken for something else.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    tag: u64,
    rule: Rule,
}

impl RuleCache {
    pub(crate) fn new() -> Self {
        let slots = vec![Slot::default(); N_SLOTS].into_boxed_slice();
        match slots.try_into() {
            Ok(slots) => Self { slots },
            Err(_) => Self { slots: Box::new([Slot::default(); N_SLOTS]) },
        }
    }

    /// The rule of an address, [`Rule::EMPTY`] where there is none.
    #[inline]
    pub(crate) fn find(&self, space: u32, avma: u64) -> Rule {
        let Some((tag, number)) = place(space, avma) else { return Rule::EMPTY };
        match self.slots.get(usize::from(number)) {
            Some(slot) if slot.tag == tag => slot.rule,
            _ => Rule::EMPTY,
        }
    }

    /// Hints that the rule of an address will be asked for.
    #[inline]
    pub(crate) fn prefetch(&self, space: u32, avma: u64) {
        if let Some((_, number)) = place(space, avma) {
            fpprof_prefetch::prefetch(self.slots.as_slice(), usize::from(number));
        }
    }

    /// Remembers a rule in the place of another.
    pub(crate) fn insert(&mut self, space: u32, avma: u64, rule: Rule) {
        let Some((tag, number)) = place(space, avma) else { return };
        if let Some(slot) = self.slots.get_mut(usize::from(number)) {
            *slot = Slot { tag, rule };
        }
    }
}

/// Tag and number of an address' slot. The tag has the space and all bits of the address but the last sixteen, and the
/// number is these sixteen, mixed with the tag: addresses of one 64 KiB never collide. Addresses above 2^48 have none.
#[inline]
fn place(space: u32, avma: u64) -> Option<(u64, u16)> {
    let high = u32::try_from(avma >> 16).ok()?;
    let tag = u64::from(space) << 32 | u64::from(high);
    let [.., mix_low, mix_high] = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let [low, high, ..] = avma.to_le_bytes();
    Some((tag, u16::from_le_bytes([low, high]) ^ u16::from_le_bytes([mix_low, mix_high])))
}
