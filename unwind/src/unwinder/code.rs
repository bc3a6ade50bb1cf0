//! Finds the code that contains an address, and the row that covers it.

use crate::arch::{Arch, ROOT_CODE_BYTES, START_CODE_BYTES};
use crate::cfi::{CfaRule, Program, RegisterRule, Scratch, Sections, State};
use crate::error::Error;
use crate::module::{Base, Module, SectionKind, SframeRow, SframeRule};
use crate::space::{ModuleId, Modules, Space};
use crate::stack::{BrokenReason, Root, StopReason, TruncatedReason};

const RA_NOT_EXEC: StopReason = StopReason::Broken(BrokenReason::RaNotExec);

/// A sampled instruction pointer outside any mapping does not mean a broken stack: whatever ran there was code.
pub(super) const NOT_KNOWN_TO_BE_CODE: StopReason = StopReason::Truncated(TruncatedReason::NoModule);

pub(super) const BAD_CFI: StopReason = StopReason::Broken(BrokenReason::BadCfi);

pub(super) const NO_CFI: StopReason = StopReason::Truncated(TruncatedReason::NoCfi);

/// An address resolved to its module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Code<'m> {
    pub(super) id: ModuleId,
    pub(super) module: &'m Module,
    pub(super) bias: u64,
    pub(super) svma: u64,
}

/// The row that covers an address, and the properties of its FDE.
#[derive(Debug, Clone, Copy)]
pub(super) struct CodeRow {
    /// The section that the row's expressions are in.
    pub(super) section: SectionKind,
    pub(super) return_address_register: u16,
    pub(super) is_signal_frame: bool,
    /// The root, if the return address is undefined.
    pub(super) root: Root,
    pub(super) state: State,
}

impl CodeRow {
    /// Whether the row says that there is no caller.
    pub(super) fn is_outermost(&self) -> bool {
        self.state.rule(self.return_address_register) == RegisterRule::Undefined
    }
}

/// Resolves an address to its module, or returns why a walk stops there.
pub(super) fn find_code<'m, M: Modules + ?Sized>(
    modules: &'m M,
    space: &Space,
    arch: Arch,
    lookup: u64,
) -> Result<Code<'m>, StopReason> {
    let mapping = space.find_code(lookup).filter(|mapping| mapping.executable).ok_or(RA_NOT_EXEC)?;
    let id = mapping.module.ok_or(StopReason::Truncated(TruncatedReason::NoModule))?;
    let module = modules.module(id).map_err(StopReason::Truncated)?;
    if module.arch() != arch {
        return Err(match module.arch() {
            Arch::I386 => StopReason::Truncated(TruncatedReason::Abi32),
            _ => BAD_CFI,
        });
    }
    let bias = modules.bias(mapping);
    Ok(Code { id, module, bias, svma: lookup.wrapping_sub(bias) & arch.spec().address_mask })
}

impl<'m> Code<'m> {
    /// The row that covers the address, or why a walk stops there.
    pub(super) fn row(&self, scratch: &mut Scratch) -> Result<CodeRow, StopReason> {
        self.check_root()?;
        self.run(scratch).map_err(|error| match error {
            Error::NoRow(_) => NO_CFI,
            _ => BAD_CFI,
        })
    }

    /// Ends the walk at a root declared by the module.
    pub(super) fn check_root(&self) -> Result<(), StopReason> {
        self.module.root_at(self.svma).map_or(Ok(()), |root| Err(StopReason::Complete(root)))
    }

    fn run(&self, scratch: &mut Scratch) -> Result<CodeRow, Error> {
        if let Some(row) = self.module.sframe_row(self.svma) {
            return row.map(|row| self.sframe_row(row));
        }
        let fde = self.module.find(self.svma)?;
        let sections = Sections::new(self.module);
        let mut program = Program::new(self.module, &sections, &fde, scratch)?;
        while let Some(range) = program.next_row()? {
            if range.contains(&self.svma) {
                return Ok(CodeRow {
                    section: fde.kind,
                    return_address_register: fde.entry.cie().return_address_register().0,
                    is_signal_frame: fde.is_signal_frame(),
                    root: self.root(fde.range()),
                    state: *program.state(),
                });
            }
        }
        Err(Error::NoRow(self.svma))
    }

