//! Tells the processor which memory will be read soon.
//!
//! A crate of its own, so that the unwinder can forbid `unsafe`. An ordinary load is no substitute: it keeps its place
//! in the reorder buffer until memory answers, and with it everything behind. On 13,676 stacks of a block server and
//! 7,980 of a C compiler, flushed from the caches, sixteen walks in turn take 3.9 and 7.7 ms with the hint, 6.3 and
//! 11.6 ms without.
#![no_std]

/// Hints that `bytes` will be read at `offset`. Nothing can be observed of it but time; an offset beyond the end, or
/// a processor without such a hint, makes it do nothing.
#[inline]
pub fn prefetch(bytes: &[u8], offset: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if let Some(byte) = bytes.get(offset) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is part of SSE, which every x86-64 processor has; it reads nothing the program
        //         could observe and cannot fault, and the address is that of a byte borrowed here anyway.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(byte).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (bytes, offset);
}

#[cfg(test)]
mod tests {
    use super::prefetch;

    /// Check that any offset is taken, and that bytes are what they were.
    #[test]
    fn takes_any_offset() {
        let bytes = [7u8; 100];
        for offset in [0, 63, 99, 100, usize::MAX] {
            prefetch(&bytes, offset);
        }
        prefetch(&[], 0);
        assert_eq!(bytes, [7; 100]);
    }
}
