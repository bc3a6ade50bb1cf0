//! Differences between the recorded architectures.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{NATIVE, configure, is_32, return_address_mask, values};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{NATIVE, configure, is_32, return_address_mask, values};
