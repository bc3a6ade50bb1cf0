//! ELF files with too many headers or too much unwind information.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use tempfile::TempDir;

/// A section.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) svma: u64,
    pub(crate) bytes: Vec<u8>,
    /// Index of a related section.
    pub(crate) link: u32,
}

impl Section {
    /// A section that is not loaded.
    pub(crate) fn debug(name: &'static str, bytes: Vec<u8>) -> Self {
        Self { name, kind: 1, flags: 0, svma: 0, bytes, link: 0 }
    }
}

/// Size of the code, at 0x1000.
const CODE_BYTES: usize = 0x1000;

/// The ELF header of a shared object for x86-64, with one segment of code.
fn header(section_headers: u64, n_sections: u16, names: u16) -> Vec<u8> {
    let mut file = vec![0; 0x1000];
    file[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
    file[16..24].copy_from_slice(&[3, 0, 62, 0, 1, 0, 0, 0]);
    file[32..40].copy_from_slice(&64_u64.to_le_bytes());
    file[40..48].copy_from_slice(&section_headers.to_le_bytes());
    let sizes = [64_u16, 56, 1, 64, n_sections, names];
    for (at, size) in (52..64).step_by(2).zip(sizes) {
        file[at..at + 2].copy_from_slice(&size.to_le_bytes());
    }
    // PT_LOAD, readable and executable: a page from 0x1000 on.
    file[64..72].copy_from_slice(&[1, 0, 0, 0, 5, 0, 0, 0]);
    for (at, value) in (72..120).step_by(8).zip([0x1000_u64, 0x1000, 0x1000, 0x1000, 0x1000, 0x1000]) {
        file[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    file
}

fn section_header(name: usize, kind: u32, fields: [u64; 4], link: u32, entry_bytes: u64) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend((name as u32).to_le_bytes());
    header.extend(kind.to_le_bytes());
    fields.iter().for_each(|field| header.extend(field.to_le_bytes()));
    header.extend(link.to_le_bytes());
    header.extend([0; 12]);
    header.extend(entry_bytes.to_le_bytes());
    header
}

/// A file with these sections; the first is number 1.
pub(crate) fn file(sections: &[Section]) -> Vec<u8> {
    let mut names = vec![0];
    let mut headers = vec![0; 64];
    let mut body = vec![0x90; CODE_BYTES];
    for section in sections {
        let name = names.len();
        names.extend(section.name.as_bytes());
        names.push(0);
        body.resize(body.len().next_multiple_of(8), 0);
        let place = [section.flags, section.svma, (0x1000 + body.len()) as u64, section.bytes.len() as u64];
        headers.extend(section_header(name, section.kind, place, section.link, 24));
        body.extend(&section.bytes);
    }
    let at = (0x1000 + body.len()) as u64;
    headers.extend(section_header(0, 3, [0, 0, at, names.len() as u64], 0, 0));
    body.extend(&names);
    body.resize(body.len().next_multiple_of(8), 0);
    let n = sections.len() as u16 + 2;
    let mut file = header((0x1000 + body.len()) as u64, n, n - 1);
    file.extend(body);
    file.extend(headers);
    file
}

/// A symbol table with one function, `symbol`, over all code, and its strings, which must be the next section.
pub(crate) fn symbols(number: u32) -> [Section; 2] {
    let mut table = vec![0; 24];
    table.extend(1_u32.to_le_bytes());
    // STB_LOCAL, so that it names only what nothing else does, STT_FUNC; section 0xfff1 would be absolute, 1 is the
    // first.
    table.extend([0x02, 0, 1, 0]);
    table.extend(0x1000_u64.to_le_bytes());
    table.extend((CODE_BYTES as u64).to_le_bytes());
    let strings = b"\0symbol\0".to_vec();
    [
        Section { name: ".symtab", kind: 2, flags: 0, svma: 0, bytes: table, link: number + 1 },
        Section { name: ".strtab", kind: 3, flags: 0, svma: 0, bytes: strings, link: 0 },
    ]
}

fn sparse(dir: &TempDir, name: &str, head: &[u8], len: u64) -> PathBuf {
    let path = dir.path().join(name);
    let file = File::create(&path).unwrap();
    file.write_all_at(head, 0).unwrap();
    file.set_len(len).unwrap();
    path
}

/// Sparse files that have millions of sections or segments, all zeros.
pub(crate) fn many_headers(dir: &TempDir) -> Vec<(&'static str, PathBuf)> {
    const N: u64 = 33_000_000;
    let mut sections = header(0x1000, 0, 0);
    sections.extend(section_header(0, 0, [0, 0, 0, N], 0, 0));
    let mut segments = header(0x1000, 0, 0);
    segments[56..58].copy_from_slice(&u16::MAX.to_le_bytes());
    let mut first = section_header(0, 0, [0, 0, 0, 1], 0, 0);
    first[44..48].copy_from_slice(&(N as u32).to_le_bytes());
    segments.extend(first);
    vec![
        ("33 million sections", sparse(dir, "sections", &sections, 0x1000 + N * 64)),
        ("33 million segments", sparse(dir, "segments", &segments, 0x1000 + N * 64)),
    ]
}

/// A gigabyte of symbols and their names, one of which is at a requested address.
pub(crate) fn many_symbols(dir: &TempDir) -> PathBuf {
    let [table, strings] = symbols(1);
    let mut file = file(&[table, strings]);
    let headers = usize::try_from(u64::from_le_bytes(file[40..48].try_into().unwrap())).unwrap();
    // Extend the table and the strings over the zeros up to the end.
    for section in [1, 2] {
        let at = headers + section * 64 + 24;
        let offset = u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
        let bytes = (1_u64 << 30) - offset;
        file[at + 8..at + 16].copy_from_slice(&(bytes / 24 * 24).to_le_bytes());
    }
    sparse(dir, "symbols", &file, 1 << 30)
}

/// Call frame information: 200 MB, which exceeds the limit, and 60 MB of the smallest possible FDEs.
pub(crate) fn much_cfi(dir: &TempDir) -> Vec<(&'static str, PathBuf, bool)> {
    // A CIE as gcc writes it; then FDEs with an address and a length, each relative to itself.
    let cie = [20_u8, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
    let entries = |n_bytes: usize| {
        let mut bytes = cie.to_vec();
        while bytes.len() < n_bytes {
            let at = bytes.len() as u32;
            bytes.extend([13, 0, 0, 0]);
            bytes.extend((at + 4).to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend([1, 0, 0, 0, 0]);
        }
        bytes
    };
    let small =
        file(&[Section { name: ".eh_frame", kind: 1, flags: 2, svma: 0x100_0000, bytes: entries(60 << 20), link: 0 }]);
    let path = dir.path().join("cfi");
    std::fs::write(&path, small).unwrap();
    let mut large =
        file(&[Section { name: ".eh_frame", kind: 1, flags: 2, svma: 0x100_0000, bytes: Vec::new(), link: 0 }]);
    let at = usize::try_from(u64::from_le_bytes(large[40..48].try_into().unwrap())).unwrap() + 64;
    let end = large.len() as u64;
    large[at + 24..at + 32].copy_from_slice(&end.to_le_bytes());
    large[at + 32..at + 40].copy_from_slice(&(200_u64 << 20).to_le_bytes());
    let large = sparse(dir, "large-cfi", &large, end + (200 << 20));
    vec![("200 MB of call frame information", large, true), ("60 MB of call frame information", path, false)]
}
