//! AMD64.
//!
//! # Sources
//! System V psABI for AMD64, figures 3.4 (preserved registers) and 3.36 (DWARF numbers).

use super::Spec;

/// rbx, rbp, rsp and r12–r15 are preserved.
const CALLEE_SAVED: u64 = 1 << 3 | 1 << 6 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 15;

/// The facts.
pub(super) const SPEC: Spec = Spec {
    names: &[
        "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
        "rip",
    ],
    sp: 7,
    fp: 6,
    ip: 16,
    lr: None,
    callee_saved: CALLEE_SAVED,
    word_bytes: 8,
    address_mask: u64::MAX,
    return_address_mask: u64::MAX,
    vendor: gimli::Vendor::Default,
};
