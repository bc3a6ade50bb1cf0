//! Executes CFI programs row by row, until the row that covers an address.

use alloc::vec::Vec;

use gimli::{CallFrameInstruction, CallFrameInstructionIter, Register, UnwindExpression};

use super::rules::{CfaRule, ExpressionBytes, RegisterRule};
use crate::arch::Spec;
use crate::error::Error;
use crate::module::{Fde, Module, Reader, SectionKind};
use crate::regs::MAX_REGISTERS;
use crate::rule::Needed;

/// The most instructions a program may have. The longest program seen in a distribution has about ten thousand.
const MAX_INSTRUCTIONS: u32 = 1 << 17;
/// The most states remembered at a time. Compilers nest them one or two deep.
const MAX_REMEMBERED: usize = 64;

/// The rules of one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    pub(crate) cfa: CfaRule,
    /// By DWARF number. Higher registers (vector registers) are not tracked.
    pub(crate) rules: [RegisterRule; MAX_REGISTERS],
    pub(crate) args_size: u64,
    /// Registers whose slot was at or above the stack pointer in an earlier row, as a bit set. If such a slot is now
    /// below the stack pointer, an epilogue has restored the register. If a slot was never above, the function saved
    /// the register in the red zone and may have changed it since.
    pub(crate) in_frame: u64,
}

impl State {
    /// No rules yet.
    pub(crate) const NEW: Self =
        Self { cfa: CfaRule::None, rules: [RegisterRule::Unspecified; MAX_REGISTERS], args_size: 0, in_frame: 0 };

    /// The rule of a register.
    pub(crate) fn rule(&self, register: u16) -> RegisterRule {
        self.rules.get(usize::from(register)).copied().unwrap_or(RegisterRule::Unspecified)
    }

    /// The part of the row that a [`Rule`](crate::rule::Rule) is compiled from.
    pub(crate) fn needed(&self, spec: &Spec, return_address_register: u16) -> Needed {
        let mut needed = Needed {
            cfa: self.cfa,
            ra: self.rule(return_address_register),
            sp: self.rule(spec.sp),
            fp: self.rule(spec.fp),
            is_fp_restored: false,
        };
        needed.is_fp_restored = self.shows_restored(spec, spec.fp) && needed.fp_below_sp(spec).is_some();
        needed
    }

    /// Whether a register whose slot is below the stack pointer has been restored: in an earlier row the slot was at or
    /// above it. Always false if the CFA is not relative to the stack pointer.
    pub(crate) fn shows_restored(&self, spec: &Spec, register: u16) -> bool {
        let is_in_frame = self.in_frame.checked_shr(register.into()).is_some_and(|bits| bits & 1 != 0);
        is_in_frame && matches!(self.cfa, CfaRule::RegisterOffset { register, .. } if register == spec.sp)
    }

    /// Records at the end of a row which slots are in the frame. Only rows relative to the stack pointer can show that
    /// a slot is not.
    fn note_frame(&mut self, spec: &Spec) {
        let above_sp = match self.cfa {
            CfaRule::RegisterOffset { register, offset } if register == spec.sp => Some(offset),
            _ => None,
        };
        for (register, rule) in self.rules.iter().enumerate().take(spec.names.len()) {
            let RegisterRule::Offset(offset) = *rule else { continue };
            let is_below = above_sp.is_some_and(|cfa| cfa.saturating_add(offset) < 0);
            self.in_frame |= u64::from(!is_below) << register;
        }
    }

    fn set(&mut self, register: Register, rule: RegisterRule) {
        if let Some(slot) = self.rules.get_mut(usize::from(register.0)) {
            *slot = rule;
            self.in_frame &= !(1 << register.0);
        }
    }
}

/// Memory reused from program to program.
#[derive(Debug)]
pub(crate) struct Scratch {
    state: State,
    initial: State,
    remembered: Vec<State>,
}

impl Scratch {
    pub(crate) const fn new() -> Self {
        Self { state: State::NEW, initial: State::NEW, remembered: Vec::new() }
    }
}

/// A running CFI program: the initial instructions of the CIE, then those of the FDE.
#[derive(Debug)]
pub(crate) struct Program<'m, 'b, 's> {
    instructions: Instructions<'m, 'b>,
    /// Holds the current state, which is too large to be moved around.
    scratch: &'s mut Scratch,
    code_alignment: u64,
    data_alignment: i64,
    spec: &'static Spec,
    start: u64,
    next_start: u64,
    end: u64,
    n_instructions: u32,
    is_last: bool,
    is_initial: bool,
}

