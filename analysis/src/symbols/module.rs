//! All names of one module at once.

use super::demangle::demangle;
use super::dwarf::{Dwarf, TooMuchDwarf, supplementary_build_id};
use super::symbol_map::SymbolMap;
use super::symbolizer::Names;
use crate::address_space::FileIx;
use crate::modules::{Missing, ModuleTable};

/// What a module's symbols say of some addresses.
#[derive(Debug)]
pub(super) struct ModuleNames {
    /// One for each address asked for, in order.
    pub(super) names: Vec<Names>,
    /// There is DWARF, but too much to be read: no inline frames.
    pub(super) is_without_inlines: bool,
}

/// Names of addresses (SVMAs) in a module.
pub(super) fn names_of(modules: &ModuleTable<'_>, file: FileIx, svmas: &[u64]) -> Result<ModuleNames, Missing> {
    let own = modules.open(file)?;
    let debug = modules.open_debug(file);
    let symbols = SymbolMap::new(std::iter::once(&own).chain(&debug));
    let with_dwarf = [Some(&own), debug.as_ref()].into_iter().flatten().find(|elf| elf.has_section(b".debug_info"));
    let dwarf = with_dwarf.map(|elf| {
        let supplementary = supplementary_build_id(elf).and_then(|build_id| modules.open_debug_file(build_id));
        Dwarf::new(elf, supplementary.as_ref())
    });
    let is_without_inlines = matches!(dwarf, Some(Err(TooMuchDwarf)));
    let from_dwarf = dwarf.and_then(Result::ok).map(|dwarf| dwarf.names(svmas)).unwrap_or_default();
    let mut from_dwarf = from_dwarf.into_iter();
    let names = svmas.iter().map(|&svma| {
        let mut names = from_dwarf.next().unwrap_or_default();
        if names.is_empty() {
            names.extend(symbols.find(svma).map(demangle));
        }
        names.reverse();
        Names(names)
    });
    Ok(ModuleNames { names: names.collect(), is_without_inlines })
}
