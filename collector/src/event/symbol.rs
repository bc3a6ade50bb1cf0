//! File offsets of probes.
//!
//! A function of a shared library may have several versions, of which old ones are for programs that were linked long ago. Its
//! name alone is that of the default version, which a program linked today would call.

use crate::error::Error;
use crate::parse::{FileParser, Found, ParseTask};
use crate::perf_maps::own_uid;
use object::elf::{PF_X, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use object::read::elf::{ElfFile, FileHeader, Sym as _};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, ReadCache, ReadRef, SegmentFlags};
use std::fs::File;
use std::io;
use std::path::Path;

/// The file offset of `symbol` plus `offset`, or of the address `offset` in the terms of the file's own symbols.
pub(super) fn file_offset(
    parser: &dyn FileParser,
    path: &Path,
    symbol: Option<&str>,
    offset: u64,
) -> Result<u64, Error> {
    let unreadable = |source| Error::ProbeFile { file: path.to_owned(), source };
    let no_program =
        |kind| unreadable(io::Error::new(kind, "not an executable or a shared library that can be parsed"));
    // Opening a FIFO would block.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(no_program(io::ErrorKind::InvalidInput));
    }
    let file = File::open(path).map_err(unreadable)?;
    let task = ParseTask::CodeOffset { symbol: symbol.map(str::to_owned), offset };
    match parser.parse(&file, own_uid(), task).map(|parsed| parsed.found) {
        Some(Found::Offset(at)) => Ok(at),
        Some(Found::Several) => {
            Err(Error::SeveralPlaces { file: path.to_owned(), function: symbol.unwrap_or_default().to_owned() })
        }
        Some(Found::Indirect) => {
            Err(Error::IndirectFunction { file: path.to_owned(), function: symbol.unwrap_or_default().to_owned() })
        }
        Some(Found::Nothing) => Err(Error::NoSuchPlace {
            file: path.to_owned(),
            place: match (symbol, offset) {
                (None, _) => format!("code at {offset:#x}"),
                (Some(symbol), 0) => format!("function `{symbol}`"),
                (Some(symbol), _) => format!("code at {symbol}+{offset}"),
            },
        }),
        _ => Err(no_program(io::ErrorKind::InvalidData)),
    }
}

/// Like [`file_offset`], for an open file.
pub(crate) fn code_offset(file: &File, symbol: Option<&str>, offset: u64) -> Found {
    let data = ReadCache::new(file);
    let found = match object::File::parse(&data) {
        Ok(object::File::Elf64(elf)) => offset_in(&elf, symbol, offset),
        Ok(object::File::Elf32(elf)) => offset_in(&elf, symbol, offset),
        _ => return Found::Unreadable,
    };
    found.map_or_else(|why| why, Found::Offset)
}

fn offset_in<'a, E: FileHeader, R: ReadRef<'a>>(
    elf: &ElfFile<'a, E, R>,
    symbol: Option<&str>,
    offset: u64,
) -> Result<u64, Found> {
    let start = symbol.map_or(Ok(0), |symbol| address_of(elf, symbol.as_bytes()))?;
    let address = start.checked_add(offset).ok_or(Found::Nothing)?;
    offset_of(elf, address).ok_or(Found::Nothing)
}

/// A function with a name.
#[derive(Debug)]
struct Named {
    address: u64,
    /// Its version; empty if it has none.
    version: Vec<u8>,
    is_default: bool,
    /// Whether it is called only to choose, when a program starts, the function that is then called under the name.
    is_indirect: bool,
}

/// The address of the function of that name, which may end with a version: `NAME@VERSION`, or `NAME@@VERSION` for the
/// default one.
fn address_of<'a, E: FileHeader, R: ReadRef<'a>>(elf: &ElfFile<'a, E, R>, symbol: &[u8]) -> Result<u64, Found> {
    let (name, wanted) = parts(symbol);
    let exported = versioned_functions(elf, name);
    // What other modules would call. The table for the program itself has static functions, too, and by most linkers no versions.
    let mut found = if wanted.is_none() && exported.iter().any(|function| function.is_default) {
        chosen(exported, None)
    } else {
        let own = chosen(functions(elf, name), wanted);
        if own.is_empty() { chosen(exported, wanted) } else { own }
    };
    let is_indirect = found.iter().any(|function| function.is_indirect);
    found.sort_unstable_by_key(|function| function.address);
    found.dedup_by_key(|function| function.address);
    match found.as_slice() {
        [] => Err(Found::Nothing),
        [_] if is_indirect => Err(Found::Indirect),
        [one] => Ok(one.address),
        // Several files of a program may have a static one each.
        _ => Err(Found::Several),
    }
}

/// A name without its version, and that, with whether it is the default one.
fn parts(symbol: &[u8]) -> (&[u8], Option<(&[u8], bool)>) {
    let Some(at) = symbol.iter().position(|&byte| byte == b'@') else { return (symbol, None) };
    let (name, version) = symbol.split_at(at);
    let version = version.strip_prefix(b"@").unwrap_or(version);
    (name, Some(version.strip_prefix(b"@").map_or((version, false), |version| (version, true))))
}

