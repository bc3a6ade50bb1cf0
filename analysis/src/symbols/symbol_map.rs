//! Finds the functions of a module that contain any of the requested addresses.

use crate::modules::{ElfFile, Pieces, SectionInfo};
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, pod};
use std::cmp::Reverse;
use std::ops::Range;

/// Symbols read at a time: some 100 kB, which the allocator uses again instead of asking the kernel for new pages.
const PIECE: usize = 1 << 12;
/// The most symbols of a table that are read; browsers have about two million.
const MAX_LOOKED_AT: u64 = 8 << 20;
/// The most symbols kept, and the most bytes of their names. A profile has some hundreds.
const MAX_SYMBOLS: usize = 1 << 20;
const MAX_NAMES_BYTES: usize = 32 << 20;
/// The most symbols at or below an address that are examined for one that extends to it. Real tables nest two deep.
const MAX_LOOK_BACK: usize = 64;
/// The same with labels in between, which have no size.
const MAX_PASSED: usize = 1 << 12;
/// The rank of a weak symbol of a function; that of a global one is 0.
const WEAK_FUNCTION: u8 = 1;
/// The most tables of one kind read in a file; real files have one.
const MAX_TABLES: usize = 4;

/// The functions of a module that contain a wanted address.
///
/// A table may have a million symbols, of which a profile needs some hundreds, so tables are not sorted and only names
/// of candidates are read. Browsers with all their symbols have 400 MiB of strings: tables are read in pieces, and
/// names one by one.
#[derive(Debug, Default)]
pub(super) struct SymbolMap<'a> {
    /// Sorted by [`Symbol::key`].
    symbols: Vec<Symbol>,
    names: Vec<u8>,
    search: Search<'a>,
    /// There are more symbols than the limit.
    is_too_much: bool,
}

#[derive(Debug, Clone)]
struct Symbol {
    svma: u64,
    /// First SVMA above; for a symbol without a size, the end of its section.
    end: u64,
    has_size: bool,
    /// Preference among several symbols at the same address: lowest first.
    rank: u8,
    /// Range of its name in `names`.
    name: Range<usize>,
}

impl Symbol {
    /// Of several symbols that contain an address the greatest one names it: one with a size, the innermost, the best
    /// rank.
    fn key(&self) -> (bool, u64, Reverse<u8>) {
        (self.has_size, self.svma, Reverse(self.rank))
    }
}

impl<'a> SymbolMap<'a> {
    /// The functions in these files (the module itself, and its debug files) at any of `wanted`, which are ascending
    /// SVMAs.
    pub(super) fn new(files: impl IntoIterator<Item = &'a ElfFile>, wanted: &'a [u64]) -> Self {
        let search = Search { wanted, nearest: vec![None; wanted.len()] };
        let mut map = Self { search, ..Self::default() };
        for file in files {
            let sections = file.sections();
            for kind in [elf::SHT_SYMTAB.0, elf::SHT_DYNSYM.0] {
                for table in sections.iter().filter(|section| section.kind == kind).take(MAX_TABLES) {
                    if file.is_64() {
                        map.add::<FileHeader64<Endianness>>(file, &sections, table);
                    } else {
                        map.add::<FileHeader32<Endianness>>(file, &sections, table);
                    }
                }
            }
        }
        map.search.settle();
        map.symbols.sort_unstable_by_key(|symbol| (symbol.svma, symbol.key()));
        map
    }

    /// Whether symbols were left out because there are too many.
    pub(super) fn is_too_much(&self) -> bool {
        self.is_too_much
    }

    /// The symbol of the function that contains a wanted address.
    pub(super) fn find(&self, svma: u64) -> Option<&[u8]> {
        self.best(svma).map(|(_, name)| name)
    }

    /// The same if others can link to it by that name. They cannot link to the parts of a function, or to a library's
    /// internal alias, such as `__GI___libc_read` for `read`.
    pub(super) fn find_exported(&self, svma: u64) -> Option<&[u8]> {
        self.best(svma).filter(|(symbol, _)| symbol.rank <= WEAK_FUNCTION).map(|(_, name)| name)
    }

    fn best(&self, svma: u64) -> Option<(&Symbol, &[u8])> {
        let above = self.symbols.partition_point(|symbol| symbol.svma <= svma);
        let nearest = self.search.nearest_to(svma);
        let below = self.symbols.get(..above)?.iter().rev().take(MAX_PASSED);
        let below = below.filter(|symbol| symbol.has_size || Some(symbol.svma) == nearest).take(MAX_LOOK_BACK);
        let mut best: Option<(&Symbol, &[u8])> = None;
        for symbol in below.filter(|symbol| svma < symbol.end) {
            let name = self.names.get(symbol.name.clone()).unwrap_or(&[]);
            // Of `__libc_malloc` and `malloc`, prefer the one that callers use.
            let is_better = best.is_none_or(|(best, best_name)| (symbol.key(), name) > (best.key(), best_name));
            if is_better {
                best = Some((symbol, name));
            }
        }
        best
    }

