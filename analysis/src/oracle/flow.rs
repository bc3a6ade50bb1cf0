//! What an instruction does to the stack of calls.

use super::turn::sets_stack_pointer;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};

/// The longest instruction.
///
/// # Sources
/// Intel SDM vol. 2, §2.3.11: 15 bytes.
pub const MAX_INSTRUCTION_BYTES: usize = 15;
/// The shortest call: `call *%rax`.
const MIN_CALL_BYTES: usize = 2;

/// What an instruction means to a shadow stack. x86-64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Pushes the address behind it and goes elsewhere.
    Call {
        /// The address behind it: what it pushes.
        return_address: u64,
    },
    /// A call of the instruction behind it, which is a way to learn the instruction pointer and calls nothing.
    ReadIp,
    /// Takes an address from the stack and goes there.
    Return,
    /// Goes where a register or memory says, and touches no stack.
    Jump,
    /// Gives the stack pointer a value that is not its old one with something added.
    SetStackPointer,
    /// Enters the kernel.
    Syscall,
    /// Raises SIGTRAP.
    Breakpoint,
    /// Anything else.
    Other,
}

/// What the instruction at `ip` does; `bytes` are those from there on. Bytes that are no instruction do nothing: the
/// program gets SIGILL there.
#[must_use]
pub fn flow(bytes: &[u8], ip: u64) -> Flow {
    let mut decoder = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE);
    let instruction = decoder.decode();
    match instruction.mnemonic() {
        // A near branch has target 0 when it is indirect.
        Mnemonic::Call if instruction.near_branch_target() == instruction.next_ip() => Flow::ReadIp,
        Mnemonic::Call => Flow::Call { return_address: instruction.next_ip() },
        Mnemonic::Ret => Flow::Return,
        // One that names its target stays in its function, or is a tail call.
        Mnemonic::Jmp if instruction.is_jmp_short_or_near() => Flow::Other,
        Mnemonic::Jmp => Flow::Jump,
        Mnemonic::Syscall => Flow::Syscall,
        Mnemonic::Int3 | Mnemonic::Int | Mnemonic::Int1 => Flow::Breakpoint,
        // A stack frame of variable size.
        Mnemonic::Sub | Mnemonic::Add | Mnemonic::And => Flow::Other,
        _ if sets_stack_pointer(&instruction) => Flow::SetStackPointer,
        _ => Flow::Other,
    }
}

/// Whether a call ends at the end of `bytes`, which lie before `address`.
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

    /// Check that every way to call is a call, with the address behind it, prefixes or not.
    #[test]
    fn calls_push_the_address_behind_them() {
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

    /// Check that a call before an address is seen, and that other bytes are none.
    #[test]
    fn calls_before_addresses_are_seen() {
        assert!(ends_in_call(&[0x90, 0x90, 0xe8, 0x10, 0, 0, 0], 0x1000));
        assert!(ends_in_call(&[0, 0, 0xff, 0xd0], 0x1000));
        assert!(!ends_in_call(&[0x90, 0xc3, 0x0f, 0x1f, 0x40, 0], 0x1000));
        assert!(!ends_in_call(&[], 0x1000));
    }

    /// Check that a call of the next instruction is none, that jumps and returns are told apart, and that bytes that
    /// are no instruction, or too few, do nothing.
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
        assert_eq!(flow(&[0x55], 0), Flow::Other);
        assert_eq!(flow(&[0xe8, 0], 0), Flow::Other);
        assert_eq!(flow(&[], 0), Flow::Other);
    }
}
