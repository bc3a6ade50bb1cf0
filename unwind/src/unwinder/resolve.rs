//! From an address to its rule.

use crate::arch::Arch;
use crate::cfi::{Program, Scratch, Sections, State};
use crate::error::Error;
use crate::module::{Fde, Module, SectionKind};
use crate::rule::Rule;
use crate::space::{ModuleId, Modules, Space};
use crate::stack::{BrokenReason, Root, StopReason, TruncatedReason};
use crate::tables::{EntryKey, Tables};

const RA_NOT_EXEC: StopReason = StopReason::Broken(BrokenReason::RaNotExec);
const BAD_CFI: StopReason = StopReason::Broken(BrokenReason::BadCfi);

/// The code an address lies in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Code<'m> {
    pub(super) id: ModuleId,
    pub(super) module: &'m Module,
    pub(super) bias: u64,
    pub(super) svma: u64,
}

/// The row that covers an address, and what else its entry says.
#[derive(Debug, Clone, Copy)]
pub(super) struct CodeRow {
    /// Where the row's expressions stand.
    pub(super) section: SectionKind,
    pub(super) return_address_register: u16,
    pub(super) is_signal_frame: bool,
    /// What the frame is if its return address is undefined.
    pub(super) root: Root,
    pub(super) state: State,
}

/// The code an address lies in, or why a walk stops there.
pub(super) fn find_code<'m, M: Modules + ?Sized>(
    modules: &'m M,
    space: &Space,
    arch: Arch,
    lookup: u64,
) -> Result<Code<'m>, StopReason> {
    let mapping = space.find(lookup).filter(|mapping| mapping.executable).ok_or(RA_NOT_EXEC)?;
    let id = mapping.module.ok_or(StopReason::Truncated(TruncatedReason::NoModule))?;
    let module = modules.module(id).map_err(StopReason::Truncated)?;
    if module.arch() != arch {
        return Err(match module.arch() {
            Arch::I386 => StopReason::Truncated(TruncatedReason::Abi32),
            _ => BAD_CFI,
        });
    }
    Ok(Code { id, module, bias: mapping.bias, svma: lookup.wrapping_sub(mapping.bias) & arch.spec().address_mask })
}

impl<'m> Code<'m> {
    /// The row that covers the address, or why a walk stops.
    pub(super) fn row(&self, scratch: &mut Scratch) -> Result<CodeRow, StopReason> {
        self.run(scratch).map_err(|error| match error {
            Error::NoRow(_) if self.module.is_entry_code(self.svma) => StopReason::Complete(Root::Start),
            Error::NoRow(_) => StopReason::Truncated(TruncatedReason::NoCfi),
            _ => BAD_CFI,
        })
    }

    fn run(&self, scratch: &mut Scratch) -> Result<CodeRow, Error> {
        let fde = self.module.find(self.svma)?;
        let sections = Sections::new(self.module);
        let mut program = Program::new(self.module, &sections, &fde, scratch)?;
        while let Some(range) = program.next_row()? {
            if range.contains(&self.svma) {
                return Ok(CodeRow {
                    section: fde.kind,
                    return_address_register: fde.entry.cie().return_address_register().0,
                    is_signal_frame: fde.is_signal_frame(),
                    root: self.root(&fde),
                    state: *program.state(),
                });
            }
        }
        Err(Error::NoRow(self.svma))
    }

    /// The root a frame is whose return address is undefined.
    fn root(&self, fde: &Fde<'_>) -> Root {
        if self.module.has_entry_in(fde.range()) { Root::Start } else { Root::UndefinedRa }
    }

