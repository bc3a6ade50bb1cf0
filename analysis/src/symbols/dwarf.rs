//! Looks up functions and inline frames in DWARF.
//!
//! Addresses are known before anything is read, so that a unit is parsed only if it contains one, and only what is at
//! these addresses is kept. The cost of a file is bounded: its sections by [`MAX_DWARF_BYTES`], the work by [`Meter`].
//! A unit that needs more is ignored, and its code is named by symbols.

mod functions;
mod lines;
mod meter;
mod sections;
mod split;
mod units;

use super::demangle::{Demangled, is_mangled};
use super::names::{Detail, Name, SourceLine};
use super::symbol_map::SymbolMap;
use crate::modules::ElfFile;
use functions::{At, Both, Function};
use gimli::{DwarfSections, EndianSlice, RunTimeEndian, UnitRef};
use meter::{Meter, Stop};
pub(super) use sections::TooMuchDwarf;
use sections::load;
pub(super) use split::SplitFiles;
use std::rc::Rc;
use units::{Reader, Units};

/// The most bytes of all DWARF sections of a module, uncompressed.
const MAX_DWARF_BYTES: u64 = 160 << 20;
/// Steps per byte of a returned name, which is copied, demangled and stored.
const NAME_STEPS: u64 = 4;

/// The DWARF of a module, in memory.
#[derive(Debug)]
pub(super) struct Dwarf {
    sections: DwarfSections<Vec<u8>>,
    /// Parts shared by several modules (dwz).
    supplementary: Option<DwarfSections<Vec<u8>>>,
    endian: RunTimeEndian,
}

/// What DWARF knows about some addresses.
#[derive(Debug, Default)]
pub(super) struct FromDwarf {
    /// For each address the function, innermost inline frame first; empty if not known.
    pub(super) names: Vec<Vec<Name>>,
    /// Some units exceed the budget of a file.
    pub(super) is_too_much: bool,
    /// Some debug information is in separate files (split DWARF) that are not available.
    pub(super) is_without_split: bool,
}

impl Dwarf {
    /// The byte order.
    pub(super) fn endian(&self) -> RunTimeEndian {
        self.endian
    }

    /// Reads the DWARF of a file.
    pub(super) fn new(file: &ElfFile, supplementary: Option<&ElfFile>) -> Result<Self, TooMuchDwarf> {
        let endian = if file.image().little_endian { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let mut left_bytes = MAX_DWARF_BYTES;
        let sections = load(file, &mut left_bytes)?;
        let supplementary = supplementary.map(|file| load(file, &mut left_bytes)).transpose()?;
        Ok(Self { sections, supplementary, endian })
    }

    /// Looks up the names of many addresses, which must be ascending.
    ///
    /// A function without a linkage name in DWARF gets its name from the symbol table: with `line-tables-only`, DWARF
    /// has only `get` or `{closure#0}`, without type or module.
    pub(super) fn names(
        &self,
        svmas: &[u64],
        detail: Detail,
        symbols: &SymbolMap<'_>,
        split: &SplitFiles<'_>,
        demangled: &mut Demangled,
    ) -> FromDwarf {
        let dwarf =
            self.sections.borrow_with_sup(self.supplementary.as_ref(), |bytes| EndianSlice::new(bytes, self.endian));
        let meter = Meter::default();
        let shared = dwarf.sup().map(|shared| Units::new(shared, &meter));
        let mut both = Both { main: Units::new(&dwarf, &meter), shared };
        let mut found = FromDwarf { names: vec![Vec::new(); svmas.len()], ..FromDwarf::default() };
        // Addresses without names yet, with their indices.
        let mut left: Vec<(u64, usize)> = svmas.iter().copied().zip(0..).collect();
        for offset in both.main.offsets() {
            if left.is_empty() {
                break;
            }
            let named = UnitNames { wanted: &left, detail, symbols, split, demangled: &mut *demangled, meter: &meter };
            // Damaged units are skipped.
            let Ok((in_unit, is_without_split)) = named.of_unit(&mut both, offset) else { continue };
            found.is_without_split |= is_without_split;
            let is_known = !in_unit.is_empty();
            for (at, names) in in_unit {
                if let Some(slot) = found.names.get_mut(at) {
                    *slot = names;
                }
            }
            if is_known {
                left.retain(|&(_, at)| found.names.get(at).is_some_and(Vec::is_empty));
            }
        }
        found.is_too_much = meter.is_exhausted();
        found
    }
}

/// Names by the index of their address.
type Numbered = Vec<(usize, Vec<Name>)>;

/// Looks up addresses in a unit.
struct UnitNames<'n> {
    /// The addresses, ascending, with their indices.
    wanted: &'n [(u64, usize)],
    detail: Detail,
    symbols: &'n SymbolMap<'n>,
    split: &'n SplitFiles<'n>,
    demangled: &'n mut Demangled,
    meter: &'n Meter,
}

