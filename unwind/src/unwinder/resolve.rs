//! From an address to its rule.

use super::trampoline;
use crate::arch::{Arch, ROOT_CODE_BYTES, START_CODE_BYTES, Spec};
use crate::cfi::{Cies, Program, QuickCie, QuickFde, RegisterRule, Scratch, Sections, State};
use crate::error::Error;
use crate::module::{Module, Place, SectionKind};
use crate::rule::{Kind, Needed, Rule};
use crate::space::{ModuleId, Modules, Space};
use crate::stack::{BrokenReason, Root, StopReason, TruncatedReason};

const RA_NOT_EXEC: StopReason = StopReason::Broken(BrokenReason::RaNotExec);
/// What runs is code, whatever is known of it: an instruction pointer into no mapping is no broken stack.
pub(super) const NOT_KNOWN_TO_BE_CODE: StopReason = StopReason::Truncated(TruncatedReason::NoModule);
const BAD_CFI: StopReason = StopReason::Broken(BrokenReason::BadCfi);
pub(super) const NO_CFI: StopReason = StopReason::Truncated(TruncatedReason::NoCfi);

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

/// What is kept from one address to the next.
#[derive(Debug)]
pub(super) struct Compiler {
    pub(super) scratch: Scratch,
    cies: Cies,
}

impl Compiler {
    pub(super) fn new() -> Self {
        Self { scratch: Scratch::new(), cies: Cies::default() }
    }
}

impl CodeRow {
    /// Whether the row says that there is no caller.
    pub(super) fn is_outermost(&self) -> bool {
        self.state.rule(self.return_address_register) == RegisterRule::Undefined
    }
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
        self.check_root()?;
        self.run(scratch).map_err(|error| match error {
            Error::NoRow(_) => NO_CFI,
            _ => BAD_CFI,
        })
    }

    /// Ends a walk where the module says so.
    fn check_root(&self) -> Result<(), StopReason> {
        self.module.root_at(self.svma).map_or(Ok(()), |root| Err(StopReason::Complete(root)))
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
                    root: self.root(fde.range()),
                    state: *program.state(),
                });
            }
        }
        Err(Error::NoRow(self.svma))
    }

    /// The root a frame is whose return address is undefined.
    fn root(&self, range: core::ops::Range<u64>) -> Root {
        if self.module.has_entry_in(range) { Root::Start } else { Root::UndefinedRa }
    }

    /// The code at the return address.
    pub(super) fn behind<M: Modules + ?Sized>(&self, modules: &M) -> Option<[u8; ROOT_CODE_BYTES]> {
        self.bytes_at(modules, self.svma.wrapping_add(1))
    }

    /// The code before the return address.
    fn before<M: Modules + ?Sized>(&self, modules: &M) -> Option<[u8; START_CODE_BYTES]> {
        self.bytes_at(modules, self.svma.wrapping_add(1).wrapping_sub(START_CODE_BYTES as u64))
    }

    /// Whether a system call stands before the instruction at the address.
    pub(super) fn is_behind_system_call<M: Modules + ?Sized>(&self, modules: &M) -> bool {
        let before = self.bytes_at(modules, self.svma.wrapping_sub(ROOT_CODE_BYTES as u64));
        before.is_some_and(|before| (self.module.arch().spec().ends_with_system_call)(&before))
    }

    fn bytes_at<M: Modules + ?Sized, const N: usize>(&self, modules: &M, svma: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        modules.code(self.id, svma, &mut bytes).then_some(bytes)
    }

    /// The bytes of an expression in a section.
    pub(super) fn expression(&self, section: SectionKind, bytes: crate::cfi::ExpressionBytes) -> Option<&'m [u8]> {
        bytes.of(&self.module.section(section)?.bytes)
    }

    /// The rule of the address, by the parser.
    fn compile(&self, scratch: &mut Scratch) -> Result<Rule, StopReason> {
        let row = self.row(scratch)?;
        let needed = row.state.needed(self.module.arch().spec(), row.return_address_register);
        Ok(self.compile_row(row.section, row.return_address_register, row.is_signal_frame, row.root, &needed))
    }

    fn compile_row(
        &self,
        section: SectionKind,
        return_address_register: u16,
        is_signal_frame: bool,
        root: Root,
        needed: &Needed,
    ) -> Rule {
        let spec = self.module.arch().spec();
        let rule = Rule::compile(needed, spec, return_address_register, is_signal_frame, |bytes| {
            self.expression(section, bytes)
        });
        if rule == Rule::stop(StopReason::Complete(Root::UndefinedRa)) {
            return Rule::stop(StopReason::Complete(root));
        }
        rule
    }

    /// The rule of the address, by the short way where the entry is of the form that nearly all have.
    fn compile_quickly(&self, compiler: &mut Compiler) -> Result<Rule, StopReason> {
        self.check_root()?;
        if let Some(place) = self.module.place(self.svma).filter(|place| place.kind == SectionKind::EhFrame) {
            let quick = self.compile_at(place, &compiler.cies).or_else(|| {
                self.meet_cie(place, compiler)?;
                self.compile_at(place, &compiler.cies)
            });
            if let Some(rule) = quick {
                return Ok(rule);
            }
        }
        self.compile(&mut compiler.scratch)
    }

    /// The rule of the address from the entry at a place, if it covers the address and is of the usual form.
    fn compile_at(&self, place: Place, cies: &Cies) -> Option<Rule> {
        let fde = QuickFde::new(self.module.section(place.kind)?, place.offset)?;
        let is_right = place.start.is_none_or(|start| start == fde.range.start);
        if !is_right || !fde.range.contains(&self.svma) {
            return None;
        }
        let cie = cies.find(self.id, fde.cie_offset)?;
        let spec = self.module.arch().spec();
        let needed = cie.row(&fde, spec, self.svma)?;
        Some(self.compile_row(place.kind, spec.ip, cie.is_signal_frame, self.root(fde.range), &needed))
    }

    /// Parses the common entry of the entry at a place; `None` where that was done, or it is not of the usual form.
    fn meet_cie(&self, place: Place, compiler: &mut Compiler) -> Option<()> {
        let Compiler { scratch, cies } = compiler;
        let fde = self.module.find_at(place, self.svma)?;
        let (cie, spec) = (fde.entry.cie(), self.module.arch().spec());
        if cies.find(self.id, cie.offset()).is_some() {
            return None;
        }
        let sections = Sections::new(self.module);
        let program = Program::new(self.module, &sections, &fde, scratch).ok()?;
        let initial = program.state().needed(spec, cie.return_address_register().0);
        cies.insert(self.id, QuickCie::new(&fde, spec, initial)?, cie.offset());
        Some(())
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
    let rule = find_code(modules, space, arch, lookup).and_then(|code| code.compile(scratch));
    with_named_end(rule, modules, space, arch, lookup)
}

