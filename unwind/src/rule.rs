//! Rules of eight bytes: how to recover sp, fp and ip, if the row needs nothing else.

use crate::arch::Spec;
use crate::cfi::{CfaRule, RegisterRule};
use crate::stack::{BrokenReason, Root, StopReason};
use layout::{
    AT_ENTRY, BY_FP, CFA_SHIFT, FP_RESTORED, FP_SAVED, FP_SHIFT, FULL, KIND_MASK, PLT, SIGNAL, SIMPLE, STOP,
    STOP_SHIFT, STOPS,
};

/// How to get from a frame to its caller with ip, sp and fp only.
///
/// [`layout`] has the bits. The slot of fp (words above the CFA) and the offset of the CFA (bytes) are signed. Kinds with
/// bit 3 set need nothing but sp or, with bit 0 set, fp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rule(u64);

/// The input of a rule: the part of a row that recovers ip, sp and fp of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needed {
    pub(crate) cfa: CfaRule,
    /// Rule of the return address.
    pub(crate) ra: RegisterRule,
    pub(crate) sp: RegisterRule,
    pub(crate) fp: RegisterRule,
    /// The slot of fp is below sp now but was not in an earlier row: an epilogue has restored fp.
    pub(crate) is_fp_restored: bool,
}

impl Needed {
    /// How far below sp the slot of fp is, in bytes, if the row shows that it is.
    pub(crate) fn fp_below_sp(&self, spec: &Spec) -> Option<i64> {
        match (self.cfa, self.fp) {
            (CfaRule::RegisterOffset { register, offset }, RegisterRule::Offset(fp)) if register == spec.sp => {
                Some(offset.saturating_add(fp).saturating_neg()).filter(|below| *below > 0)
            }
            _ => None,
        }
    }

    /// The rule of a register, if it is one of these; the return address has the column of ip.
    pub(crate) fn get(&self, spec: &Spec, register: u16) -> Option<RegisterRule> {
        match register {
            _ if register == spec.ip => Some(self.ra),
            _ if register == spec.sp => Some(self.sp),
            _ if register == spec.fp => Some(self.fp),
            _ => None,
        }
    }

    /// Sets the rule of a register, if it is one of these.
    #[inline]
    pub(crate) fn set(&mut self, spec: &Spec, register: u16, rule: RegisterRule) {
        match register {
            _ if register == spec.ip => self.ra = rule,
            _ if register == spec.sp => self.sp = rule,
            _ if register == spec.fp => (self.fp, self.is_fp_restored) = (rule, false),
            _ => {}
        }
    }
}

/// The kind of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No rule yet.
    Empty,
    /// CFA = sp + offset.
    Sp,
    /// CFA = fp + offset.
    Fp,
    /// A lazy PLT entry: CFA = sp + 8, or sp + 16 after the instruction that pushes the index.
    Plt,
    /// More registers are needed than sp, fp and ip.
    Full,
    /// A signal frame as the kernel makes it: `rt_sigreturn` would find the registers at sp.
    Signal,
    /// The walk ends here.
    Stop,
}

/// The bits of rules, as [`crate::Unwinder::function_rules`] documents them, and their stop reasons.
pub(crate) mod layout {
    use crate::stack::{BrokenReason, Root, StopReason, TruncatedReason};

    /// The bits of the kind.
    pub const KIND_MASK: u64 = 0xf;
    /// Bit: fp was saved.
    pub const FP_SAVED: u64 = 1 << 4;
    /// Bit: fp has been restored if its slot is below sp.
    pub const FP_RESTORED: u64 = 1 << 5;
    /// Bit: the walk stops in the code of an entry point.
    pub const AT_ENTRY: u64 = 1 << 6;
    /// Kind: a lazy PLT entry.
    pub const PLT: u64 = 1;
    /// Kind: more registers are needed than sp, fp and ip.
    pub const FULL: u64 = 2;
    /// Kind: the walk ends.
    pub const STOP: u64 = 3;
    /// Kind: a signal frame.
    pub const SIGNAL: u64 = 4;
    /// Bit of the kinds that need only sp or fp.
    pub const SIMPLE: u64 = 8;
    /// Bit of those of them that need fp.
    pub const BY_FP: u64 = 1;
    /// The lowest of the eight bits with the index of the stop reason.
    pub const STOP_SHIFT: u32 = 8;
    /// The lowest of the sixteen bits with the slot of fp.
    pub const FP_SHIFT: u32 = 16;
    /// The lowest of the 32 bits with the offset of the CFA.
    pub const CFA_SHIFT: u32 = 32;