impl<'m, 'b, 's> Program<'m, 'b, 's> {
    /// Runs the CIE's initial instructions.
    ///
    /// # Errors
    /// Fails if they are malformed or exceed a limit.
    pub(crate) fn new(
        module: &'m Module,
        sections: &'b Sections<'m>,
        fde: &Fde<'m>,
        scratch: &'s mut Scratch,
    ) -> Result<Self, Error> {
        let (initial, instructions) = sections.instructions(module, fde);
        scratch.remembered.clear();
        scratch.state = State::NEW;
        let range = fde.range();
        let mut program = Self {
            instructions: initial,
            scratch,
            code_alignment: fde.entry.cie().code_alignment_factor(),
            data_alignment: fde.entry.cie().data_alignment_factor(),
            spec: module.arch().spec(),
            start: 0,
            next_start: 0,
            end: range.end,
            n_instructions: 0,
            is_last: false,
            is_initial: true,
        };
        // An advance_loc among the initial instructions makes no sense and is ignored.
        while program.advance()? {}
        program.scratch.initial = program.scratch.state;
        program.instructions = instructions;
        program.start = range.start;
        program.next_start = range.start;
        program.is_initial = false;
        program.is_last = false;
        Ok(program)
    }

    /// Advances to the next row; `None` after the last. Rows may be empty.
    ///
    /// # Errors
    /// Fails if the program is malformed or exceeds a limit.
    pub(crate) fn next_row(&mut self) -> Result<Option<core::ops::Range<u64>>, Error> {
        if self.is_last {
            return Ok(None);
        }
        self.start = self.next_start;
        let range = if self.advance()? { self.start..self.next_start } else { self.start..self.end };
        self.scratch.state.note_frame(self.spec);
        Ok(Some(range))
    }

    /// The rules of the current row, or before the first [`Self::next_row`] those of the initial instructions.
    pub(crate) fn state(&self) -> &State {
        &self.scratch.state
    }

    /// Executes instructions until a row ends; false if it was the last.
    fn advance(&mut self) -> Result<bool, Error> {
        while let Some(instruction) = self.instructions.next()? {
            self.n_instructions += 1;
            if self.n_instructions > MAX_INSTRUCTIONS {
                return Err(Error::ManyInstructions(MAX_INSTRUCTIONS));
            }
            if self.apply(instruction)? {
                return Ok(true);
            }
        }
        self.is_last = true;
        Ok(false)
    }

    /// Applies one instruction; returns true if it ends the row.
    fn apply(&mut self, instruction: CallFrameInstruction<usize>) -> Result<bool, Error> {
        use CallFrameInstruction as I;
        match instruction {
            I::SetLoc { address } => return self.end_row_at(address),
            I::AdvanceLoc { delta } => {
                let delta = u64::from(delta).wrapping_mul(self.code_alignment);
                return self.end_row_at(self.next_start.wrapping_add(delta) & self.spec.address_mask);
            }
            I::DefCfa { .. }
            | I::DefCfaSf { .. }
            | I::DefCfaRegister { .. }
            | I::DefCfaOffset { .. }
            | I::DefCfaOffsetSf { .. }
            | I::DefCfaExpression { .. } => self.define_cfa(instruction)?,
            I::RememberState => {
                if self.scratch.remembered.len() >= MAX_REMEMBERED {
                    return Err(Error::DeepRemember(MAX_REMEMBERED));
                }
                self.scratch.remembered.push(self.scratch.state);
            }
            I::RestoreState => self.scratch.state = self.scratch.remembered.pop().ok_or(Error::NoState)?,
            I::ArgsSize { size } => self.scratch.state.args_size = size,
            I::NegateRaState | I::Nop => {}
            _ => self.define_register(instruction)?,
        }
        Ok(false)
    }

    fn end_row_at(&mut self, address: u64) -> Result<bool, Error> {
        if address < self.next_start {
            return Err(Error::Descending(address));
        }
        self.next_start = address;
        Ok(true)
    }

