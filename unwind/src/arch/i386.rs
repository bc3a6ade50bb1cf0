//! 32-bit x86.
//!
//! # Sources
//! System V psABI for Intel386 1.1, tables 2.3 (preserved registers) and 2.14 (DWARF numbers). Roots: glibc
//! `sysdeps/unix/sysv/linux/i386/{clone,makecontext}.S`.

use super::spec::has_system_call;
use super::{ROOT_CODE_BYTES, START_CODE_BYTES, Spec};
use crate::stack::Root;

/// ebx, ebp, esi and edi are preserved.
const CALLEE_SAVED: u64 = 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7;

/// The i386 description.
pub(super) const SPEC: Spec = Spec {
    names: &["eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "eip"],
    sp: 4,
    fp: 5,
    ip: 8,
    lr: None,
    callee_saved: CALLEE_SAVED,
    word_bytes: 4,
    red_zone_bytes: 0,
    address_mask: u32::MAX as u64,
    return_address_mask: u32::MAX as u64,
    vendor: gimli::Vendor::Default,
    root_of,
    starts_thread,
    ends_with_call: super::x86_64::ends_with_call,
    // int $0x80
    ends_with_system_call: |before| matches!(before, [.., 0xcd, 0x80]),
    signal_frame: |_| None,
    plt_cfa: |_, _| None,
};

/// `call *%ebx`, `call *%ecx`, `call *%edx` of the thread's function, after a `clone` or `clone3` system call.
fn starts_thread(before: &[u8; START_CODE_BYTES]) -> bool {
    const CLONE: &[&[u8]] = &[&[0xb8, 120, 0, 0, 0], &[0xb0, 120], &[0xb8, 0xb3, 1, 0, 0]];
    matches!(before, [.., 0xff, 0xd0..=0xd7]) && has_system_call(before, CLONE, &[0xcd, 0x80])
}

fn root_of(code: &[u8; ROOT_CODE_BYTES]) -> Option<Root> {
    match code {
        // mov %eax,%ebx; mov $SYS_exit,%eax; then call *%gs:0x10 or int $0x80.
        [0x89, 0xc3, 0xb8, 1, 0, 0, 0, 0x65, 0xff, 0x15, 0x10, ..] | [0x89, 0xc3, 0xb8, 1, 0, 0, 0, 0xcd, 0x80, ..] => {
            Some(Root::ThreadStart)
        }
        // lea (%esp,%ebx,4),%esp; cmpl $0,(%esp)
        [0x8d, 0x24, 0x9c, 0x83, 0x3c, 0x24, 0, ..] => Some(Root::StartContext),
        _ => None,
    }
}
