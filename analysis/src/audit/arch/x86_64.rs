//! AMD64.

use super::spec::{Calls, Context, Reader, Row, Shape, Spec, Target};
use gimli::{Register, RegisterRule, UnwindSection};
use iced_x86::{Decoder, DecoderOptions, FlowControl};

/// # Sources
/// x86-64 psABI, Fig. 3.36 (numbers) and Fig. 3.4 (callee-saved: rbx, r12 to r15).
pub(crate) const SPEC: Spec =
    Spec { sp: Register(7), entry_cfa: 8, others: &[3, 12, 13, 14, 15], word_bytes: 8, longest_call: 8 };

/// The frame pointer.
const RBP: Register = Register(6);
/// The return address.
const RA: Register = Register(16);

/// `DW_OP_breg6 (rbp) 0`: where a realigned frame keeps the caller's frame pointer.
const SAVED_AT_RBP: [u8; 2] = [0x76, 0x00];
/// `DW_OP_breg7 (rsp) 8; DW_OP_breg16 (rip) 0`: start of the CFA expression of a linkage stub.
const STUB: [u8; 4] = [0x77, 0x08, 0x80, 0x00];

/// Classifies a row for a frame-pointer walk.
///
/// ```text
/// rbp at CFA-16, CFA = rbp+16       framed
/// rbp at *(rbp+0)                   realigned: the CFA is loaded from memory, the chain is intact
/// rbp at CFA-16, CFA = rsp+16       pushed
/// rbp at CFA-k,  CFA = rsp+n, k > n the slot is below the stack pointer: popped, the register is restored
/// ```
pub(crate) fn shape<'a, S: UnwindSection<Reader<'a>>>(row: &Row<'_, '_, S>) -> Shape {
    if row.rule(RA) == Some(RegisterRule::Undefined) {
        return Shape::Root;
    }
    match (row.rule(RBP), row.cfa()) {
        (None | Some(RegisterRule::SameValue), Some((RBP, _))) => Shape::Breaks,
        (None | Some(RegisterRule::SameValue), None) if row.cfa_expression().is_some_and(|e| e.starts_with(&STUB)) => {
            Shape::Stub
        }
        (None | Some(RegisterRule::SameValue), _) => Shape::DropsCaller,
        (Some(RegisterRule::Offset(-16)), Some((RBP, 16))) => Shape::Framed,
        (Some(RegisterRule::Offset(-16)), Some((sp, 16))) if sp == SPEC.sp => Shape::Pushed,
        (Some(RegisterRule::Offset(slot)), Some((sp, cfa))) if sp == SPEC.sp && is_below(slot, cfa) => {
            Shape::DropsCaller
        }
        (Some(RegisterRule::Expression(at)), _) if row.bytes(at) == Some(&SAVED_AT_RBP) => Shape::Realigned,
        _ => Shape::Breaks,
    }
}

/// Whether a slot is below the stack pointer, given its offset from the CFA and the CFA's offset from the stack
/// pointer.
fn is_below(slot: i64, cfa: i64) -> bool {
    slot.checked_add(cfa).is_some_and(|above_sp| above_sp < 0)
}

/// Whether the code calls, judged from its bytes; `ip` is the address of the first.
///
/// # Sources
/// Intel SDM vol. 2, CALL: `E8 rel32`, `FF /2`; `FF 15 disp32` is the latter relative to the next instruction.
pub(crate) fn calls(code: &[u8], ip: u64, context: &impl Context) -> Calls {
    let mut unclear = false;
    for at in memchr::memchr2_iter(0xe8, 0xff, code) {
        let rest = code.get(at..).unwrap_or_default();
        let next_ip = |len: u64| ip.wrapping_add(at as u64).wrapping_add(len);
        match rest {
            [0xe8, a, b, c, d, ..] => match context.at(relative(next_ip(5), [*a, *b, *c, *d])) {
                Target::Start => return Calls::Yes,
                Target::Code => unclear = true,
                Target::Data | Target::Nothing => {}
            },
            [0xff, 0x15, a, b, c, d, ..] if context.at(relative(next_ip(6), [*a, *b, *c, *d])) == Target::Data => {
                return Calls::Yes;
            }
            [0xff, modrm, ..] if modrm & 0x38 == 0x10 => unclear = true,
            _ => {}
        }
    }
    if unclear { Calls::Unclear } else { Calls::No }
}

fn relative(ip: u64, displacement: [u8; 4]) -> u64 {
    ip.wrapping_add(i64::from(i32::from_le_bytes(displacement)).cast_unsigned())
}

/// Whether the code calls, by decoding instructions up to the first call.
pub(crate) fn decoded_calls(code: &[u8], ip: u64) -> bool {
    let mut decoder = Decoder::with_ip(64, code, ip, DecoderOptions::NONE);
    while decoder.can_decode() {
        if matches!(decoder.decode().flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            return true;
        }
    }
    false
}