    fn define_cfa(&mut self, instruction: CallFrameInstruction<usize>) -> Result<(), Error> {
        use CallFrameInstruction as I;
        let factored = |offset: i64| offset.wrapping_mul(self.data_alignment);
        self.scratch.state.cfa = match (instruction, self.scratch.state.cfa) {
            (I::DefCfa { register, offset }, _) => {
                CfaRule::RegisterOffset { register: register.0, offset: offset.cast_signed() }
            }
            (I::DefCfaSf { register, factored_offset }, _) => {
                CfaRule::RegisterOffset { register: register.0, offset: factored(factored_offset) }
            }
            (I::DefCfaRegister { register }, CfaRule::RegisterOffset { offset, .. }) => {
                CfaRule::RegisterOffset { register: register.0, offset }
            }
            (I::DefCfaOffset { offset }, CfaRule::RegisterOffset { register, .. }) => {
                CfaRule::RegisterOffset { register, offset: offset.cast_signed() }
            }
            (I::DefCfaOffsetSf { factored_offset }, CfaRule::RegisterOffset { register, .. }) => {
                CfaRule::RegisterOffset { register, offset: factored(factored_offset) }
            }
            (I::DefCfaExpression { expression }, _) => CfaRule::Expression(bytes_of(expression)),
            _ => return Err(Error::NoState),
        };
        Ok(())
    }

    /// Applies an instruction that defines a register's rule; ignores all others.
    fn define_register(&mut self, instruction: CallFrameInstruction<usize>) -> Result<(), Error> {
        use CallFrameInstruction as I;
        let factored = |offset: i64| offset.wrapping_mul(self.data_alignment);
        let (register, rule) = match instruction {
            I::Undefined { register } => (register, RegisterRule::Undefined),
            I::SameValue { register } => (register, RegisterRule::SameValue),
            I::Offset { register, factored_offset } => {
                (register, RegisterRule::Offset(factored(factored_offset.cast_signed())))
            }
            I::OffsetExtendedSf { register, factored_offset } => {
                (register, RegisterRule::Offset(factored(factored_offset)))
            }
            I::ValOffset { register, factored_offset } => {
                (register, RegisterRule::ValOffset(factored(factored_offset.cast_signed())))
            }
            I::ValOffsetSf { register, factored_offset } => {
                (register, RegisterRule::ValOffset(factored(factored_offset)))
            }
            I::Register { dest_register, src_register } => (dest_register, RegisterRule::Register(src_register.0)),
            I::Expression { register, expression } => (register, RegisterRule::Expression(bytes_of(expression))),
            I::ValExpression { register, expression } => (register, RegisterRule::ValExpression(bytes_of(expression))),
            I::Restore { .. } if self.is_initial => return Err(Error::NoState),
            I::Restore { register } => (register, self.scratch.initial.rule(register.0)),
            _ => return Ok(()),
        };
        self.scratch.state.set(register, rule);
        Ok(())
    }
}

/// The parser's view of the sections, which must outlive the program.
#[derive(Debug)]
pub(crate) struct Sections<'a> {
    eh_frame: gimli::EhFrame<Reader<'a>>,
    debug_frame: gimli::DebugFrame<Reader<'a>>,
}

impl<'a> Sections<'a> {
    pub(crate) fn new(module: &'a Module) -> Self {
        Self { eh_frame: module.eh_frame(), debug_frame: module.debug_frame() }
    }

    fn instructions<'b>(&'b self, module: &'a Module, fde: &Fde<'a>) -> (Instructions<'a, 'b>, Instructions<'a, 'b>)
    where
        'a: 'b,
    {
        let bases = module.bases(fde.kind);
        match fde.kind {
            SectionKind::EhFrame => {
                (fde.entry.cie().instructions(&self.eh_frame, bases), fde.entry.instructions(&self.eh_frame, bases))
            }
            SectionKind::DebugFrame => (
                fde.entry.cie().instructions(&self.debug_frame, bases),
                fde.entry.instructions(&self.debug_frame, bases),
            ),
        }
    }
}

type Instructions<'m, 'b> = CallFrameInstructionIter<'b, Reader<'m>>;

fn bytes_of(expression: UnwindExpression<usize>) -> ExpressionBytes {
    // Sections are smaller than 4 GiB, so no offset is larger.
    let short = |value| u32::try_from(value).unwrap_or(u32::MAX);
    ExpressionBytes { offset: short(expression.offset), len: short(expression.length) }
}
