//! The memory of the allocator.

/// Returns freed memory to the kernel; does nothing with other C libraries than glibc.
///
/// By itself, glibc keeps what is free in the middle of its heaps and, once large buffers were freed, up to 64 MiB at the end of
/// each: a process that needs much memory for a moment of each minute would have it all the time.
///
/// # Sources
/// `malloc_trim(3)`; `mallopt(3)`, `M_TRIM_THRESHOLD` and `M_MMAP_THRESHOLD`, which grow with freed buffers.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: It takes the allocator's locks and touches free memory alone.
        unsafe { libc::malloc_trim(0) };
    }
}
