//! 32-bit x86.
//!
//! # Sources
//! System V psABI for Intel386 1.1, tables 2.3 (preserved registers) and 2.14 (DWARF numbers).

use super::Spec;

/// ebx, ebp, esi and edi are preserved.
const CALLEE_SAVED: u64 = 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7;

/// The facts.
pub(super) const SPEC: Spec = Spec {
    names: &["eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "eip"],
    sp: 4,
    fp: 5,
    ip: 8,
    lr: None,
    callee_saved: CALLEE_SAVED,
    word_bytes: 4,
    address_mask: u32::MAX as u64,
    return_address_mask: u32::MAX as u64,
    vendor: gimli::Vendor::Default,
};
