//! Compares what a decoder sees with what the rows say.

use super::model::{ByteRange, Class, Disassembled, FunctionKind, FunctionRecord, class_at};
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, Register};

/// Decodes functions and compares them with their rows.
pub(super) struct Check<'u> {
    /// Code by class, ascending. In code that drops the caller, the rows say that the register is untouched.
    ranges: &'u [ByteRange],
    factory: InstructionInfoFactory,
    counts: Disassembled,
}

impl<'u> Check<'u> {
    pub(super) fn new(ranges: &'u [ByteRange]) -> Self {
        Self { ranges, factory: InstructionInfoFactory::new(), counts: Disassembled::default() }
    }

    pub(super) fn counts(&self) -> Disassembled {
        self.counts
    }

    /// Checks one function.
    pub(super) fn function(&mut self, record: &FunctionRecord, code: &[u8]) {
        if record.kind != FunctionKind::Function {
            return;
        }
        let mut decoder = Decoder::with_ip(64, code, record.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        // Whether the slot on top of the stack holds the caller's frame pointer, as the register still does.
        let mut is_pushed = false;
        let mut has_prologue = false;
        let mut writes_untouched = false;
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let is_move = matches!(instruction.code(), Code::Mov_rm64_r64 | Code::Mov_r64_rm64)
                && instruction.op0_register() == Register::RBP
                && instruction.op1_register() == Register::RSP;
            has_prologue |= is_move && is_pushed;
            writes_untouched = writes_untouched || (!is_move && self.writes_where_untouched(&instruction));
            if instruction.code() == Code::Push_r64 && instruction.op0_register() == Register::RBP {
                is_pushed = true;
            } else if is_pushed
                && (self.writes(&instruction, Register::RSP) || self.writes(&instruction, Register::RBP))
            {
                is_pushed = false;
            }
        }
        self.counts += Disassembled {
            functions: 1,
            prologues: u64::from(has_prologue),
            prologues_framed: u64::from(has_prologue && record.framed),
            framed_only: u64::from(!has_prologue && record.framed),
            writes_untouched: u64::from(writes_untouched),
        };
    }

    /// Whether an instruction writes the register although the rows, before and after it, say that it is untouched.
    fn writes_where_untouched(&mut self, instruction: &Instruction) -> bool {
        // The epilogue restores the register: a write, which is why it is untouched from then on.
        if matches!(instruction.code(), Code::Pop_r64 | Code::Leaveq) {
            return false;
        }
        self.writes(instruction, Register::RBP)
            && self.is_untouched(instruction.ip())
            && self.is_untouched(instruction.next_ip())
    }

    fn writes(&mut self, instruction: &Instruction, register: Register) -> bool {
        self.factory.info(instruction).used_registers().iter().any(|used| {
            used.register().full_register() == register
                && matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite)
        })
    }

    fn is_untouched(&self, svma: u64) -> bool {
        class_at(self.ranges, svma) == Some(Class::DropsCaller)
    }
}
