//! Finds the instructions at which a program must be stopped for its shadow stack, if it runs at full speed in between.
//!
//! Straight-line code and branches change the stack pointer only by pushes, pops and small offsets, which do not leave
//! a frame. What may is a *transfer*: a call, a return, an indirect jump, and anything that sets the stack pointer.
//! From any instruction, the possible next transfers are found by following both ways of every branch ([`successors`]).
//! Most transfers can be emulated without the processor ([`predict_transfer`]).

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

/// Where control goes after an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Successors {
    /// To this address: the next instruction or a branch target.
    One(u64),
    /// To either address.
    Two(u64, u64),
    /// The instruction is a transfer; the address is that of the next instruction if control may continue there.
    Transfer(Option<u64>),
    /// Nowhere: a trap, or an invalid instruction.
    None,
}

/// A transfer whose effect is fully known in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// Pushes `return_address` and jumps to `target`.
    Call {
        /// Target.
        target: u64,
        /// The pushed address.
        return_address: u64,
    },
    /// Jumps to `target`.
    Jump {
        /// Target.
        target: u64,
    },
    /// Jumps to `target`, which is popped from the stack.
    Return {
        /// Target.
        target: u64,
        /// Bytes added to the stack pointer.
        n_bytes: u64,
    },
}

/// Where control goes after the instruction at `ip`; `bytes` are the code there.
#[must_use]
pub fn successors(bytes: &[u8], ip: u64) -> Successors {
    let instruction = decode(bytes, ip);
    let next = instruction.next_ip();
    match instruction.flow_control() {
        FlowControl::Next => match instruction.mnemonic() {
            // Spinning on another thread: let that one run.
            Mnemonic::Pause => Successors::Transfer(Some(next)),
            _ if sets_stack_pointer(&instruction) => Successors::Transfer(Some(next)),
            _ => Successors::One(next),
        },
        FlowControl::ConditionalBranch => Successors::Two(next, instruction.near_branch_target()),
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => {
            Successors::One(instruction.near_branch_target())
        }
        // The kernel stops the program there.
        FlowControl::Call if instruction.mnemonic() == Mnemonic::Syscall => Successors::One(next),
        FlowControl::Call
        | FlowControl::IndirectCall
        | FlowControl::Return
        | FlowControl::IndirectBranch
        | FlowControl::UnconditionalBranch => Successors::Transfer(None),
        FlowControl::XbeginXabortXend => Successors::Transfer(Some(next)),
        FlowControl::Interrupt | FlowControl::Exception => Successors::None,
    }
}

/// The effect of the instruction at `ip`, if it is a transfer that can be predicted from registers and memory.
/// `register` returns general registers by their number in instructions; `word` reads memory.
pub fn predict_transfer(
    bytes: &[u8],
    ip: u64,
    register: impl Fn(usize) -> Option<u64>,
    word: impl Fn(u64) -> Option<u64>,
) -> Option<Transfer> {
    const SP: usize = 4;
    let instruction = decode(bytes, ip);
    let target = || match instruction.op0_kind() {
        OpKind::Register => register(instruction.op0_register().number()),
        OpKind::Memory if !has_segment(&instruction) => {
            let get = |of: Register, _, _| match of {
                // For a segment register the base is requested.
                _ if of.is_segment_register() => Some(0),
                _ if of.is_gpr64() => register(of.number()),
                _ => None,
            };
            word(instruction.virtual_address(0, 0, get)?)
        }
        _ => None,
    };
    let return_address = instruction.next_ip();
    Some(match instruction.code() {
        Code::Call_rel32_64 => Transfer::Call { target: instruction.near_branch_target(), return_address },
        Code::Call_rm64 => Transfer::Call { target: target()?, return_address },
        Code::Jmp_rm64 => Transfer::Jump { target: target()? },
        Code::Retnq => Transfer::Return { target: word(register(SP)?)?, n_bytes: 8 },
        Code::Retnq_imm16 => {
            let n_bytes = u64::from(instruction.immediate16()).checked_add(8)?;
            Transfer::Return { target: word(register(SP)?)?, n_bytes }
        }
        _ => return None,
    })
}

fn decode(bytes: &[u8], ip: u64) -> Instruction {
    Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode()
}

/// Whether the operand is in a segment with its own base.
fn has_segment(instruction: &Instruction) -> bool {
    matches!(instruction.segment_prefix(), Register::FS | Register::GS)
}

