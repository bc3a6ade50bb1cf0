//! The C side: declarations of what is called, and thin types over it that are safe to use.

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