impl UnitNames<'_> {
    /// Names by the index of their address, and whether more of them are in a split file that is not available.
    fn of_unit(mut self, both: &mut Both<'_, '_>, offset: usize) -> Result<(Numbered, bool), Stop> {
        let header = both.main.header(offset)?;
        let unit = Rc::new(both.main.unit(header)?);
        let unit_ref = UnitRef::new(both.main.dwarf, &unit);
        let here = functions::of_unit(unit_ref, self.wanted, self.meter)?;
        if here.is_empty() {
            return Ok((Vec::new(), false));
        }
        let wanted: Vec<u64> = here.iter().map(|&(svma, _)| svma).collect();
        let (meter, split) = (self.meter, self.split);
        if let Some(id) = unit.dwo_id {
            let in_split = split.enter(both.main.dwarf, unit_ref, id, meter, |split, split_unit| {
                let found = functions::find(split, split_unit, &wanted, meter)?;
                self.of_all(unit_ref, &here, found)
            });
            // A damaged split file counts as missing.
            if let Ok(Some(names)) = in_split {
                return Ok((names, false));
            }
        }
        let found = functions::find(both, &unit, &wanted, meter)?;
        Ok((self.of_all(unit_ref, &here, found)?, unit.dwo_id.is_some()))
    }

    /// Names of the functions at some addresses, by the index of the address. `unit` has the lines.
    fn of_all(
        &mut self,
        unit: UnitRef<'_, Reader<'_>>,
        wanted: &[(u64, usize)],
        found: Vec<At<'_>>,
    ) -> Result<Numbered, Stop> {
        let svmas: Vec<u64> = wanted.iter().map(|&(svma, _)| svma).collect();
        let lines = match self.detail {
            Detail::Lines => lines::lines(unit, &svmas, self.meter).unwrap_or_default(),
            _ => Vec::new(),
        };
        let lines = lines.into_iter().chain(std::iter::repeat(None));
        let mut names = Vec::new();
        for ((&(svma, number), functions), line) in wanted.iter().zip(found).zip(lines) {
            let line = line.map_or((None, None), |line| (Some(line.file), Some(line.line)));
            names.push((number, self.of_functions(unit, svma, functions, line)?));
        }
        Ok(names)
    }

    /// Names of the functions at an address, innermost first. Stops at a function without a name.
    fn of_functions(
        &mut self,
        unit: UnitRef<'_, Reader<'_>>,
        svma: u64,
        functions: At<'_>,
        mut line: (Option<u64>, Option<u32>),
    ) -> Result<Vec<Name>, Stop> {
        // The first is the function itself; all others are inlined into it.
        let mut functions: At<'_> = functions;
        // clang's `-gline-tables-only` leaves out functions in which nothing is inlined, and a split file may be missing.
        if functions.is_empty() && line.0.is_some() {
            functions.extend(self.symbols.find(svma).map(|name| Function { name: Some(name), ..Function::default() }));
        }
        // Prefer the exported name, which callers use. For a static function in Rust or C++, only the symbol has the
        // path.
        let mangled = || self.symbols.find(svma).filter(|symbol| is_mangled(symbol));
        let symbol = self.symbols.find_exported(svma).or_else(mangled);
        if let (Some(function), Some(symbol)) = (functions.first_mut(), symbol)
            && !function.name.is_some_and(is_mangled)
        {
            function.name = Some(symbol);
        }
        let mut names = Vec::new();
        for Function { name, call } in functions.into_iter().rev() {
            let Some(name) = name else { break };
            self.meter.take((name.len() as u64).saturating_mul(NAME_STEPS))?;
            let function = self.demangled.name(name);
            let line_at = match (self.detail, line) {
                (Detail::Lines, (Some(file), Some(line))) => self.source_line(unit, file, line)?,
                _ => None,
            };
            names.push(Name { function, line: line_at });
            line = call;
        }
        Ok(names)
    }

    /// A source line, with the file given by its number.
    fn source_line(&self, unit: UnitRef<'_, Reader<'_>>, file: u64, line: u32) -> Result<Option<SourceLine>, Stop> {
        let Some(path) = lines::path(unit, file) else { return Ok(None) };
        self.meter.take((path.len() as u64).saturating_mul(NAME_STEPS))?;
        Ok(Some(SourceLine { file: String::from_utf8_lossy(&path).into_owned(), line }))
    }
}
