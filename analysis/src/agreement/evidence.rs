//! What the code before a return address says about it.

use crate::address_space::FileIx;
use crate::modules::{ElfFile, ModuleTable};
use fpprof_unwind::Arch;
use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// Longest call that compilers emit, with all prefixes: `notrack call` through a far address with an index.
const MAX_CALL_BYTES: u64 = 9;
/// Shortest call: through a register.
const MIN_CALL_BYTES: u64 = 2;

/// What precedes a return address, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Not a call.
    NoCall,
    /// Unknown: no such frame, an interrupted instruction, or bytes that cannot be read.
    Unknown,
    /// A call of another function, or an indirect call.
    Call,
    /// A direct call of the callee.
    CallOfCallee,
}

/// Which strategy is right about a frame's caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceVerdict {
    /// The reference: the other's return address does not follow a call, or only the reference's follows a call of the
    /// function itself, even if the other has none.
    Reference,
    /// The other, for the same reasons.
    Other,
    /// The code does not decide.
    Open,
}

impl EvidenceVerdict {
    /// Weighs the evidence for the return addresses that two strategies have for one frame.
    #[must_use]
    pub fn weigh(reference: Evidence, other: Evidence) -> Self {
        let beats = |one: Evidence, two: Evidence| {
            matches!(
                (one, two),
                (Evidence::Call | Evidence::CallOfCallee, Evidence::NoCall) | (Evidence::CallOfCallee, Evidence::Call)
            )
        };
        if beats(reference, other) {
            Self::Reference
        } else if beats(other, reference) {
            Self::Other
        } else {
            Self::Open
        }
    }
}

/// Examines the code of modules; each file is opened once.
#[derive(Debug)]
pub(super) struct CallChecker<'a> {
    modules: &'a ModuleTable<'a>,
    files: FxHashMap<FileIx, Option<ElfFile>>,
}

impl<'a> CallChecker<'a> {
    pub(super) fn new(modules: &'a ModuleTable<'a>) -> Self {
        Self { modules, files: FxHashMap::default() }
    }

    /// What precedes the return address at an SVMA. `callee` is the first SVMA of the called function, if it is in the
    /// same file.
    pub(super) fn before(&mut self, file: FileIx, return_svma: u64, callee: Option<u64>) -> Evidence {
        let modules = self.modules;
        let elf = self.files.entry(file).or_insert_with(|| modules.open(file).ok());
        let Some(elf) = elf else { return Evidence::Unknown };
        let image = elf.image();
        if image.arch != Some(Arch::X86_64) {
            return Evidence::Unknown;
        }
        let mut found = Evidence::Unknown;
        for len in MIN_CALL_BYTES..=MAX_CALL_BYTES {
            let Some(svma) = return_svma.checked_sub(len) else { break };
            let offset = image.file_offset(svma);
            let Some(bytes) = offset.and_then(|offset| elf.read_range(offset, len, MAX_CALL_BYTES)) else { continue };
            found = found.max(call(&bytes, svma, callee));
        }
        // The bytes could be read, but do not end with a call.
        let is_readable = image.file_offset(return_svma.wrapping_sub(1)).is_some();
        if found == Evidence::Unknown && is_readable { Evidence::NoCall } else { found }
    }
}

/// Decodes `bytes`, located at `svma`, which must be exactly one call.
fn call(bytes: &[u8], svma: u64, callee: Option<u64>) -> Evidence {
    let mut decoder = Decoder::with_ip(64, bytes, svma, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if instruction.mnemonic() != Mnemonic::Call || instruction.len() != bytes.len() {
        return Evidence::Unknown;
    }
    let is_direct = instruction.op0_kind() == OpKind::NearBranch64;
    let is_callee = is_direct && callee == Some(instruction.near_branch_target());
    if is_callee { Evidence::CallOfCallee } else { Evidence::Call }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that direct and indirect calls are distinguished from other instructions, and calls of the callee from
    /// others.
    #[test]
    fn calls_are_recognised() {
        let direct = [0xe8, 0x10, 0, 0, 0];
        assert_eq!(call(&direct, 0x1000, Some(0x1015)), Evidence::CallOfCallee);
        assert_eq!(call(&direct, 0x1000, Some(0x1016)), Evidence::Call);
        assert_eq!(call(&direct, 0x1000, None), Evidence::Call);
        // call *%rax; call *8(%rbx); notrack call *%rax; call *0x12345678(%rip)
        for bytes in [&[0xff, 0xd0][..], &[0xff, 0x53, 8], &[0x3e, 0xff, 0xd0], &[0xff, 0x15, 0x78, 0x56, 0x34, 0x12]] {
            assert_eq!(call(bytes, 0x1000, None), Evidence::Call, "{bytes:x?}");
        }
        // jmp rel32; mov; a call with a byte too many; syscall
        for bytes in [&[0xe9, 0, 0, 0, 0][..], &[0x48, 0x89, 0xc3], &[0xe8, 0, 0, 0, 0, 0x90], &[0x0f, 0x05]] {
            assert_eq!(call(bytes, 0x1000, None), Evidence::Unknown, "{bytes:x?}");
        }
    }

    /// Check that a verdict requires a difference in the evidence.
    #[test]
    fn verdicts_need_evidence() {
        use Evidence::{Call, CallOfCallee, NoCall, Unknown};
        let all = [NoCall, Unknown, Call, CallOfCallee];
        for (a, b) in all.into_iter().flat_map(|a| all.map(|b| (a, b))) {
            let expected = match (a, b) {
                (Call | CallOfCallee, NoCall) | (CallOfCallee, Call) => EvidenceVerdict::Reference,
                (NoCall, Call | CallOfCallee) | (Call, CallOfCallee) => EvidenceVerdict::Other,
                _ => EvidenceVerdict::Open,
            };
            assert_eq!(EvidenceVerdict::weigh(a, b), expected, "{a:?} {b:?}");
        }
    }
}
