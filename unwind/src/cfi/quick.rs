//! A fast path for the FDEs compilers usually write. It bypasses the parser and evaluates only what a
//! [`Rule`](crate::rule::Rule) needs.
//!
//! Unusual encodings, instructions or values, and all malformed input, give `None` and are left to the parser and
//! [`Program`](super::Program). Where this path has a result, it is the same as theirs.

use alloc::vec::Vec;
use core::ops::Range;

use super::rules::{CfaRule, ExpressionBytes, RegisterRule};
use crate::arch::Spec;
use crate::module::{Fde, Section, SectionKind};
use crate::rule::Needed;
use crate::space::ModuleId;

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`, the pointer encoding compilers use.
const PCREL_SDATA4: u8 = 0x1b;
/// Longest program read here; a longer one might exceed the instruction limit, which is not checked here.
const MAX_PROGRAM_BYTES: usize = 1 << 16;
/// The most states remembered at a time.
const MAX_REMEMBERED: usize = 4;
/// CIE cache slots. After linking, there is about one CIE per kind of function and compiler.
const N_CIES: usize = 64;

/// `DW_CFA_advance_loc`, `DW_CFA_offset` and `DW_CFA_restore`, each with a six-bit operand.
const ADVANCE_LOC: u8 = 0x40;
const OFFSET: u8 = 0x80;
const RESTORE: u8 = 0xc0;
const LOW_BITS: u8 = 0x3f;
/// `DW_CFA_advance_loc1`, `2` and `4`, with an operand of that many bytes.
const ADVANCE_LOC1: u8 = 0x02;
const ADVANCE_LOC2: u8 = 0x03;
const ADVANCE_LOC4: u8 = 0x04;
/// `DW_CFA_def_cfa_offset`.
const DEF_CFA_OFFSET: u8 = 0x0e;
/// `DW_CFA_remember_state`.
const REMEMBER_STATE: u8 = 0x0a;
/// `DW_CFA_restore_state`.
const RESTORE_STATE: u8 = 0x0b;

/// An FDE in `.eh_frame` whose CIE has not been looked up yet.
#[derive(Debug)]
pub(crate) struct QuickFde<'m> {
    section: &'m [u8],
    pub(crate) cie_offset: usize,
    /// The code it covers, SVMA.
    pub(crate) range: Range<u64>,
    /// Section offsets of the augmentation data and the program.
    body: Range<usize>,
}

impl<'m> QuickFde<'m> {
    /// Reads the FDE at `offset`, assuming the usual pointer encoding.
    ///
    /// # Sources
    /// LSB 5.0 Core §10.6.1.
    pub(crate) fn new(section: &'m Section, offset: usize) -> Option<Self> {
        const RESERVED: u32 = 0xffff_fff0;
        let bytes: &[u8] = &section.bytes;
        let header: &[u8; 16] = bytes.get(offset..)?.first_chunk()?;
        let [len, cie_pointer, start, n_bytes] = words(header);
        let id_at = offset.checked_add(4)?;
        let end = id_at.checked_add(usize::try_from(len).ok()?)?;
        if len >= RESERVED || cie_pointer == 0 || len < 12 || end > bytes.len() {
            return None;
        }
        let field = section.svma.wrapping_add(u64::try_from(id_at).ok()?).wrapping_add(4);
        let start = field.wrapping_add_signed(i64::from(start.cast_signed()));
        let n_bytes = u64::try_from(n_bytes.cast_signed()).ok()?;
        Some(Self {
            section: bytes,
            cie_offset: id_at.checked_sub(usize::try_from(cie_pointer).ok()?)?,
            range: start..start.checked_add(n_bytes)?,
            body: id_at.checked_add(12)?..end,
        })
    }
}

fn words(bytes: &[u8; 16]) -> [u32; 4] {
    let (words, _) = bytes.as_chunks::<4>();
    core::array::from_fn(|index| words.get(index).map_or(0, |word| u32::from_le_bytes(*word)))
}

/// A CIE of the usual form, and the row its initial instructions give.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuickCie {
    pub(crate) is_signal_frame: bool,
    has_lsda: bool,
    code_alignment: u64,
    data_alignment: i64,
    initial: Needed,
}

impl QuickCie {
    /// The CIE of a parsed FDE, if it is of the usual form.
    pub(crate) fn new(fde: &Fde<'_>, spec: &Spec, initial: Needed) -> Option<Self> {
        let cie = fde.entry.cie();
        let is_usual = fde.kind == SectionKind::EhFrame
            && cie.fde_address_encoding().is_some_and(|encoding| encoding.0 == PCREL_SDATA4)
            && cie.lsda_encoding().is_none_or(|encoding| encoding.0 == PCREL_SDATA4)
            && cie.return_address_register().0 == spec.ip
            && spec.word_bytes == 8
            && spec.lr.is_none();
        is_usual.then(|| Self {
            is_signal_frame: cie.is_signal_trampoline(),
            has_lsda: cie.has_lsda(),
            code_alignment: cie.code_alignment_factor(),
            data_alignment: cie.data_alignment_factor(),
            initial,
        })
    }

    /// The row of `fde` that covers an address; `None` if the entry must be left to the parser.
    pub(crate) fn row(&self, fde: &QuickFde<'_>, spec: &Spec, svma: u64) -> Option<Needed> {
        let needed = self.run::<false>(fde, spec, svma)?;
        // Whether fp was restored depends on the earlier rows, but few rows need to know.
        if needed.fp_below_sp(spec).is_some() { self.run::<true>(fde, spec, svma) } else { Some(needed) }
    }

    /// Runs the program. With `HAS_HISTORY`, also tracks [`Needed::is_fp_restored`]: whether an earlier row had fp's
    /// slot in the frame.
    fn run<const HAS_HISTORY: bool>(&self, fde: &QuickFde<'_>, spec: &Spec, svma: u64) -> Option<Needed> {
        let mut reader = Reader { rest: fde.section.get(fde.body.clone())?, end: fde.body.end };
        let augmentation = usize::try_from(reader.uleb()?).ok()?;
        if self.has_lsda && augmentation < 4 {
            return None;
        }
        reader.rest = reader.rest.get(augmentation..).filter(|rest| rest.len() <= MAX_PROGRAM_BYTES)?;
        let mut state = self.initial;
        let mut remembered = [None; MAX_REMEMBERED];
        let mut n_remembered = 0;
        let mut row_start = fde.range.start;
        // The most common instructions are tested first, without a jump table, whose target would be hard to predict.
        while let Some(opcode) = reader.opcode() {
            let delta = if opcode & !LOW_BITS == ADVANCE_LOC {
                u32::from(opcode & LOW_BITS)
            } else if opcode == DEF_CFA_OFFSET {
                let CfaRule::RegisterOffset { offset, .. } = &mut state.cfa else { return None };
                *offset = reader.uleb()?.cast_signed();
                continue;
            } else if opcode & !LOW_BITS == OFFSET {
                let (register, factor) = (u16::from(opcode & LOW_BITS), reader.uleb()?.cast_signed());
                state.set(spec, register, RegisterRule::Offset(self.factored(factor)));
                continue;
            } else {
                match opcode {
                    ADVANCE_LOC1 => u32::from(reader.opcode()?),
                    ADVANCE_LOC2 => u32::from(u16::from_le_bytes(reader.chunk()?)),
                    ADVANCE_LOC4 => u32::from_le_bytes(reader.chunk()?),
                    REMEMBER_STATE => {
                        *remembered.get_mut(n_remembered)? = Some(state);
                        n_remembered += 1;
                        continue;
                    }
                    RESTORE_STATE => {
                        n_remembered = n_remembered.checked_sub(1)?;
                        state = (*remembered.get(n_remembered)?)?;
                        continue;
                    }
                    _ => {
                        self.define(opcode, &mut reader, spec, &mut state)?;
                        continue;
                    }
                }
            };
            row_start = row_start.checked_add(u64::from(delta).checked_mul(self.code_alignment)?)?;
            if svma < row_start {
                return Some(state);
            }
            if HAS_HISTORY && matches!(state.fp, RegisterRule::Offset(_)) && state.fp_below_sp(spec).is_none() {
                state.is_fp_restored = true;
            }
        }
        Some(state)
    }

    /// Applies an instruction that defines the CFA or a register rule.
    ///
    /// # Sources
    /// DWARF 5 §6.4.2 and §7.24.
    #[inline]
    fn define(&self, opcode: u8, reader: &mut Reader<'_>, spec: &Spec, state: &mut Needed) -> Option<()> {
        match opcode {
            RESTORE.. => self.restore(spec, (opcode & LOW_BITS).into(), state),
            0x00 => {}
            0x05 => {
                let register = reader.register()?;
                let offset = self.factored(reader.uleb()?.cast_signed());
                state.set(spec, register, RegisterRule::Offset(offset));
            }
            0x06 => self.restore(spec, reader.register()?, state),
            0x07 => state.set(spec, reader.register()?, RegisterRule::Undefined),
            0x08 => state.set(spec, reader.register()?, RegisterRule::SameValue),
            0x09 => {
                let register = reader.register()?;
                state.set(spec, register, RegisterRule::Register(reader.register()?));
            }
            0x0c => {
                let register = reader.register()?;
                state.cfa = CfaRule::RegisterOffset { register, offset: reader.uleb()?.cast_signed() };
            }
            0x0d => {
                let CfaRule::RegisterOffset { offset, .. } = state.cfa else { return None };
                state.cfa = CfaRule::RegisterOffset { register: reader.register()?, offset };
            }
            0x0f => state.cfa = CfaRule::Expression(reader.expression()?),
            0x10 => {
                let register = reader.register()?;
                state.set(spec, register, RegisterRule::Expression(reader.expression()?));
            }
            0x16 => {
                let register = reader.register()?;
                state.set(spec, register, RegisterRule::ValExpression(reader.expression()?));
            }
            // DW_CFA_GNU_args_size, which rules do not need.
            0x2e => drop(reader.uleb()?),
            _ => return None,
        }
        Some(())
    }

    #[inline]
    fn factored(&self, offset: i64) -> i64 {
        offset.wrapping_mul(self.data_alignment)
    }

    fn restore(&self, spec: &Spec, register: u16, state: &mut Needed) {
        if let Some(rule) = self.initial.get(spec, register) {
            state.set(spec, register, rule);
        }
    }
}

/// The unread rest of an entry.
struct Reader<'a> {
    rest: &'a [u8],
    /// Section offset of the end of `rest`.
    end: usize,
}

impl Reader<'_> {
    #[inline]
    fn opcode(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (&chunk, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(chunk)
    }

    /// An unsigned LEB128 number below 2^63. Nearly all are below 128.
    #[inline]
    fn uleb(&mut self) -> Option<u64> {
        let first = self.opcode()?;
        if first < 0x80 { Some(first.into()) } else { self.long_uleb(first) }
    }

    #[cold]
    fn long_uleb(&mut self, first: u8) -> Option<u64> {
        let mut value = u64::from(first & 0x7f);
        let (mut byte, mut shift) = (first, 7);
        while byte & 0x80 != 0 {
            if shift > 56 {
                return None;
            }
            byte = self.opcode()?;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
        }
        Some(value)
    }

    /// A register number, if it takes one byte.
    fn register(&mut self) -> Option<u16> {
        self.opcode().filter(|byte| *byte < 0x80).map(u16::from)
    }

    fn expression(&mut self) -> Option<ExpressionBytes> {
        let len = usize::try_from(self.uleb()?).ok()?;
        let offset = self.end.checked_sub(self.rest.len())?;
        self.rest = self.rest.get(len..)?;
        Some(ExpressionBytes { offset: u32::try_from(offset).ok()?, len: u32::try_from(len).ok()? })
    }
}

/// A direct-mapped cache of CIEs by module and offset.
#[derive(Debug, Default)]
pub(crate) struct Cies(Vec<Option<(ModuleId, usize, QuickCie)>>);

impl Cies {
    /// The CIE at `offset`, if it is cached.
    pub(crate) fn find(&self, module: ModuleId, offset: usize) -> Option<&QuickCie> {
        match self.0.get(slot(module, offset))? {
            Some((id, at, cie)) if *id == module && *at == offset => Some(cie),
            _ => None,
        }
    }

    /// Caches the CIE at `offset`; it may replace another.
    pub(crate) fn insert(&mut self, module: ModuleId, cie: QuickCie, offset: usize) {
        self.0.resize(N_CIES, None);
        if let Some(place) = self.0.get_mut(slot(module, offset)) {
            *place = Some((module, offset, cie));
        }
    }
}

fn slot(module: ModuleId, offset: usize) -> usize {
    let mixed = (offset as u64 ^ u64::from(module.0) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The six highest bits are always a valid slot.
    usize::try_from(mixed >> 58).unwrap_or(0)
}

#[cfg(test)]
mod tests;
