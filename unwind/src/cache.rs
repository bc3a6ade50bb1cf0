//! Rules remembered by address.

use alloc::boxed::Box;
use alloc::vec;

use crate::rule::Rule;

/// Two slots for every value of 15 bits: 1 MiB, which stays in the second-level cache.
const N_SETS: usize = 1 << 15;

/// A table from (space, address) to rule. An address has two slots it may be in, side by side in a cache line.
#[derive(Debug)]
pub(crate) struct RuleCache {
    sets: Box<[[Slot; 2]; N_SETS]>,
}

/// `tag` and the set's number together are the whole key: nothing is ever taken for something else.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    tag: u64,
    rule: Rule,
}

impl RuleCache {
    pub(crate) fn new() -> Self {
        let sets = vec![[Slot::default(); 2]; N_SETS].into_boxed_slice();
        match sets.try_into() {
            Ok(sets) => Self { sets },
            Err(_) => Self { sets: Box::new([[Slot::default(); 2]; N_SETS]) },
        }
    }

    /// The rule of an address, [`Rule::EMPTY`] where there is none.
    #[inline]
    pub(crate) fn find(&self, space: u32, avma: u64) -> Rule {
        let Some((tag, number)) = place(space, avma) else { return Rule::EMPTY };
        match self.sets.get(number) {
            Some([slot, _]) if slot.tag == tag => slot.rule,
            Some([_, slot]) if slot.tag == tag => slot.rule,
            _ => Rule::EMPTY,
        }
    }

    /// Remembers a rule in the place of the older of two.
    pub(crate) fn insert(&mut self, space: u32, avma: u64, rule: Rule) {
        let Some((tag, number)) = place(space, avma) else { return };
        if let Some(set) = self.sets.get_mut(number) {
            *set = [Slot { tag, rule }, set[0]];
        }
    }
}

/// Tag and number of an address' set. The tag has the space and all bits of the address but the last fifteen, and the
/// number is these fifteen, mixed with the tag: addresses of one 32 KiB have sets of their own. Addresses from 2^47
/// on, which are none of user space, have none.
#[inline]
fn place(space: u32, avma: u64) -> Option<(u64, usize)> {
    let high = u32::try_from(avma >> 15).ok()?;
    let tag = u64::from(space) << 32 | u64::from(high);
    let [.., mix_low, mix_high] = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let [low, high, ..] = avma.to_le_bytes();
    let number = u16::from_le_bytes([low, high]) ^ u16::from_le_bytes([mix_low, mix_high]);
    Some((tag, usize::from(number & 0x7fff)))
}