/// Whether the stack pointer is set to a value other than its old one plus an offset: it may be on another stack.
pub(super) fn sets_stack_pointer(instruction: &Instruction) -> bool {
    if instruction.is_stack_instruction() {
        return instruction.mnemonic() == Mnemonic::Pop && instruction.op0_register() == Register::RSP;
    }
    let is_write = |access: OpAccess| !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead);
    let mut factory = InstructionInfoFactory::new();
    let is_written = factory
        .info(instruction)
        .used_registers()
        .iter()
        .any(|used| used.register().full_register() == Register::RSP && is_write(used.access()));
    let is_sum = matches!(instruction.mnemonic(), Mnemonic::Add | Mnemonic::Sub | Mnemonic::And)
        && instruction.op1_kind() != OpKind::Register
        && instruction.op1_kind() != OpKind::Memory;
    let is_own_lea = instruction.mnemonic() == Mnemonic::Lea
        && matches!(instruction.memory_base(), Register::RSP | Register::RBP)
        && instruction.memory_index() == Register::None;
    is_written && !is_sum && !is_own_lea
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that code is followed along both ways of a branch and past a system call, but not beyond a transfer.
    #[test]
    fn branches_are_followed_up_to_transfers() {
        let cases: [(&[u8], Successors); 16] = [
            (&[0x55], Successors::One(0x1001)),                        // push %rbp
            (&[0x48, 0x83, 0xec, 0x10], Successors::One(0x1004)),      // sub $16,%rsp
            (&[0x48, 0x8d, 0x65, 0xd8], Successors::One(0x1004)),      // lea -40(%rbp),%rsp
            (&[0xc9], Successors::One(0x1001)),                        // leave
            (&[0x74, 0x10], Successors::Two(0x1002, 0x1012)),          // je
            (&[0xeb, 0x10], Successors::One(0x1012)),                  // jmp
            (&[0x0f, 0x05], Successors::One(0x1002)),                  // syscall
            (&[0xe8, 0, 1, 0, 0], Successors::Transfer(None)),         // call
            (&[0xc3], Successors::Transfer(None)),                     // ret
            (&[0xff, 0xe0], Successors::Transfer(None)),               // jmp *%rax
            (&[0x48, 0x89, 0xfc], Successors::Transfer(Some(0x1003))), // mov %rdi,%rsp
            (&[0x48, 0x29, 0xc4], Successors::Transfer(Some(0x1003))), // sub %rax,%rsp
            (&[0x48, 0x94], Successors::Transfer(Some(0x1002))),       // xchg %rax,%rsp
            (&[0x5c], Successors::Transfer(Some(0x1001))),             // pop %rsp
            (&[0xf3, 0x90], Successors::Transfer(Some(0x1002))),       // pause
            (&[0x0f, 0x0b], Successors::None),                         // ud2
        ];
        for (bytes, expected) in cases {
            assert_eq!(successors(&[bytes, &[0x90; 15]].concat(), 0x1000), expected, "{bytes:x?}");
        }
        assert_eq!(successors(&[], 0x1000), Successors::None);
    }

    /// Check that transfers are predicted from registers and memory, and that unpredictable ones are not.
    #[test]
    fn transfers_are_predicted() {
        let register = |number: usize| Some(0x100 * (number as u64 + 1));
        let word = |address: u64| (address < 0x10_0000).then_some(address + 1);
        let predicted = |bytes: &[u8]| predict_transfer(&[bytes, &[0x90; 15]].concat(), 0x1000, register, word);
        let call = |target, return_address| Some(Transfer::Call { target, return_address });
        assert_eq!(predicted(&[0xe8, 0, 1, 0, 0]), call(0x1105, 0x1005));
        assert_eq!(predicted(&[0xff, 0xd0]), call(0x100, 0x1002));
        assert_eq!(predicted(&[0x41, 0xff, 0x14, 0xdc]), call(0xd00 + 8 * 0x400 + 1, 0x1004)); // call *(%r12,%rbx,8)
        assert_eq!(predicted(&[0xff, 0x25, 0x10, 0, 0, 0]), Some(Transfer::Jump { target: 0x1017 })); // jmp *16(%rip)
        assert_eq!(predicted(&[0xc3]), Some(Transfer::Return { target: 0x501, n_bytes: 8 }));
        assert_eq!(predicted(&[0xc2, 8, 0]), Some(Transfer::Return { target: 0x501, n_bytes: 16 }));
        assert_eq!(predicted(&[0x64, 0xff, 0x10]), None, "call *%fs:(%rax): the base is not known");
        assert_eq!(predicted(&[0xff, 0x14, 0x25, 0, 0, 0x10, 0]), None, "what cannot be read");
        assert_eq!(predicted(&[0x48, 0x89, 0xfc]), None, "mov %rdi,%rsp needs the processor");
        assert_eq!(predicted(&[0x90]), None);
    }
}
