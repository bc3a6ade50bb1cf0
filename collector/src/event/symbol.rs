//! File offsets of probes.

use crate::error::Error;
use crate::parse::{FileParser, Found, ParseTask};
use crate::perf_maps::own_uid;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, ReadCache, ReadRef, SegmentFlags, elf::PF_X};
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
    let Ok(elf) = object::File::parse(&data) else { return Found::Unreadable };
    let address = match symbol.map(|symbol| addresses_of(&elf, symbol)).as_deref() {
        Some([start]) => start.checked_add(offset),
        Some([]) => None,
        Some(_) => return Found::Several,
        None => Some(offset),
    };
    address.and_then(|address| offset_of(&elf, address)).map_or(Found::Nothing, Found::Offset)
}

/// The addresses of the functions of that name: several files of a program may have a static one each. If there is none,
/// the first of that name with a version (`memcpy@GLIBC_2.14`), or of those for other modules, whose versions are in
/// another table.
fn addresses_of<'a, R: ReadRef<'a>>(elf: &object::File<'a, R>, name: &str) -> Vec<u64> {
    // A variable may have the same name.
    let is_named = |symbol: &object::Symbol<'a, '_, R>| {
        symbol.is_definition()
            && symbol.name_bytes().is_ok_and(|bytes| bytes == name.as_bytes())
            && offset_of(elf, symbol.address()).is_some()
    };
    let is_version = |symbol: &object::Symbol<'a, '_, R>| {
        let bytes = symbol.name_bytes().unwrap_or_default();
        symbol.is_definition() && bytes.split(|&byte| byte == b'@').next() == Some(name.as_bytes())
    };
    let mut found: Vec<u64> = elf.symbols().filter(is_named).map(|symbol| symbol.address()).collect();
    found.sort_unstable();
    found.dedup();
    if found.is_empty() {
        let first = elf.symbols().find(is_version).or_else(|| elf.dynamic_symbols().find(is_version));
        found.extend(first.map(|symbol| symbol.address()));
    }
    found
}

/// The file offset of an address; `None` unless it is in an executable segment.
fn offset_of<'a, R: ReadRef<'a>>(elf: &object::File<'a, R>, address: u64) -> Option<u64> {
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
        let elf = object::File::parse(bytes.as_slice()).unwrap();
        let [main] = addresses_of(&elf, "main")[..] else { panic!("a program has a main") };
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