    /// The stop reasons a rule can encode, by index; roots come first.
    pub const STOPS: [StopReason; 14] = [
        StopReason::Complete(Root::UndefinedRa),
        StopReason::Complete(Root::Start),
        StopReason::Complete(Root::ThreadStart),
        StopReason::Complete(Root::StartContext),
        StopReason::Complete(Root::Goexit),
        StopReason::Complete(Root::G0),
        StopReason::Broken(BrokenReason::RaNotExec),
        StopReason::Broken(BrokenReason::BadCfi),
        StopReason::Truncated(TruncatedReason::NoCfi),
        StopReason::Truncated(TruncatedReason::NoModule),
        StopReason::Truncated(TruncatedReason::ModuleUnavailable),
        StopReason::Truncated(TruncatedReason::BuildIdMismatch),
        StopReason::Truncated(TruncatedReason::Abi32),
        StopReason::Truncated(TruncatedReason::NoSframe),
    ];
}

const EMPTY: u64 = 0;
const SP: u64 = SIMPLE;
const FP: u64 = SIMPLE | BY_FP;

impl Rule {
    /// No rule yet.
    pub(crate) const EMPTY: Self = Self(EMPTY);
    /// More registers are needed.
    pub(crate) const FULL: Self = Self(FULL);
    /// A signal frame as the kernel makes it.
    pub(crate) const SIGNAL: Self = Self(SIGNAL);

    /// The encoded rule.
    #[inline]
    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    /// Decodes what [`Self::to_bits`] returned.
    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// A rule that ends the walk. A reason that rules cannot encode is left to the full walk.
    pub(crate) fn stop(reason: StopReason) -> Self {
        match (0u64..).zip(STOPS).find(|&(_, stop)| stop == reason) {
            Some((code, _)) => Self(STOP | code << STOP_SHIFT),
            None => Self::FULL,
        }
    }

    /// The same rule, marked as in the code of an entry point.
    pub(crate) fn at_entry(self) -> Self {
        Self(self.0 | AT_ENTRY)
    }

    /// Whether the walk stops in the code of an entry point.
    pub(crate) fn is_at_entry(self) -> bool {
        self.0 & AT_ENTRY != 0
    }

    /// Whether the kind is [`Kind::Sp`] or [`Kind::Fp`].
    #[inline]
    pub(crate) fn is_simple(self) -> bool {
        self.0 & SIMPLE != 0
    }

    /// The CFA of a simple rule.
    #[inline]
    pub(crate) fn simple_cfa(self, sp: u64, fp: u64) -> u64 {
        let base = if self.0 & BY_FP != 0 { fp } else { sp };
        base.wrapping_add(self.cfa_offset())
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self.0 & KIND_MASK {
            SP => Kind::Sp,
            FP => Kind::Fp,
            PLT => Kind::Plt,
            FULL => Kind::Full,
            SIGNAL => Kind::Signal,
            STOP => Kind::Stop,
            _ => Kind::Empty,
        }
    }

    /// Why the walk ends; for [`Kind::Stop`] only.
    pub(crate) fn stop_reason(self) -> StopReason {
        let code = usize::try_from(self.0 >> STOP_SHIFT & 255).ok();
        code.and_then(|code| STOPS.get(code).copied()).unwrap_or(StopReason::Broken(BrokenReason::BadCfi))
    }

    /// Offset of the CFA; for [`Kind::Plt`] the offset in the PLT entry after the push.
    #[inline]
    pub(crate) fn cfa_offset(self) -> u64 {
        (self.0.cast_signed() >> CFA_SHIFT).cast_unsigned()
    }

    /// Whether fp was saved at [`Self::fp_offset`].
    #[inline]
    pub(crate) fn is_fp_saved(self) -> bool {
        self.0 & FP_SAVED != 0
    }

    /// Whether fp has been restored in case its slot is below sp.
    #[inline]
    pub(crate) fn is_fp_restored(self) -> bool {
        self.0 & FP_RESTORED != 0
    }

    /// The slot of fp, in bytes from the CFA.
    #[inline]
    pub(crate) fn fp_offset(self) -> u64 {
        ((self.0.cast_signed() << (64 - CFA_SHIFT) >> (64 - CFA_SHIFT + FP_SHIFT)) * 8).cast_unsigned()
    }

    fn cfa(kind: u64, offset: i64, fp: Option<i64>) -> Option<Self> {
        let offset = i32::try_from(offset).ok()?;
        let mut bits = kind | u64::from(offset.cast_unsigned()) << CFA_SHIFT;
        if let Some(fp) = fp {
            if fp % 8 != 0 {
                return None;
            }
            let words = i16::try_from(fp / 8).ok()?;
            bits |= FP_SAVED | u64::from(words.cast_unsigned()) << FP_SHIFT;
        }
        Some(Self(bits))
    }

