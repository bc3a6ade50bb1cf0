//! The symbol tables of a module, sorted by address.

use crate::modules::{ElfFile, SectionInfo};
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, pod};

/// Most bytes of a symbol table or its strings: browsers with all their symbols have some 400 MiB of strings.
const MAX_TABLE_BYTES: u64 = 512 << 20;
/// So many symbols that begin at or below an address are looked at for one that reaches it. Real tables nest two deep.
const MAX_LOOK_BACK: usize = 64;

/// Functions of a module.
#[derive(Debug, Default)]
pub(super) struct SymbolMap {
    symbols: Vec<Symbol>,
    /// String tables, as read.
    strings: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, Copy)]
struct Symbol {
    svma: u64,
    /// First SVMA above; for a symbol without a size that of the next symbol or the end of its section.
    end: u64,
    has_size: bool,
    /// Which of several symbols of the same address names it best: least first.
    rank: u8,
    table: u8,
    name: u32,
}

impl SymbolMap {
    /// The functions in these files: the module itself, and its debug file.
    pub(super) fn new<'a>(files: impl IntoIterator<Item = &'a ElfFile>) -> Self {
        let mut map = Self::default();
        for file in files {
            let sections = file.sections();
            for kind in [elf::SHT_SYMTAB.0, elf::SHT_DYNSYM.0] {
                let tables = sections.iter().filter(|section| section.kind == kind);
                for table in tables.take(4) {
                    if file.is_64() {
                        map.add::<FileHeader64<Endianness>>(file, &sections, table);
                    } else {
                        map.add::<FileHeader32<Endianness>>(file, &sections, table);
                    }
                }
            }
        }
        map.finish();
        map
    }

    /// The symbol of the function that holds an address.
    pub(super) fn find(&self, svma: u64) -> Option<&[u8]> {
        let above = self.symbols.partition_point(|symbol| symbol.svma <= svma);
        let below = self.symbols.get(..above)?.iter().rev().take(MAX_LOOK_BACK);
        let mut best: Option<&Symbol> = None;
        for symbol in below.filter(|symbol| svma < symbol.end) {
            let is_better = best.is_none_or(|best| {
                (!symbol.has_size, std::cmp::Reverse(symbol.svma), symbol.rank)
                    < (!best.has_size, std::cmp::Reverse(best.svma), best.rank)
            });
            if is_better {
                best = Some(symbol);
            }
        }
        self.name(best?)
    }

    fn add<E: FileHeader<Endian = Endianness>>(
        &mut self,
        file: &ElfFile,
        sections: &[SectionInfo],
        table: &SectionInfo,
    ) -> Option<()> {
        let endian = if file.image().little_endian { Endianness::Little } else { Endianness::Big };
        let strings = file.read(sections.get(table.link as usize)?, MAX_TABLE_BYTES)?;
        let bytes = file.read(table, MAX_TABLE_BYTES)?;
        let n = bytes.len() / size_of::<E::Sym>();
        let (symbols, _) = pod::slice_from_bytes::<E::Sym>(&bytes, n).ok()?;
        let index = u8::try_from(self.strings.len()).ok()?;
        self.symbols.extend(symbols.iter().filter_map(|symbol| function::<E>(symbol, endian, sections, index)));
        self.strings.push(strings);
        Some(())
    }

    /// Sorts, and gives symbols without a size an end.
    fn finish(&mut self) {
        let mut symbols = std::mem::take(&mut self.symbols);
        symbols.retain(|symbol| self.name(symbol).is_some_and(is_a_function_name));
        symbols.sort_unstable_by(|a, b| {
            let key = |symbol: &Symbol| (symbol.svma, !symbol.has_size, symbol.rank);
            key(a).cmp(&key(b)).then_with(|| self.name(a).cmp(&self.name(b)))
        });
        let mut next = u64::MAX;
        let mut last_svma = u64::MAX;
        for symbol in symbols.iter_mut().rev() {
            if symbol.svma != last_svma {
                next = last_svma;
                last_svma = symbol.svma;
            }
            if !symbol.has_size {
                symbol.end = symbol.end.min(next);
            }
        }
        self.symbols = symbols;
    }

    fn name(&self, symbol: &Symbol) -> Option<&[u8]> {
        let name = self.strings.get(usize::from(symbol.table))?.get(symbol.name as usize..)?;
        let name = name.split(|&byte| byte == 0).next()?;
        // `memcpy@@GLIBC_2.14`: the version is not part of the name.
        let unversioned = name.iter().position(|&byte| byte == b'@').filter(|&at| at > 0);
        Some(unversioned.and_then(|at| name.get(..at)).unwrap_or(name))
    }
}

/// A symbol table's entry, if it is code defined here.
fn function<E: FileHeader<Endian = Endianness>>(
    symbol: &E::Sym,
    endian: Endianness,
    sections: &[SectionInfo],
    table: u8,
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
    let end = if bytes > 0 { svma.checked_add(bytes)? } else { home?.svma.checked_add(home?.bytes)? };
    let binding = match symbol.st_bind() {
        elf::STB_GLOBAL => 0,
        elf::STB_WEAK => 1,
        _ => 2,
    };
    let rank = binding + if kind == elf::STT_NOTYPE { 3 } else { 0 };
    Some(Symbol { svma, end, has_size: bytes > 0, rank, table, name: symbol.st_name(endian) })
}

/// Not a mapping symbol (`$x`, `$d`), a local label or nothing.
///
/// # Sources
/// ELF for the Arm 64-bit Architecture, §5.4 (mapping symbols).
fn is_a_function_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.starts_with(b"$") && !name.starts_with(b".L")
}