/// The rule of an address in x86-64 code.
pub(super) fn resolve_quickly<M: Modules + ?Sized>(
    modules: &M,
    space: &Space,
    lookup: u64,
    compiler: &mut Compiler,
) -> Rule {
    let rule = find_code(modules, space, Arch::X86_64, lookup).and_then(|code| code.compile_quickly(compiler));
    with_named_end(rule, modules, space, Arch::X86_64, lookup)
}

fn with_named_end<M: Modules + ?Sized>(
    rule: Result<Rule, StopReason>,
    modules: &M,
    space: &Space,
    arch: Arch,
    lookup: u64,
) -> Rule {
    let stop = match rule {
        Ok(rule) if rule.kind() == Kind::Stop => rule.stop_reason(),
        Ok(rule) => return rule,
        Err(stop) => stop,
    };
    let Ok(code) = find_code(modules, space, arch, lookup) else { return Rule::stop(stop) };
    match name_end(modules, &code, stop) {
        NO_CFI if trampoline::row(modules, &code).is_some() || code.is_behind_system_call(modules) => Rule::FULL,
        NO_CFI if code.module.is_entry_code(code.svma) => Rule::stop(NO_CFI).at_entry(),
        stop => Rule::stop(stop),
    }
}

/// What a walk has ended in that found no caller or no information: the code at the return address may show it. A
/// new context returns to the first instruction of a function that has not called, so that the row of the address
/// before it, if there is one, is another function's.
///
/// Where a row says that there is no caller, the code only gives that a name. Without a row, a thread's start must have
/// started one, right behind the system call that has made it: any program may exit the way `clone` does, and any may call
/// that way.
pub(super) fn name_end<M: Modules + ?Sized>(modules: &M, code: &Code<'_>, stop: StopReason) -> StopReason {
    if !matches!(stop, StopReason::Complete(Root::UndefinedRa) | NO_CFI) {
        return stop;
    }
    let spec = code.module.arch().spec();
    let Some(behind) = code.behind(modules) else { return stop };
    match (spec.root_of)(&behind) {
        Some(Root::ThreadStart)
            if stop == NO_CFI && !code.before(modules).is_some_and(|before| (spec.starts_thread)(&before)) =>
        {
            stop
        }
        Some(root) => StopReason::Complete(root),
        None => stop,
    }
}

/// Whether an address is one that a call leaves: behind a call instruction, as far as the code can be had.
pub(super) fn is_after_call<M: Modules + ?Sized>(modules: &M, space: &Space, spec: &Spec, address: u64) -> bool {
    has_call_before(modules, space, spec, address) != Some(false)
}

/// Whether a call instruction stands before an address; `None` where the code cannot be had.
pub(super) fn has_call_before<M: Modules + ?Sized>(
    modules: &M,
    space: &Space,
    spec: &Spec,
    address: u64,
) -> Option<bool> {
    let lookup = address.wrapping_sub(1);
    let Some(mapping) = space.find(lookup).filter(|mapping| mapping.executable) else { return Some(false) };
    let mut before = [0; ROOT_CODE_BYTES];
    let start = address.wrapping_sub(mapping.bias).wrapping_sub(ROOT_CODE_BYTES as u64) & spec.address_mask;
    let is_read = mapping.module.is_some_and(|id| modules.code(id, start, &mut before));
    is_read.then(|| (spec.ends_with_call)(&before))
}