    /// The bytes of an expression in a section.
    pub(super) fn expression(&self, section: SectionKind, bytes: crate::cfi::ExpressionBytes) -> Option<&'m [u8]> {
        bytes.of(&self.module.section(section)?.bytes)
    }

    /// The rule of the address, by itself: nothing is remembered.
    fn compile(&self, scratch: &mut Scratch) -> Result<Rule, StopReason> {
        let row = self.row(scratch)?;
        Ok(self.compile_row(row.section, row.return_address_register, row.is_signal_frame, row.root, &row.state))
    }

    fn compile_row(
        &self,
        section: SectionKind,
        return_address_register: u16,
        is_signal_frame: bool,
        root: Root,
        state: &State,
    ) -> Rule {
        let spec = self.module.arch().spec();
        let rule = Rule::compile(state, spec, return_address_register, is_signal_frame, |bytes| {
            self.expression(section, bytes)
        });
        if rule == Rule::stop(StopReason::Complete(Root::UndefinedRa)) {
            return Rule::stop(StopReason::Complete(root));
        }
        rule
    }

    /// The rule of the address, from a compiled entry. Compiles the entry if this is the first address met in it.
    fn rule(&self, scratch: &mut Scratch, tables: &mut Tables) -> Result<Rule, StopReason> {
        let place = self.module.place(self.svma);
        let key = place.and_then(|place| EntryKey::new(self.id, place.kind, place.offset));
        if let (Some(place), Some(key)) = (place, key)
            && let Some(rule) = tables.find(key, place.start, self.svma)
        {
            return Ok(rule);
        }
        let placed = place.and_then(|place| self.module.find_at(place, self.svma));
        if let Some(fde) = placed.or_else(|| self.module.find(self.svma).ok())
            && let Some(key) = EntryKey::new(self.id, fde.kind, fde.entry.offset())
        {
            if let Some(rule) = tables.find(key, None, self.svma) {
                return Ok(rule);
            }
            self.compile_entry(&fde, key, scratch, tables);
            if let Some(rule) = tables.find(key, None, self.svma) {
                return Ok(rule);
            }
        }
        self.compile(scratch)
    }

    /// Compiles all rows of an entry. Where its program is malformed the rows before are good, and the rest is bad.
    fn compile_entry(&self, fde: &Fde<'m>, key: EntryKey, scratch: &mut Scratch, tables: &mut Tables) {
        tables.begin();
        let first_row = tables.n_rows();
        let entry = fde.range();
        let offset_of = |svma: u64| u32::try_from(svma.wrapping_sub(entry.start)).ok();
        let sections = Sections::new(self.module);
        let ra = fde.entry.cie().return_address_register().0;
        let (is_signal_frame, root) = (fde.is_signal_frame(), self.root(fde));
        let mut bad_from = Some(entry.start);
        if let Ok(mut program) = Program::new(self.module, &sections, fde, scratch) {
            bad_from = loop {
                let reached = program.row_start();
                match program.next_row() {
                    Ok(Some(row)) => {
                        let Some(start) = offset_of(row.start) else { break None };
                        if !row.is_empty() {
                            let rule = self.compile_row(fde.kind, ra, is_signal_frame, root, program.state());
                            tables.push(first_row, start, rule);
                        }
                    }
                    Ok(None) => break None,
                    Err(_) => break Some(reached),
                }
            };
        }
        if let Some(start) = bad_from.and_then(offset_of) {
            tables.push(first_row, start, Rule::stop(BAD_CFI));
        }
        tables.end(key, entry, first_row);
    }
}

/// The rule of an address in any architecture's code. Nothing is remembered.
pub(super) fn resolve<M: Modules + ?Sized>(
    modules: &M,
    space: &Space,
    arch: Arch,
    lookup: u64,
    scratch: &mut Scratch,
) -> Rule {
    match find_code(modules, space, arch, lookup).and_then(|code| code.compile(scratch)) {
        Ok(rule) => rule,
        Err(stop) => Rule::stop(stop),
    }
}

/// The rule of an address in x86-64 code, from compiled entries.
pub(super) fn resolve_compiled<M: Modules + ?Sized>(
    modules: &M,
    space: &Space,
    lookup: u64,
    scratch: &mut Scratch,
    tables: &mut Tables,
) -> Rule {
    match find_code(modules, space, Arch::X86_64, lookup).and_then(|code| code.rule(scratch, tables)) {
        Ok(rule) => rule,
        Err(stop) => Rule::stop(stop),
    }
}
