//! A small private cache of rules in front of the shared one.

use alloc::boxed::Box;
use alloc::vec;

use crate::rule::Rule;

/// Number of cached rules, as a power of two: 128 KiB.
const SLOT_BITS: u32 = 13;
const N_SLOTS: usize = 1 << SLOT_BITS;
/// Bits of a user-space address.
const ADDRESS_BITS: u32 = 47;

/// A direct-mapped cache in front of the shared table: a look-up is one comparison. Allocated with the unwinder, since
/// checking in each look-up whether it exists takes two to three per cent of all instructions.
#[derive(Debug)]
pub(super) struct NearRules {
    slots: Box<[Slot; N_SLOTS]>,
}

impl Default for NearRules {
    fn default() -> Self {
        // From a vector, since an array would be built on the stack first. The length is right, so this never fails.
        let slots = vec![Slot::EMPTY; N_SLOTS].into_boxed_slice();
        Self { slots: slots.try_into().unwrap_or_else(|_| Box::new([Slot::EMPTY; N_SLOTS])) }
    }
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    key: u64,
    rule: Rule,
}

impl Slot {
    /// No key equals this one.
    const EMPTY: Self = Self { key: u64::MAX, rule: Rule::EMPTY };
}

/// Space and address in one word, without loss: two keys never collide. `None` for addresses outside user space and for
/// spaces from 2^17 − 1 on, which always use the shared table.
#[inline]
fn key(space: u32, avma: u64) -> Option<u64> {
    let is_whole = avma >> ADDRESS_BITS == 0 && space < (1 << (64 - ADDRESS_BITS)) - 1;
    is_whole.then_some(u64::from(space) << ADDRESS_BITS | avma)
}

#[inline]
fn number(key: u64) -> usize {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOT_BITS);
    usize::try_from(mixed).unwrap_or(0)
}

impl NearRules {
    /// The rule of an address, or [`Rule::EMPTY`].
    #[inline]
    pub(super) fn find(&self, space: u32, avma: u64) -> Rule {
        let Some(key) = key(space, avma) else { return Rule::EMPTY };
        match self.slots.get(number(key)) {
            Some(slot) if slot.key == key => slot.rule,
            _ => Rule::EMPTY,
        }
    }

    /// Caches a rule; it may replace another.
    pub(super) fn insert(&mut self, space: u32, avma: u64, rule: Rule) {
        let Some(key) = key(space, avma) else { return };
        if let Some(slot) = self.slots.get_mut(number(key)) {
            *slot = Slot { key, rule };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ADDRESS_BITS, NearRules};
    use crate::rule::Rule;

    /// Check that a rule is found by its own space and address only, and that the top bits of an address are not taken
    /// for a space.
    #[test]
    fn finds_only_what_it_was_given() {
        const AVMA: u64 = 0x7fff_dead_beef;
        let rule = Rule::from_bits(0x1_0000_0008);
        let mut near = NearRules::default();
        assert_eq!(near.find(0, 0), Rule::EMPTY);
        near.insert(5, AVMA, rule);
        assert_eq!(near.find(5, AVMA), rule);
        for (space, avma) in [(4, AVMA), (5, AVMA + 1), (0, 5 << ADDRESS_BITS | AVMA), (5, 1 << 63 | AVMA)] {
            assert_eq!(near.find(space, avma), Rule::EMPTY, "{space} {avma:#x}");
        }
        for (space, avma) in [(u32::MAX, AVMA), ((1 << 17) - 1, (1 << 47) - 1), (5, 1 << 47)] {
            near.insert(space, avma, rule);
            assert_eq!(near.find(space, avma), Rule::EMPTY, "{space} {avma:#x}");
        }
        assert_eq!(near.find(0, 0), Rule::EMPTY);
    }
}
