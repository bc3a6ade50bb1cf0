//! Tells the processor which memory will be read soon.
//!
//! A separate crate, so that the unwinder can forbid `unsafe`. An ordinary load is no substitute: it stays in the
//! reorder buffer until memory answers and blocks everything behind it. On 13,676 stacks of a block server and 7,980 of
//! a C compiler, flushed from the caches, sixteen interleaved walks take 3.9 and 7.7 ms with the hint, 6.3 and 11.6 ms
//! without.
#![no_std]

/// Hints that `items[index]` will be read soon. The hint affects nothing but time. It does nothing if `index` is out of
/// range or the processor has no such instruction.
#[inline]
pub fn prefetch<T>(items: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(item) = items.get(index) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is part of SSE, which every x86-64 processor has; it reads nothing the program
        //         could observe and cannot fault, and the address is that of an item borrowed here anyway.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(item).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, index);
}

#[cfg(test)]
mod tests {
    use super::prefetch;

    /// Check that any index is accepted, and that the items are unchanged.
    #[test]
    fn takes_any_index() {
        let bytes = [7u8; 100];
        for index in [0, 63, 99, 100, usize::MAX] {
            prefetch(&bytes, index);
        }
        prefetch::<u64>(&[], 0);
        assert_eq!(bytes, [7; 100]);
    }
}
