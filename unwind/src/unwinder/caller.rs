//! Recovers the caller's registers from a frame's registers and its row, with every register and every rule.

use super::code::{Code, CodeRow};
use crate::arch::Spec;
use crate::cfi::{CfaRule, Evaluation, ExpressionBytes, ExpressionError, RegisterRule};
use crate::memory::{Memory, ReadFault};
use crate::regs::{MAX_REGISTERS, Regs};
use crate::stack::{BrokenReason, StopReason, TruncatedReason};

const BAD_CFI: StopReason = StopReason::Broken(BrokenReason::BadCfi);

/// The registers of one frame. An unknown register may have the read fault that lost it.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameRegs {
    pub(super) regs: Regs,
    faults: [Option<ReadFault>; MAX_REGISTERS],
}

impl FrameRegs {
    pub(super) fn new(regs: Regs) -> Self {
        Self { regs, faults: [None; MAX_REGISTERS] }
    }

    /// The value of a register.
    ///
    /// # Errors
    /// The stop reason of a walk that needs it: the fault that lost the register, or bad call frame information if it
    /// was never known.
    pub(super) fn get(&self, register: u16) -> Result<u64, StopReason> {
        match self.regs.get(register) {
            Some(value) => Ok(value),
            None => Err(match self.faults.get(usize::from(register)) {
                Some(Some(fault)) => fault.stop(),
                _ => BAD_CFI,
            }),
        }
    }

    fn set(&mut self, register: u16, value: Result<u64, Lost>) {
        if let Some(slot) = self.faults.get_mut(usize::from(register)) {
            *slot = None;
            match value {
                Ok(value) => self.regs.set(register, value),
                Err(lost) => {
                    self.regs.clear(register);
                    *slot = lost.0;
                }
            }
        }
    }
}

/// A lost register value, with the read fault if that is the cause.
struct Lost(Option<ReadFault>);

/// One frame and the row that covers it.
pub(super) struct Unwound<'a, 'm, Y> {
    pub(super) spec: &'static Spec,
    /// Mask of the address bits of a return address.
    pub(super) mask: u64,
    pub(super) frame: &'a FrameRegs,
    pub(super) code: Code<'m>,
    pub(super) row: &'a CodeRow,
    pub(super) memory: &'a Y,
    pub(super) budget: &'a mut u32,
    /// Whether the frame was sampled or interrupted here.
    pub(super) is_instruction: bool,
}

impl<Y: Memory> Unwound<'_, '_, Y> {
    /// The CFA, checked for alignment.
    pub(super) fn cfa(&mut self) -> Result<u64, StopReason> {
        let cfa = match self.row.state.cfa {
            CfaRule::None => return Err(BAD_CFI),
            CfaRule::RegisterOffset { register, offset } => {
                self.frame.get(register)?.wrapping_add(offset.cast_unsigned()) & self.spec.address_mask
            }
            CfaRule::AtRegister { register, offset } => {
                let slot = self.frame.get(register)?.wrapping_add(offset.cast_unsigned());
                read_word(self.memory, self.spec, slot).map_err(ReadFault::stop)?
            }
            CfaRule::Expression(bytes) => self.evaluate(bytes, None).map_err(|error| self.stop_of(error))?,
        };
        if cfa % u64::from(self.spec.word_bytes) != 0 {
            return Err(StopReason::Broken(BrokenReason::Misaligned));
        }
        Ok(cfa)
    }

    /// The return address, with its signature stripped.
    pub(super) fn return_address(&mut self, cfa: u64) -> Result<u64, StopReason> {
        let register = self.row.return_address_register;
        let rule = self.row.state.rule(register);
        let address = match rule {
            RegisterRule::Undefined => return Err(StopReason::Complete(self.row.root)),
            // A link register holds it only until the next call, so only the innermost frame can have it there.
            RegisterRule::Unspecified | RegisterRule::SameValue
                if self.spec.lr == Some(register) && self.is_instruction =>
            {
                self.frame.get(register)?
            }
            RegisterRule::Unspecified | RegisterRule::SameValue => return Err(BAD_CFI),
            RegisterRule::Offset(offset) => {
                let slot = cfa.wrapping_add(offset.cast_unsigned());
                read_word(self.memory, self.spec, slot).map_err(ReadFault::stop)?
            }
            RegisterRule::ValOffset(offset) => cfa.wrapping_add(offset.cast_unsigned()),
            RegisterRule::Register(other) => self.frame.get(other)?,
            RegisterRule::AtRegister { register, offset } => {
                let slot = self.frame.get(register)?.wrapping_add(offset.cast_unsigned());
                read_word(self.memory, self.spec, slot).map_err(ReadFault::stop)?
            }
            RegisterRule::Expression(bytes) => {
                let slot = self.evaluate(bytes, Some(cfa)).map_err(|error| self.stop_of(error))?;
                read_word(self.memory, self.spec, slot).map_err(ReadFault::stop)?
            }
            RegisterRule::ValExpression(bytes) => {
                self.evaluate(bytes, Some(cfa)).map_err(|error| self.stop_of(error))?
            }
        };
        Ok(address & self.mask)
    }

