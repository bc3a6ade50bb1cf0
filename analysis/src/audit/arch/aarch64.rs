//! 64-bit Arm.

use super::spec::{Calls, Reader, Row, Shape, Spec};
use gimli::{Register, RegisterRule, UnwindSection};

/// # Sources
/// AADWARF64 §4.1 (numbers); AAPCS64 §6.1.1 (callee-saved: x19 to x28).
pub(crate) const SPEC: Spec = Spec {
    sp: Register(31),
    entry_cfa: 0,
    others: &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28],
    word_bytes: 8,
    longest_call: 4,
};

/// The frame pointer, x29.
const FP: Register = Register(29);
/// The return address, x30.
const LR: Register = Register(30);

/// Classifies a row for a frame-pointer walk.
///
/// ```text
/// x29 at CFA-k, x30 at CFA-k+8      framed: a frame record, if the code points x29 at it; LLVM without frame pointers stores
///                                   the pair, too, and uses x29 for data
/// ```
///
/// The instruction after the pair's store, which points x29 at it, shares the row and counts as framed: 4 bytes.
pub(crate) fn shape<'a, S: UnwindSection<Reader<'a>>>(row: &Row<'_, '_, S>) -> Shape {
    if row.rule(LR) == Some(RegisterRule::Undefined) {
        return Shape::Root;
    }
    match (row.rule(FP), row.saved_at(LR)) {
        (None | Some(RegisterRule::SameValue), _) if row.cfa().is_some_and(|(base, _)| base == FP) => Shape::Breaks,
        (None | Some(RegisterRule::SameValue), _) => Shape::DropsCaller,
        (Some(RegisterRule::Offset(fp)), Some(lr)) if fp.checked_add(8) == Some(lr) => Shape::Framed,
        _ => Shape::Breaks,
    }
}

/// Whether the code points x29 at the stack: LLVM without frame pointers saves it like any other register.
///
/// # Sources
/// Arm ARM C6.2: ADD and SUB (immediate) of 64 bits, `1s0100010 sh imm12 Rn Rd`, with `sp` as Rn and x29 as Rd; `mov x29, sp` is the
/// first of them.
pub(crate) fn sets_frame_pointer(code: &[u8]) -> bool {
    let (words, _) = code.as_chunks::<4>();
    words.iter().any(|word| u32::from_le_bytes(*word) & 0xbf80_03ff == 0x9100_03fd)
}

/// Whether the code calls. Instructions are words, so the answer is exact.
///
/// # Sources
/// Arm ARM C6.2: BL `100101 imm26`; BLR `1101011000111111000000 Rn 00000` and BLRAA and its kin, which differ in bits
/// 24 and 10 to 11.
pub(crate) fn calls(code: &[u8]) -> Calls {
    let is_call = |word: u32| word & 0xfc00_0000 == 0x9400_0000 || word & 0xfeff_f000 == 0xd63f_0000;
    let (words, _) = code.as_chunks::<4>();
    if words.iter().any(|word| is_call(u32::from_le_bytes(*word))) { Calls::Yes } else { Calls::No }
}
