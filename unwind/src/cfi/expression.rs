//! Evaluates the DWARF expressions of call frame information.

use gimli::{Encoding, EndianSlice, Format, LittleEndian, Operation};

use crate::arch::Spec;
use crate::memory::{Memory, ReadFault};

/// The most operations one expression may execute.
///
/// # Sources
/// elfutils has the same limit (`DWARF_EXPR_STEPS_MAX` in `libdwfl/frame_unwind.c`).
pub(crate) const MAX_STEPS: u32 = 4096;
/// Maximum depth of the operand stack. Compilers need four or five.
const MAX_OPERANDS: usize = 64;

/// Why an expression could not be evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpressionError {
    /// The expression exceeds the limit of operations.
    Limit,
    /// The sample's budget of operations is used up.
    Budget,
    /// Malformed, or an operation that is not meaningful in call frame information.
    Bad,
    /// Needs a register whose value is not known.
    Register(u16),
    /// Needs memory that cannot be read.
    Memory(ReadFault),
}

/// The inputs of an expression.
#[derive(Debug)]
pub(crate) struct Evaluation<'a, Y, F> {
    pub(crate) spec: &'a Spec,
    pub(crate) memory: &'a Y,
    /// The value of a register in the frame being unwound.
    pub(crate) register: F,
    /// AVMA − SVMA, for `DW_OP_addr`.
    pub(crate) bias: u64,
    /// Operations left for this sample.
    pub(crate) budget: &'a mut u32,
}

type Reader<'a> = EndianSlice<'a, LittleEndian>;