    fn add<E: FileHeader<Endian = Endianness>>(
        &mut self,
        file: &ElfFile,
        sections: &[SectionInfo],
        table: &SectionInfo,
    ) -> Option<()> {
        let endian = if file.image().little_endian { Endianness::Little } else { Endianness::Big };
        let mut strings = Pieces::new(file, sections.get(table.link as usize)?)?;
        let mut entries = Pieces::new(file, table)?;
        let (mut at, entry_bytes) = (0, size_of::<E::Sym>());
        loop {
            let bytes = entries.up_to(at, PIECE * entry_bytes);
            let (symbols, _) = pod::slice_from_bytes::<E::Sym>(bytes, bytes.len() / entry_bytes).ok()?;
            self.is_too_much |= at >= MAX_LOOKED_AT * entry_bytes as u64;
            if symbols.is_empty() || self.is_too_much {
                return Some(());
            }
            at += (symbols.len() * entry_bytes) as u64;
            for symbol in symbols {
                self.add_symbol::<E>(symbol, endian, sections, &mut strings);
            }
        }
    }

    fn add_symbol<E: FileHeader<Endian = Endianness>>(
        &mut self,
        symbol: &E::Sym,
        endian: Endianness,
        sections: &[SectionInfo],
        strings: &mut Pieces<'_>,
    ) -> Option<()> {
        let svma: u64 = symbol.st_value(endian).into();
        let at = self.search.first_from(svma)?;
        let bytes: u64 = symbol.st_size(endian).into();
        if bytes > 0 && !self.search.is_reached(at, svma, bytes) {
            self.search.note(at, svma, || function::<E>(symbol, endian, sections).is_some());
            return None;
        }
        let function = function::<E>(symbol, endian, sections)?;
        // A symbol that does not name a function does not end one either.
        let name =
            strings.string(symbol.st_name(endian).into()).map(unversioned).filter(|name| is_a_function_name(name))?;
        self.search.note(at, svma, || true);
        if self.symbols.len() >= MAX_SYMBOLS || self.names.len() + name.len() > MAX_NAMES_BYTES {
            self.is_too_much = true;
            return None;
        }
        let from = self.names.len();
        self.names.extend_from_slice(name);
        self.symbols.push(Symbol { name: from..self.names.len(), ..function });
        Some(())
    }
}

/// Strips the version: `memcpy@@GLIBC_2.14` is named `memcpy`.
fn unversioned(name: &[u8]) -> &[u8] {
    let end = name.iter().position(|&byte| byte == b'@').filter(|&at| at > 0);
    end.and_then(|at| name.get(..at)).unwrap_or(name)
}

/// Finds the wanted addresses that a symbol could name.
#[derive(Debug, Default)]
struct Search<'a> {
    wanted: &'a [u64],
    /// For each wanted address the highest symbol after the previous wanted address; in the end the highest at or below
    /// it, which ends every symbol without a size.
    nearest: Vec<Option<u64>>,
}

impl Search<'_> {
    /// Index of the first wanted address from `svma` on.
    fn first_from(&self, svma: u64) -> Option<usize> {
        let at = self.wanted.partition_point(|&wanted| wanted < svma);
        (at < self.wanted.len()).then_some(at)
    }

    fn is_reached(&self, at: usize, svma: u64, bytes: u64) -> bool {
        self.wanted.get(at).is_some_and(|&wanted| wanted.wrapping_sub(svma) < bytes)
    }

    /// Records a function symbol where it may be the nearest.
    fn note(&mut self, at: usize, svma: u64, is_function: impl FnOnce() -> bool) {
        if let Some(nearest) = self.nearest.get_mut(at)
            && nearest.is_none_or(|nearest| nearest < svma)
            && is_function()
        {
            *nearest = Some(svma);
        }
    }

    fn settle(&mut self) {
        let mut highest = None;
        for nearest in &mut self.nearest {
            highest = highest.max(*nearest);
            *nearest = highest;
        }
    }

    /// The highest symbol at or below a wanted address.
    fn nearest_to(&self, wanted: u64) -> Option<u64> {
        *self.nearest.get(self.wanted.binary_search(&wanted).ok()?)?
    }
}

/// A symbol table entry, if it is code defined in this file.
fn function<E: FileHeader<Endian = Endianness>>(
    symbol: &E::Sym,
    endian: Endianness,
    sections: &[SectionInfo],
) -> Option<Symbol> {
    let kind = symbol.st_type();
    if !matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_NOTYPE) {
        return None;
    }
    let section = symbol.st_shndx(endian);
    if section == elf::SHN_UNDEF || section == elf::SHN_ABS {
        return None;
    }
    let svma: u64 = symbol.st_value(endian).into();
    let bytes: u64 = symbol.st_size(endian).into();
    let home = sections.get(usize::from(section.0)).filter(|home| svma.wrapping_sub(home.svma) < home.bytes);
    if kind == elf::STT_NOTYPE && home.is_none_or(|home| !home.is_code()) {
        return None;
    }
    if bytes == 0 && home.is_some_and(SectionInfo::has_stubs) {
        return None;
    }
    let end = if bytes > 0 { svma.checked_add(bytes)? } else { home?.svma.checked_add(home?.bytes)? };
    let binding = match symbol.st_bind() {
        elf::STB_GLOBAL => 0,
        elf::STB_WEAK => WEAK_FUNCTION,
        _ => 2,
    };
    let rank = binding + if kind == elf::STT_NOTYPE { 3 } else { 0 };
    Some(Symbol { svma, end, has_size: bytes > 0, rank, name: 0..0 })
}

/// Whether a name is not empty, a mapping symbol (`$x`, `$d`) or a local label.
///
/// # Sources
/// ELF for the Arm 64-bit Architecture, §5.4 (mapping symbols).
fn is_a_function_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.starts_with(b"$") && !name.starts_with(b".L")
}