/// Of the functions of a name, those of the wanted version; without one those that have none, or else of the default
/// version, or else all.
fn chosen(mut functions: Vec<Named>, wanted: Option<(&[u8], bool)>) -> Vec<Named> {
    if let Some((version, is_default)) = wanted {
        functions.retain(|function| function.version == version && (function.is_default || !is_default));
        return functions;
    }
    for suits in [|function: &Named| function.version.is_empty(), |function: &Named| function.is_default] {
        if functions.iter().any(suits) {
            functions.retain(suits);
            break;
        }
    }
    functions
}

/// The functions of a name in the table for the program itself, where a version is part of the name.
fn functions<'a, E: FileHeader, R: ReadRef<'a>>(elf: &ElfFile<'a, E, R>, name: &[u8]) -> Vec<Named> {
    let symbols = elf.symbols().filter_map(|symbol| {
        let (of, version) = parts(symbol.name_bytes().ok()?);
        let (version, is_default) = version.unwrap_or((b"", true));
        (of == name).then(|| named(elf, symbol.elf_symbol(), version, is_default))?
    });
    symbols.collect()
}

/// The functions of a name in the table for other modules, whose versions are in another section.
fn versioned_functions<'a, E: FileHeader, R: ReadRef<'a>>(elf: &ElfFile<'a, E, R>, name: &[u8]) -> Vec<Named> {
    let endian = elf.endian();
    let versions = elf.elf_section_table().versions(endian, elf.data()).ok().flatten();
    let symbols = elf.dynamic_symbols().filter(|symbol| symbol.name_bytes() == Ok(name)).filter_map(|symbol| {
        let index = versions.as_ref().map(|versions| versions.version_index(endian, symbol.index()));
        let version =
            versions.as_ref().zip(index).and_then(|(versions, index)| versions.version(index.index()).ok()?);
        let is_default = index.is_none_or(|index| !index.is_hidden());
        named(elf, symbol.elf_symbol(), version.map_or(b"", |version| version.name()), is_default)
    });
    symbols.collect()
}

/// A symbol as a function; a variable may have the same name.
fn named<'a, E: FileHeader, R: ReadRef<'a>>(
    elf: &ElfFile<'a, E, R>,
    symbol: &E::Sym,
    version: &[u8],
    is_default: bool,
) -> Option<Named> {
    let endian = elf.endian();
    let address = symbol.st_value(endian).into();
    let is_code = [STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE].contains(&symbol.st_type())
        && !symbol.is_undefined(endian)
        && offset_of(elf, address).is_some();
    let is_indirect = symbol.st_type() == STT_GNU_IFUNC;
    is_code.then(|| Named { address, version: version.to_vec(), is_default, is_indirect })
}

/// The file offset of an address; `None` unless it is in an executable segment.
fn offset_of<'a, E: FileHeader, R: ReadRef<'a>>(elf: &ElfFile<'a, E, R>, address: u64) -> Option<u64> {
    elf.segments().find_map(|segment| {
        let is_code = matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if (p_flags & PF_X).0 != 0);
        let (start, len) = segment.file_range();
        let within = address.checked_sub(segment.address()).filter(|&within| is_code && within < len)?;
        start.checked_add(within)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::ParseHere;

    fn file_offset(path: &Path, symbol: Option<&str>, offset: u64) -> Result<u64, Error> {
        super::file_offset(&ParseHere, path, symbol, offset)
    }

    /// Check that a function of this very program is found by its name, that its address means the same, and that data,
    /// unknown names and files that are no programs are refused.
    #[test]
    fn places_are_found_in_this_program() {
        let program = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&program).unwrap();
        let elf = object::read::elf::ElfFile64::<object::Endianness>::parse(bytes.as_slice()).unwrap();
        let main = address_of(&elf, b"main").expect("a program has a main");
        let offset = file_offset(&program, Some("main"), 4).unwrap();
        assert_eq!(file_offset(&program, None, main + 4).unwrap(), offset);
        let code = usize::try_from(offset - 4).unwrap();
        let section = elf.section_by_name(".text").expect("code");
        let (start, _) = object::ObjectSection::file_range(&section).expect("code in the file");
        let at = usize::try_from(main - object::ObjectSection::address(&section) + start).unwrap();
        assert_eq!(code, at);
        assert!(matches!(file_offset(&program, Some("no_such_function"), 0), Err(Error::NoSuchPlace { .. })));
        assert!(matches!(file_offset(&program, None, u64::MAX), Err(Error::NoSuchPlace { .. })));
        assert!(matches!(file_offset(&program, Some("main"), u64::MAX), Err(Error::NoSuchPlace { .. })));
        for none in ["/dev/zero", "/etc/passwd", "/no/such/file"] {
            assert!(matches!(file_offset(Path::new(none), Some("main"), 0), Err(Error::ProbeFile { .. })), "{none}");
        }
    }
}
