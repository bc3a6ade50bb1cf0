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

/// Makes the allocator return large buffers when they are freed, for a process that runs for days; does nothing with other C
/// libraries than glibc. Call it before threads are started.
///
/// By itself, glibc raises the size from which buffers have memory of their own with each one that is freed, up to 32 MiB, and
/// gives threads heaps of their own, up to eight times the CPUs; each keeps what was freed in its middle.
///
/// # Sources
/// `mallopt(3)`: `M_MMAP_THRESHOLD`, `M_TRIM_THRESHOLD` and `M_ARENA_MAX`.
pub fn keep_little_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (option, value) in
        [(libc::M_MMAP_THRESHOLD, 256 << 10), (libc::M_TRIM_THRESHOLD, 512 << 10), (libc::M_ARENA_MAX, 2)]
    {
        // SAFETY: It sets numbers of the allocator. A value that it refuses changes nothing.
        unsafe { libc::mallopt(option, value) };
    }
}