    /// Converts a `.sframe` row to the rules of call frame information.
    fn sframe_row(&self, row: SframeRow) -> CodeRow {
        let spec = self.module.arch().spec();
        let return_address_register = spec.lr.unwrap_or(spec.ip);
        let number = |base| match base {
            Base::Cfa => None,
            Base::Sp => Some(spec.sp),
            Base::Fp => Some(spec.fp),
            Base::Register(register) => Some(register),
        };
        let rule = |SframeRule { base, offset, is_in_memory }| match (number(base), is_in_memory) {
            (None, true) => RegisterRule::Offset(offset),
            (None, false) => RegisterRule::ValOffset(offset),
            (Some(register), true) => RegisterRule::AtRegister { register, offset },
            // The offset is 0: rows with another are rejected.
            (Some(register), false) => RegisterRule::Register(register),
        };
        let return_address = match (row.cfa, row.ra) {
            (None, _) => RegisterRule::Undefined,
            (Some(_), ra) => ra.map_or(RegisterRule::Unspecified, rule),
        };
        let mut state = State { in_frame: u64::from(row.was_fp_in_frame) << spec.fp, ..State::NEW };
        for (register, rule) in
            [(return_address_register, return_address), (spec.fp, row.fp.map_or(RegisterRule::Unspecified, rule))]
        {
            if let Some(slot) = state.rules.get_mut(usize::from(register)) {
                *slot = rule;
            }
        }
        if let Some(SframeRule { base, offset, is_in_memory }) = row.cfa
            && let Some(register) = number(base)
        {
            state.cfa = match is_in_memory {
                true => CfaRule::AtRegister { register, offset },
                false => CfaRule::RegisterOffset { register, offset },
            };
        }
        CodeRow {
            // Never used: `.sframe` rows have no expressions.
            section: SectionKind::EhFrame,
            return_address_register,
            is_signal_frame: row.is_signal_frame,
            root: self.root(row.function),
            state,
        }
    }

    /// The root of a frame whose return address is undefined.
    pub(super) fn root(&self, range: core::ops::Range<u64>) -> Root {
        if self.module.has_entry_in(range) { Root::Start } else { Root::UndefinedRa }
    }

    /// The code from the return address on.
    pub(super) fn code_after<M: Modules + ?Sized>(&self, modules: &M) -> Option<[u8; ROOT_CODE_BYTES]> {
        self.bytes_at(modules, self.svma.wrapping_add(1))
    }

    /// The code before the return address.
    pub(super) fn code_before<M: Modules + ?Sized>(&self, modules: &M) -> Option<[u8; START_CODE_BYTES]> {
        self.bytes_at(modules, self.svma.wrapping_add(1).wrapping_sub(START_CODE_BYTES as u64))
    }

    /// Whether the instruction at the address follows a system call.
    pub(super) fn follows_system_call<M: Modules + ?Sized>(&self, modules: &M) -> bool {
        let before = self.bytes_at(modules, self.svma.wrapping_sub(ROOT_CODE_BYTES as u64));
        before.is_some_and(|before| (self.module.arch().spec().ends_with_system_call)(&before))
    }

    /// Whether execution continues from the address to the call by which a C library's `clone` starts a thread: within
    /// the next 64 bytes.
    pub(super) fn goes_on_to_start_thread<M: Modules + ?Sized>(&self, modules: &M) -> bool {
        const BYTES: usize = 2 * START_CODE_BYTES;
        let spec = self.module.arch().spec();
        let Some(code) = self.bytes_at::<_, BYTES>(modules, self.svma.wrapping_sub(START_CODE_BYTES as u64)) else {
            return false;
        };
        (START_CODE_BYTES..BYTES).any(|at| {
            let (before, after) = code.split_at(at);
            let is_start = before.last_chunk().is_some_and(|before| (spec.starts_thread)(before));
            is_start && after.first_chunk().and_then(spec.root_of) == Some(Root::ThreadStart)
        })
    }

    pub(super) fn bytes_at<M: Modules + ?Sized, const N: usize>(&self, modules: &M, svma: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        modules.code(self.id, svma, &mut bytes).then_some(bytes)
    }

    /// The bytes of an expression in a section.
    pub(super) fn expression(&self, section: SectionKind, bytes: crate::cfi::ExpressionBytes) -> Option<&'m [u8]> {
        bytes.of(&self.module.section(section)?.bytes)
    }
}
