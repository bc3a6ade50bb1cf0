//! Looks up all names of one module at once.

use super::demangle::Demangled;
use super::dwarf::{Dwarf, FromDwarf, SplitFiles, TooMuchDwarf};
use super::names::{Detail, Name, Names};
use super::plt::Stubs;
use super::symbol_map::SymbolMap;
use crate::address_space::FileIx;
use crate::modules::{ElfFile, GoFunctions, GoMissing, Missing, ModuleTable};

/// What a module's symbols know about some addresses.
#[derive(Debug)]
pub(super) struct ModuleNames {
    /// One for each requested address, in order.
    pub(super) names: Vec<Names>,
    /// There is too much DWARF to be read: some or all inline frames are missing.
    pub(super) is_without_inlines: bool,
    /// There are more symbols at these addresses than the limit.
    pub(super) is_without_symbols: bool,
    /// Some of its DWARF is in separate files that are not available.
    pub(super) is_without_split: bool,
    /// Why a Go program's own table, which was needed, cannot be used.
    pub(super) go_missing: Option<GoMissing>,
}

/// Names of addresses (SVMAs, ascending) in a module.
pub(super) fn names_of(
    modules: &ModuleTable<'_>,
    file: FileIx,
    svmas: &[u64],
    detail: Detail,
) -> Result<ModuleNames, Missing> {
    let own = modules.open(file)?;
    let debug = modules.open_debug(file);
    let inside = if debug.is_none() { own.compressed_symbols() } else { None };
    let symbols = SymbolMap::new(std::iter::once(&own).chain(&debug).chain(&inside), svmas);
    let mut demangled = Demangled::default();
    let dwarf = if detail == Detail::Symbols { None } else { dwarf_of(modules, file, &own, debug.as_ref()) };
    let is_too_large = matches!(dwarf, Some(Err(TooMuchDwarf)));
    let from_dwarf = dwarf.and_then(Result::ok).map(|dwarf| {
        let split = SplitFiles::new(modules, file, dwarf.endian());
        dwarf.names(svmas, detail, &symbols, &split, &mut demangled)
    });
    let FromDwarf { names: from_dwarf, is_too_much, is_without_split } = from_dwarf.unwrap_or_default();
    let mut from_dwarf = from_dwarf.into_iter();
    let mut names: Vec<Names> = Vec::with_capacity(svmas.len());
    let mut unnamed = Vec::new();
    for &svma in svmas {
        let mut found = from_dwarf.next().unwrap_or_default();
        if found.is_empty() {
            found.extend(symbols.find(svma).map(|symbol| Name::without_line(demangled.name(symbol))));
        }
        if found.is_empty() {
            unnamed.push(svma);
        }
        found.reverse();
        names.push(Names(found));
    }
    let mut go_missing = None;
    if !unnamed.is_empty() {
        match GoFunctions::read(&own, &own.sections()) {
            Ok(Some(functions)) => unnamed.retain(|&svma| {
                let slot = svmas.binary_search(&svma).ok().and_then(|at| names.get_mut(at));
                let named = slot.zip(functions.find(svma));
                if let Some((slot, name)) = named {
                    slot.0.push(Name::without_line(demangled.name(name)));
                    return false;
                }
                true
            }),
            Ok(None) => {}
            Err(missing) => go_missing = Some(missing),
        }
        let files: Vec<&ElfFile> = std::iter::once(&own).chain(&debug).chain(&inside).collect();
        for (svma, name) in Stubs::new(&own).names(&unnamed, &files) {
            if let Some(slot) = svmas.binary_search(&svma).ok().and_then(|at| names.get_mut(at)) {
                slot.0.push(Name::without_line(demangled.name(&name)));
            }
        }
    }
    Ok(ModuleNames {
        names,
        is_without_inlines: is_too_large || is_too_much,
        is_without_symbols: symbols.is_too_much(),
        is_without_split,
        go_missing,
    })
}

fn dwarf_of(
    modules: &ModuleTable<'_>,
    file: FileIx,
    own: &ElfFile,
    debug: Option<&ElfFile>,
) -> Option<Result<Dwarf, TooMuchDwarf>> {
    if own.has_section(b".debug_info") {
        return Some(Dwarf::new(own, modules.open_supplementary(file, own).as_ref()));
    }
    let debug = debug.filter(|debug| debug.has_section(b".debug_info"))?;
    Some(Dwarf::new(debug, debug.supplementary()))
}