    /// Compiles a row. `expression` returns the bytes of an expression.
    pub(crate) fn compile<'a>(
        needed: &Needed,
        spec: &Spec,
        return_address_register: u16,
        is_signal_frame: bool,
        expression: impl Fn(crate::cfi::ExpressionBytes) -> Option<&'a [u8]>,
    ) -> Self {
        if is_signal_frame {
            return if is_usual_signal_frame(needed, spec, expression) { Self::SIGNAL } else { Self::FULL };
        }
        let is_plain = spec.lr.is_none() && spec.word_bytes == 8;
        match needed.ra {
            RegisterRule::Undefined => return Self::stop(StopReason::Complete(Root::UndefinedRa)),
            RegisterRule::Offset(-8) if return_address_register == spec.ip && is_plain => {}
            _ => return Self::FULL,
        }
        if !matches!(needed.sp, RegisterRule::Unspecified | RegisterRule::ValOffset(0)) {
            return Self::FULL;
        }
        let fp = match needed.fp {
            RegisterRule::Unspecified | RegisterRule::SameValue => None,
            RegisterRule::Offset(offset) => Some(offset),
            _ => return Self::FULL,
        };
        let rule = match needed.cfa {
            CfaRule::RegisterOffset { register, offset } if register == spec.sp && offset > 0 => {
                // Below the red zone the slot may have been overwritten.
                let is_gone = needed.fp_below_sp(spec).is_some_and(|below| below > spec.red_zone_bytes.cast_signed());
                let restored = if needed.is_fp_restored && !is_gone { FP_RESTORED } else { 0 };
                Self::cfa(SP, offset, fp.filter(|_| !is_gone)).map(|Self(bits)| Self(bits | restored))
            }
            CfaRule::RegisterOffset { register, offset } if register == spec.fp => Self::cfa(FP, offset, fp),
            CfaRule::Expression(bytes) if fp.is_none() => {
                expression(bytes).and_then(plt_push_offset).and_then(|push| Self::cfa(PLT, push, None))
            }
            _ => None,
        };
        rule.unwrap_or(Self::FULL)
    }
}

/// Whether an x86-64 row finds the interrupted ip, sp and fp where the kernel saved them: glibc's does, by expressions.
///
/// # Sources
/// glibc `sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c`. Offsets in `struct ucontext`, which is at sp: see
/// `UCONTEXT` in `arch/x86_64.rs`.
fn is_usual_signal_frame<'a>(
    needed: &Needed,
    spec: &Spec,
    expression: impl Fn(crate::cfi::ExpressionBytes) -> Option<&'a [u8]>,
) -> bool {
    let is_at = |rule, offset| match rule {
        RegisterRule::Expression(bytes) => expression(bytes).and_then(offset_from_sp) == Some(offset),
        _ => false,
    };
    let is_cfa_sp = match needed.cfa {
        CfaRule::Expression(bytes) => {
            let slot = expression(bytes).and_then(|bytes| bytes.strip_suffix(&[DEREF]));
            slot.and_then(offset_from_sp) == Some(160)
        }
        _ => false,
    };
    let is_x86_64 = spec.lr.is_none() && spec.word_bytes == 8;
    is_x86_64 && is_cfa_sp && is_at(needed.fp, 120) && is_at(needed.sp, 160) && is_at(needed.ra, 168)
}

const DEREF: u8 = 0x06;

/// The offset in `breg7 (rsp) +offset`, if the offset takes two bytes and is not negative.
fn offset_from_sp(expression: &[u8]) -> Option<i64> {
    match *expression {
        [0x77, low @ 0x80..=0xff, high @ 0..0x40] => Some(i64::from(low & 0x7f) | i64::from(high) << 7),
        _ => None,
    }
}

/// Recognises the CFA expression of lazy PLT entries, and returns the offset in the 16-byte entry of the instruction
/// after the push: `breg7 (rsp) +8; breg16 (rip) +0; lit15; and; lit11; ge; lit3; shl; plus`. 11 without, 9 or 10 with
/// `endbr64`.
///
/// # Sources
/// binutils `elf_x86_64_eh_frame_lazy_plt` in `bfd/elf64-x86-64.c`.
fn plt_push_offset(expression: &[u8]) -> Option<i64> {
    const LIT0: u8 = 0x30;
    match expression {
        [0x77, 8, 0x80, 0, 0x3f, 0x1a, lit @ 0x30..0x40, 0x2a, 0x33, 0x24, 0x22] => Some(i64::from(lit - LIT0)),
        _ => None,
    }
}