    /// The caller's registers. A register that cannot be read is marked as lost, and ends the walk only if it is
    /// needed.
    ///
    /// # Errors
    /// An expression exceeds its limit of steps, or the sample's budget is used up.
    pub(super) fn caller(&mut self, cfa: u64, return_address: u64) -> Result<FrameRegs, StopReason> {
        let mut caller = *self.frame;
        for (register, rule) in (0u16..).zip(&self.row.state.rules).take(self.spec.names.len()) {
            let value = match *rule {
                RegisterRule::Unspecified if self.keeps(register) => continue,
                RegisterRule::SameValue => continue,
                RegisterRule::Unspecified | RegisterRule::Undefined => Err(Lost(None)),
                RegisterRule::Offset(offset) => {
                    let slot = cfa.wrapping_add(offset.cast_unsigned());
                    match self.bytes_below_sp(slot) {
                        0 => read_word(self.memory, self.spec, slot).map_err(|fault| Lost(Some(fault))),
                        below => match self.saved_below_sp(register, slot, below) {
                            Some(value) => value,
                            None => continue,
                        },
                    }
                }
                RegisterRule::ValOffset(offset) => Ok(cfa.wrapping_add(offset.cast_unsigned())),
                RegisterRule::Register(other) => self.frame.regs.get(other).ok_or(Lost(None)),
                RegisterRule::AtRegister { register, offset } => match self.frame.regs.get(register) {
                    Some(base) => read_word(self.memory, self.spec, base.wrapping_add(offset.cast_unsigned()))
                        .map_err(|fault| Lost(Some(fault))),
                    None => Err(Lost(None)),
                },
                RegisterRule::Expression(bytes) => self.at_expression(bytes, cfa)?,
                RegisterRule::ValExpression(bytes) => lost_unless_budget(self.evaluate(bytes, Some(cfa)))?,
            };
            caller.set(register, value.map(|value| value & self.spec.address_mask));
        }
        if self.row.state.rule(self.spec.sp) == RegisterRule::Unspecified {
            caller.set(self.spec.sp, Ok(cfa));
        }
        caller.set(self.spec.ip, Ok(return_address));
        Ok(caller)
    }

    fn keeps(&self, register: u16) -> bool {
        self.spec.callee_saved >> register & 1 != 0
    }

    /// How far a slot is below the stack pointer. 0 for signal frames, whose slots may be on another stack.
    fn bytes_below_sp(&self, slot: u64) -> u64 {
        match self.frame.regs.get(self.spec.sp) {
            Some(sp) if !self.row.is_signal_frame => sp.saturating_sub(slot),
            _ => 0,
        }
    }

    /// The value of a register whose slot is below the stack pointer; `None` if the register itself still has it.
    ///
    /// Either an epilogue has popped the register, or the function never moved the stack pointer, saved the register in
    /// the red zone and reuses it. Either way the slot holds the value while the function itself runs: compilers
    /// describe a popped register as saved only as long as its slot is untouched. A callee would have overwritten it.
    ///
    /// # Sources
    /// gcc 12 `ix86_add_cfa_restore_note` in `gcc/config/i386/i386.cc`.
    fn saved_below_sp(&self, register: u16, slot: u64, below: u64) -> Option<Result<u64, Lost>> {
        if below > self.spec.red_zone_bytes {
            return None;
        }
        if self.is_instruction
            && let Ok(value) = read_word(self.memory, self.spec, slot)
        {
            return Some(Ok(value));
        }
        let is_restored = self.row.state.shows_restored(self.spec, register);
        (!is_restored).then_some(Err(Lost(Some(ReadFault::RedZone))))
    }

    fn at_expression(&mut self, bytes: ExpressionBytes, cfa: u64) -> Result<Result<u64, Lost>, StopReason> {
        Ok(match lost_unless_budget(self.evaluate(bytes, Some(cfa)))? {
            Ok(slot) => read_word(self.memory, self.spec, slot).map_err(|fault| Lost(Some(fault))),
            Err(lost) => Err(lost),
        })
    }

    fn evaluate(&mut self, bytes: ExpressionBytes, initial: Option<u64>) -> Result<u64, ExpressionError> {
        let expression = self.code.expression(self.row.section, bytes).ok_or(ExpressionError::Bad)?;
        let regs = &self.frame.regs;
        let mut evaluation = Evaluation {
            spec: self.spec,
            memory: self.memory,
            register: |register| regs.get(register),
            bias: self.code.bias,
            budget: self.budget,
        };
        evaluation.run(expression, initial)
    }

    fn stop_of(&self, error: ExpressionError) -> StopReason {
        match error {
            ExpressionError::Limit => StopReason::Broken(BrokenReason::ExprLimit),
            ExpressionError::Budget => StopReason::Truncated(TruncatedReason::Budget),
            ExpressionError::Bad => BAD_CFI,
            ExpressionError::Register(register) => self.frame.get(register).err().unwrap_or(BAD_CFI),
            ExpressionError::Memory(fault) => fault.stop(),
        }
    }
}

fn lost_unless_budget(value: Result<u64, ExpressionError>) -> Result<Result<u64, Lost>, StopReason> {
    Ok(match value {
        Ok(value) => Ok(value),
        Err(ExpressionError::Budget) => return Err(StopReason::Truncated(TruncatedReason::Budget)),
        Err(ExpressionError::Limit) => return Err(StopReason::Broken(BrokenReason::ExprLimit)),
        Err(ExpressionError::Memory(fault)) => Err(Lost(Some(fault))),
        Err(ExpressionError::Bad | ExpressionError::Register(_)) => Err(Lost(None)),
    })
}

/// Reads a word of the stack, zero-extended.
pub(super) fn read_word<Y: Memory>(memory: &Y, spec: &Spec, avma: u64) -> Result<u64, ReadFault> {
    if spec.word_bytes == 8 {
        return memory.read_u64(avma);
    }
    let mut bytes = [0; 4];
    memory.read(avma, &mut bytes)?;
    Ok(u64::from(u32::from_le_bytes(bytes)))
}
