//! Where in a file a probe goes.

use crate::error::Error;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SegmentFlags, elf::PF_X};
use std::io;
use std::path::Path;

/// Larger files are not read for a symbol.
const MAX_FILE_BYTES: u64 = 2 << 30;

/// The offset in the file of `symbol` plus `offset`, or of the address `offset` as the file's own symbols have it.
pub(super) fn file_offset(file: &Path, symbol: Option<&str>, offset: u64) -> Result<u64, Error> {
    let unreadable = |source| Error::ProbeFile { file: file.to_owned(), source };
    let metadata = std::fs::metadata(file).map_err(unreadable)?;
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "not an executable or a shared library")));
    }
    let bytes = std::fs::read(file).map_err(unreadable)?;
    let elf = object::File::parse(bytes.as_slice())
        .map_err(|error| unreadable(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    let no_such_place = || Error::NoSuchPlace {
        file: file.to_owned(),
        place: symbol.map_or_else(|| format!("{offset:#x}"), |symbol| format!("{symbol}+{offset}")),
    };
    let address = match symbol {
        Some(symbol) => address_of(&elf, symbol).and_then(|start| start.checked_add(offset)),
        None => Some(offset),
    };
    offset_of(&elf, address.ok_or_else(no_such_place)?).ok_or_else(no_such_place)
}

/// The first function of that name; of a name with a version (`memcpy@GLIBC_2.14`) the name is enough.
fn address_of(elf: &object::File<'_>, name: &str) -> Option<u64> {
    let is_it = |symbol: &object::Symbol<'_, '_>| {
        let name_bytes = symbol.name_bytes().unwrap_or_default();
        let without_version = name_bytes.split(|&byte| byte == b'@').next().unwrap_or_default();
        symbol.is_definition() && (name_bytes == name.as_bytes() || without_version == name.as_bytes())
    };
    let found = elf.symbols().find(is_it).or_else(|| elf.dynamic_symbols().find(is_it));
    found.map(|symbol| symbol.address())
}

/// Only code can be probed.
fn offset_of(elf: &object::File<'_>, address: u64) -> Option<u64> {
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

    /// Check that a function of this very program is found by its name, that an address means the same, and that data,
    /// unknown names and files that are no programs are refused.
    #[test]
    fn places_are_found_in_this_program() {
        let program = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&program).unwrap();
        let elf = object::File::parse(bytes.as_slice()).unwrap();
        let main = address_of(&elf, "main").expect("a program has a main");
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
