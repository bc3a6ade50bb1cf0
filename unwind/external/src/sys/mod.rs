//! Bindings to the C libraries: declarations, and thin safe wrappers.

#[cfg(feature = "libdw")]
pub(crate) mod libdw;
#[cfg(feature = "libdw")]
mod libdw_ffi;
#[cfg(feature = "libunwind")]
pub(crate) mod libunwind;
#[cfg(feature = "libunwind")]
mod libunwind_ffi;
mod memory_file;

pub(crate) use memory_file::memory_file;
