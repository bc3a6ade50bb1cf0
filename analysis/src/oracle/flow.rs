//! Classifies an instruction by what it does to the call stack.

use super::transfer::sets_stack_pointer;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};

/// The longest instruction.
///
/// # Sources
/// Intel SDM vol. 2, §2.3.11: 15 bytes.
pub const MAX_INSTRUCTION_BYTES: usize = 15;
/// The shortest call: `call *%rax`.
const MIN_CALL_BYTES: usize = 2;

/// What an instruction means for a shadow stack. x86-64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Pushes its return address and jumps.
    Call {
        /// The address after the call, which it pushes.
        return_address: u64,
    },
    /// A call of the next instruction, which reads the instruction pointer and is not a real call.
    ReadIp,
    /// Pops an address and jumps there.
    Return,
    /// An indirect jump; does not change the stack.
    Jump,
    /// Sets the stack pointer to a value other than its old one plus an offset.
    SetStackPointer,
    /// Enters the kernel.
    Syscall,
    /// Raises SIGTRAP.
    Breakpoint,
    /// Pushes the flags, with the trap flag of whoever steps it.
    PushFlags,
    /// Pops the flags.
    PopFlags,
    /// Anything else.
    Other,
}

/// Classifies the instruction at `ip`; `bytes` are the code there. Invalid instructions are [`Flow::Other`]: the
/// program gets SIGILL.
#[must_use]
pub fn flow(bytes: &[u8], ip: u64) -> Flow {
    let mut decoder = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE);
    let instruction = decoder.decode();
    match instruction.mnemonic() {
        // The target of an indirect near branch is 0.
        Mnemonic::Call if instruction.near_branch_target() == instruction.next_ip() => Flow::ReadIp,
        Mnemonic::Call => Flow::Call { return_address: instruction.next_ip() },
        Mnemonic::Ret => Flow::Return,
        // A direct jump stays in its function, or is a tail call.
        Mnemonic::Jmp if instruction.is_jmp_short_or_near() => Flow::Other,
        Mnemonic::Jmp => Flow::Jump,
        Mnemonic::Syscall => Flow::Syscall,
        Mnemonic::Int3 | Mnemonic::Int | Mnemonic::Int1 => Flow::Breakpoint,
        Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq => Flow::PushFlags,
        Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq => Flow::PopFlags,
        // A stack frame of variable size.
        Mnemonic::Sub | Mnemonic::Add | Mnemonic::And => Flow::Other,
        _ if sets_stack_pointer(&instruction) => Flow::SetStackPointer,
        _ => Flow::Other,
    }
}

/// Whether a call ends at the end of `bytes`, which precede `address`.
#[must_use]
pub fn ends_in_call(bytes: &[u8], address: u64) -> bool {
    (MIN_CALL_BYTES..=bytes.len()).any(|len| {
        let (Some(start), Some(call)) = (address.checked_sub(len as u64), bytes.get(bytes.len().saturating_sub(len)..))
        else {
            return false;
        };
        let instruction = Decoder::with_ip(64, call, start, DecoderOptions::NONE).decode();
        instruction.mnemonic() == Mnemonic::Call && instruction.len() == len
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every kind of call is recognised, with its return address, with or without prefixes.
    #[test]
    fn calls_push_the_address_after_them() {
        let calls: [&[u8]; 6] = [
            &[0xe8, 0x10, 0, 0, 0],                // call +0x10
            &[0xff, 0xd0],                         // call *%rax
            &[0x41, 0xff, 0x14, 0xdc],             // call *(%r12,%rbx,8)
            &[0xff, 0x15, 0, 0, 0, 0],             // call *0(%rip)
            &[0x3e, 0xff, 0xd2],                   // notrack call *%rdx
            &[0x66, 0x66, 0x48, 0xe8, 4, 0, 0, 0], // data16 data16 rex.W call: the way to __tls_get_addr
        ];
        for bytes in calls {
            let padded = [bytes, &[0x90; MAX_INSTRUCTION_BYTES]].concat();
            let return_address = 0x1000 + bytes.len() as u64;
            assert_eq!(flow(&padded, 0x1000), Flow::Call { return_address }, "{bytes:x?}");
        }
    }

    /// Check that a call before an address is recognised, and that other bytes are not.
    #[test]
    fn calls_before_addresses_are_seen() {
        assert!(ends_in_call(&[0x90, 0x90, 0xe8, 0x10, 0, 0, 0], 0x1000));
        assert!(ends_in_call(&[0, 0, 0xff, 0xd0], 0x1000));
        assert!(!ends_in_call(&[0x90, 0xc3, 0x0f, 0x1f, 0x40, 0], 0x1000));
        assert!(!ends_in_call(&[], 0x1000));
    }

    /// Check that a call of the next instruction is not a call, that jumps and returns are distinguished, and that
    /// invalid or truncated instructions do nothing.
    #[test]
    fn others_are_what_they_are() {
        assert_eq!(flow(&[0xe8, 0, 0, 0, 0, 0x58], 0x1000), Flow::ReadIp);
        assert_eq!(flow(&[0xc3], 0), Flow::Return);
        assert_eq!(flow(&[0xf3, 0xc3], 0), Flow::Return);
        assert_eq!(flow(&[0xc2, 8, 0], 0), Flow::Return);
        assert_eq!(flow(&[0xff, 0xe0], 0), Flow::Jump);
        assert_eq!(flow(&[0xeb, 0], 0), Flow::Other);
        assert_eq!(flow(&[0x48, 0x89, 0xfc], 0), Flow::SetStackPointer, "mov %rdi,%rsp");
        assert_eq!(flow(&[0x5c], 0), Flow::SetStackPointer, "pop %rsp");
        assert_eq!(flow(&[0x48, 0x29, 0xc4], 0), Flow::Other, "sub %rax,%rsp");
        assert_eq!(flow(&[0xc9], 0), Flow::Other, "leave");
        assert_eq!(flow(&[0x0f, 0x05], 0), Flow::Syscall);
        assert_eq!(flow(&[0xcc], 0), Flow::Breakpoint);
        assert_eq!(flow(&[0x9c], 0), Flow::PushFlags, "pushfq");
        assert_eq!(flow(&[0x66, 0x9c], 0), Flow::PushFlags, "pushf");
        assert_eq!(flow(&[0x9d], 0), Flow::PopFlags, "popfq");
        assert_eq!(flow(&[0x55], 0), Flow::Other);
        assert_eq!(flow(&[0xe8, 0], 0), Flow::Other);
        assert_eq!(flow(&[], 0), Flow::Other);
    }
}