impl<Y: Memory, F: Fn(u16) -> Option<u64>> Evaluation<'_, Y, F> {
    /// Evaluates an expression. `initial` is pushed first: the CFA, except for the expression that computes the CFA.
    pub(crate) fn run(&mut self, expression: &[u8], initial: Option<u64>) -> Result<u64, ExpressionError> {
        let encoding = Encoding { address_size: self.spec.word_bytes, format: Format::Dwarf32, version: 4 };
        let mut operands = Operands { values: [0; MAX_OPERANDS], len: 0, mask: self.spec.address_mask };
        if let Some(initial) = initial {
            operands.push(initial)?;
        }
        let mut rest = Reader::new(expression, LittleEndian);
        let mut n_steps = 0;
        while !rest.slice().is_empty() {
            n_steps += 1;
            if n_steps > MAX_STEPS {
                return Err(ExpressionError::Limit);
            }
            *self.budget = self.budget.checked_sub(1).ok_or(ExpressionError::Budget)?;
            let operation = Operation::parse(&mut rest, encoding).map_err(|_| ExpressionError::Bad)?;
            match operation {
                Operation::Skip { target } => rest = jump(expression, rest, target)?,
                Operation::Bra { target } => {
                    if operands.pop()? != 0 {
                        rest = jump(expression, rest, target)?;
                    }
                }
                _ => self.apply(operation, &mut operands)?,
            }
        }
        operands.pop()
    }

    fn apply(&mut self, operation: Operation<Reader<'_>>, operands: &mut Operands) -> Result<(), ExpressionError> {
        match operation {
            Operation::RegisterOffset { register, offset, .. } => {
                let value = (self.register)(register.0).ok_or(ExpressionError::Register(register.0))?;
                operands.push(value.wrapping_add(offset.cast_unsigned()))
            }
            Operation::Deref { size, space: false, .. } => {
                let address = operands.pop()?;
                let value = self.read(address, size)?;
                operands.push(value)
            }
            Operation::Address { address } => operands.push(address.wrapping_add(self.bias)),
            _ => operands.apply(operation),
        }
    }

    fn read(&self, avma: u64, size: u8) -> Result<u64, ExpressionError> {
        let mut bytes = [0; 8];
        let buf = bytes.get_mut(..usize::from(size)).filter(|buf| !buf.is_empty()).ok_or(ExpressionError::Bad)?;
        self.memory.read(avma, buf).map_err(ExpressionError::Memory)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

fn jump<'a>(expression: &'a [u8], rest: Reader<'a>, target: i16) -> Result<Reader<'a>, ExpressionError> {
    let at = expression.len() - rest.slice().len();
    let to = at.checked_add_signed(isize::from(target)).ok_or(ExpressionError::Bad)?;
    Ok(Reader::new(expression.get(to..).ok_or(ExpressionError::Bad)?, LittleEndian))
}

/// The operand stack. Values are truncated to the width of an address.
struct Operands {
    values: [u64; MAX_OPERANDS],
    len: usize,
    mask: u64,
}

impl Operands {
    fn push(&mut self, value: u64) -> Result<(), ExpressionError> {
        *self.values.get_mut(self.len).ok_or(ExpressionError::Bad)? = value & self.mask;
        self.len += 1;
        Ok(())
    }

    fn pop(&mut self) -> Result<u64, ExpressionError> {
        self.len = self.len.checked_sub(1).ok_or(ExpressionError::Bad)?;
        self.values.get(self.len).copied().ok_or(ExpressionError::Bad)
    }

    fn peek(&self, below_top: usize) -> Result<u64, ExpressionError> {
        let index = self.len.checked_sub(below_top).and_then(|len| len.checked_sub(1)).ok_or(ExpressionError::Bad)?;
        self.values.get(index).copied().ok_or(ExpressionError::Bad)
    }

    /// Sign-extends a value.
    fn signed(&self, value: u64) -> i64 {
        let shift = self.mask.leading_zeros();
        (value << shift).cast_signed() >> shift
    }

    /// Applies an operation that pushes, drops or moves operands.
    fn apply(&mut self, operation: Operation<Reader<'_>>) -> Result<(), ExpressionError> {
        match operation {
            Operation::Nop | Operation::StackValue => Ok(()),
            Operation::Drop => self.pop().map(drop),
            Operation::Pick { index } => self.peek(usize::from(index)).and_then(|value| self.push(value)),
            Operation::Swap => {
                let (top, second) = (self.pop()?, self.pop()?);
                self.push(top)?;
                self.push(second)
            }
            Operation::Rot => {
                let (top, second, third) = (self.pop()?, self.pop()?, self.pop()?);
                self.push(top)?;
                self.push(third)?;
                self.push(second)
            }
            Operation::UnsignedConstant { value } => self.push(value),
            Operation::SignedConstant { value } => self.push(value.cast_unsigned()),
            Operation::PlusConstant { value } => {
                let top = self.pop()?;
                self.push(top.wrapping_add(value))
            }
            Operation::Abs => {
                let top = self.pop()?;
                self.push(self.signed(top).wrapping_abs().cast_unsigned())
            }
            Operation::Neg => {
                let top = self.pop()?;
                self.push(top.wrapping_neg())
            }
            Operation::Not => {
                let top = self.pop()?;
                self.push(!top)
            }
            _ => self.combine(&operation),
        }
    }

    /// Applies an operation on the two topmost operands.
    fn combine(&mut self, operation: &Operation<Reader<'_>>) -> Result<(), ExpressionError> {
        let (top, second) = (self.pop()?, self.pop()?);
        let (signed_top, signed_second) = (self.signed(top), self.signed(second));
        let bits = u64::from(self.mask.count_ones());
        let shift = u32::try_from(top.min(bits)).unwrap_or(u32::MAX);
        self.push(match operation {
            Operation::And => second & top,
            Operation::Or => second | top,
            Operation::Xor => second ^ top,
            Operation::Plus => second.wrapping_add(top),
            Operation::Minus => second.wrapping_sub(top),
            Operation::Mul => second.wrapping_mul(top),
            Operation::Div if top == 0 => return Err(ExpressionError::Bad),
            Operation::Div => signed_second.wrapping_div(signed_top).cast_unsigned(),
            Operation::Mod => second.checked_rem(top).ok_or(ExpressionError::Bad)?,
            Operation::Shl => second.checked_shl(shift).unwrap_or(0),
            Operation::Shr => second.checked_shr(shift).unwrap_or(0),
            Operation::Shra => (signed_second >> shift.min(63)).cast_unsigned(),
            Operation::Eq => u64::from(second == top),
            Operation::Ne => u64::from(second != top),
            Operation::Ge => u64::from(signed_second >= signed_top),
            Operation::Gt => u64::from(signed_second > signed_top),
            Operation::Le => u64::from(signed_second <= signed_top),
            Operation::Lt => u64::from(signed_second < signed_top),
            _ => return Err(ExpressionError::Bad),
        })
    }
}
