//! Resolves an address to its rule.

use super::code::{Code, CodeRow, NO_CFI, find_code};
use super::{plt, trampoline};
use crate::arch::{Arch, ROOT_CODE_BYTES, Spec};
use crate::cfi::{Cies, Program, QuickCie, QuickFde, Scratch, Sections};
use crate::module::{Place, SectionKind};
use crate::rule::{Kind, Needed, Rule};
use crate::space::{Modules, Space};
use crate::stack::{Root, StopReason};

/// Caches and memory reused from address to address.
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

impl Code<'_> {
    /// Compiles the row of the address.
    fn compile(&self, row: &CodeRow) -> Rule {
        let needed = row.state.needed(self.module.arch().spec(), row.return_address_register);
        self.compile_row(row.section, row.return_address_register, row.is_signal_frame, row.root, &needed)
    }

    pub(super) fn compile_row(
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

    /// Compiles the rule of the address, by the fast path if the FDE has the usual form.
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
        self.row(&mut compiler.scratch).map(|row| self.compile(&row))
    }

    /// The rule of the address by the fast path; `None` if the FDE does not cover the address or is unusual.
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

    /// Parses and caches the CIE of the FDE at `place`; `None` if it is cached already or unusual.
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

/// The rule of an address on any architecture. Not cached.
pub(super) fn resolve<M: Modules + ?Sized>(
    modules: &M,
    space: &Space,
    arch: Arch,
    lookup: u64,
    scratch: &mut Scratch,
) -> Rule {
    let rule = find_code(modules, space, arch, lookup).and_then(|code| Ok(code.compile(&code.row(scratch)?)));
    with_named_end(rule, modules, space, arch, lookup)
}

/// The rule of an address in x86-64 code. Not cached.
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
        NO_CFI if trampoline::row(modules, &code).is_some() => Rule::SIGNAL,
        NO_CFI if code.follows_system_call(modules) => Rule::FULL,
        NO_CFI => match plt::row(modules, &code) {
            Some(row) => code.compile(&row),
            None if code.module.is_entry_code(code.svma) => Rule::stop(NO_CFI).at_entry(),
            None => Rule::stop(NO_CFI),
        },
        stop => Rule::stop(stop),
    }
}

/// Recognises the root that a walk has reached, from the code at the return address, if the walk found no caller or no
/// information. A new context returns to the first instruction of a function that has not called anything, so the row
/// of the address before it, if any, belongs to another function.
///
/// If a row says that there is no caller, the code only names the root. Without a row, a thread's start must also be
/// preceded by the call that started it, right after the system call that created it: any program may exit the way
/// `clone` does, and any may call that way.
pub(super) fn name_end<M: Modules + ?Sized>(modules: &M, code: &Code<'_>, stop: StopReason) -> StopReason {
    if !matches!(stop, StopReason::Complete(Root::UndefinedRa) | NO_CFI) {
        return stop;
    }
    let spec = code.module.arch().spec();
    let Some(after) = code.code_after(modules) else { return stop };
    match (spec.root_of)(&after) {
        Some(Root::ThreadStart)
            if stop == NO_CFI && !code.code_before(modules).is_some_and(|before| (spec.starts_thread)(&before)) =>
        {
            stop
        }
        Some(root) => StopReason::Complete(root),
        None => stop,
    }
}

/// Whether an address can be a return address: it follows a call instruction, or the code is not available.
pub(super) fn is_after_call<M: Modules + ?Sized>(modules: &M, space: &Space, spec: &Spec, address: u64) -> bool {
    has_call_before(modules, space, spec, address) != Some(false)
}

/// Whether a call instruction precedes an address; `None` if the code is not available.
pub(super) fn has_call_before<M: Modules + ?Sized>(
    modules: &M,
    space: &Space,
    spec: &Spec,
    address: u64,
) -> Option<bool> {
    let lookup = address.wrapping_sub(1);
    let Some(mapping) = space.find(lookup).filter(|mapping| mapping.executable) else { return Some(false) };
    let mut before = [0; ROOT_CODE_BYTES];
    let is_read = mapping.module.is_some_and(|id| {
        let svma = address.wrapping_sub(modules.bias(mapping)).wrapping_sub(ROOT_CODE_BYTES as u64);
        modules.code(id, svma & spec.address_mask, &mut before)
    });
    is_read.then(|| (spec.ends_with_call)(&before))
}
