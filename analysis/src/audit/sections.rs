//! The sections an audit reads, found by their headers.

use super::model::{Machine, Refusal, Remark, Sizes};
use crate::modules::has_too_many_headers;
use crate::modules::inflate::{self, Format};
use object::elf::{self, FileHeader64, SectionHeader64};
use object::read::elf::{CompressionHeader as _, FileHeader as _, SectionHeader as _, SectionTable};
use object::{LittleEndian, ReadRef};
use std::borrow::Cow;
use std::ops::Range;

/// Largest section that is read whole. The largest `.eh_frame` of a browser has 20 MB.
const MAX_SECTION_BYTES: u64 = 128 << 20;
/// The most bytes of `.comment` that are read.
const MAX_COMMENT_BYTES: u64 = 64 << 10;

const LE: LittleEndian = LittleEndian;

/// A section with code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CodeSection {
    /// Addresses (SVMAs).
    pub(super) svma: Range<u64>,
    /// Offset in the file.
    pub(super) file_offset: u64,
    /// Whether it contains linkage stubs.
    pub(super) is_stubs: bool,
}

/// The content of a section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes<'a> {
    pub(super) svma: u64,
    pub(super) bytes: &'a [u8],
}

/// Location of a section in the file, for sections that are read in pieces.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// The sections of debug information needed to find compiler flags.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DebugPlaces {
    pub(super) info: Place,
    pub(super) abbrev: Place,
    pub(super) str: Place,
    pub(super) line_str: Place,
    pub(super) str_offsets: Place,
    pub(super) is_compressed: bool,
}

/// The section headers, evaluated.
#[derive(Debug)]
pub(super) struct Sections<'a> {
    pub(super) machine: Machine,
    pub(super) eh_frame: Option<Bytes<'a>>,
    pub(super) debug_frame: Option<Cow<'a, [u8]>>,
    pub(super) text_svma: Option<u64>,
    pub(super) got_svma: Option<u64>,
    /// Disjoint, ascending.
    pub(super) code: Vec<CodeSection>,
    /// Loaded sections without code.
    pub(super) data: Vec<Range<u64>>,
    pub(super) sizes: Sizes,
    pub(super) sframe: Option<Bytes<'a>>,
    pub(super) go: bool,
    pub(super) build_id: String,
    pub(super) compilers: Vec<String>,
    pub(super) debug: DebugPlaces,
    pub(super) remarks: Vec<Remark>,
}

impl<'a> Sections<'a> {
    /// Reads the headers, the small sections, and all of `.eh_frame`.
    pub(super) fn read<R: ReadRef<'a>>(data: R) -> Result<Self, Refusal> {
        let header = header(data)?;
        let machine = machine(header)?;
        if has_too_many_headers(header, LE, data) {
            return Err(Refusal::Damaged);
        }
        let table = header.sections(LE, data).map_err(|_error| Refusal::Damaged)?;
        if table.is_empty() {
            return Err(Refusal::NoSections);
        }
        let mut sections = Self {
            machine,
            eh_frame: None,
            debug_frame: None,
            text_svma: None,
            got_svma: None,
            code: Vec::new(),
            data: Vec::new(),
            sizes: Sizes::default(),
            sframe: None,
            go: false,
            build_id: String::new(),
            compilers: Vec::new(),
            debug: DebugPlaces::default(),
            remarks: Vec::new(),
        };
        let mut has_code_elsewhere = false;
        for section in table.iter() {
            let is_code = section.sh_flags(LE).contains(elf::SHF_EXECINSTR);
            if is_code && section.sh_type(LE) == elf::SHT_NOBITS && section.sh_size(LE) > 0 {
                has_code_elsewhere = true;
            }
            sections.add(data, &table, section);
        }
        if sections.code.is_empty() && has_code_elsewhere {
            return Err(Refusal::DebugOnly);
        }
        sections.make_code_disjoint();
        Ok(sections)
    }

    /// Adds a section by its flags and its name, unless the file does not contain all of it.
    fn add<R: ReadRef<'a>>(
        &mut self,
        data: R,
        table: &SectionTable<'a, FileHeader64<LittleEndian>, R>,
        section: &'a SectionHeader64<LittleEndian>,
    ) {
        let name = table.section_name(LE, section).unwrap_or_default();
        let Some((offset, len)) = section.file_range(LE) else { return };
        let file_len = data.len().unwrap_or(0);
        if offset.checked_add(len).is_none_or(|end| end > file_len) {
            self.leave_out(name);
            return;
        }
        let flags = section.sh_flags(LE);
        let svma = section.sh_addr(LE);
        let place = Place { offset, len };
        if flags.contains(elf::SHF_ALLOC) {
            let Some(end) = svma.checked_add(len) else {
                self.leave_out(name);
                return;
            };
            if flags.contains(elf::SHF_EXECINSTR) && len > 0 {
                let is_stubs = name.starts_with(b".plt") || name == b".iplt";
                self.code.push(CodeSection { svma: svma..end, file_offset: offset, is_stubs });
            } else if flags.contains(elf::SHF_WRITE) {
                self.data.push(svma..end);
            }
        }
        self.named(data, name, section, place);
    }

    /// Records a section according to its name.
    fn named<R: ReadRef<'a>>(
        &mut self,
        data: R,
        name: &[u8],
        section: &'a SectionHeader64<LittleEndian>,
        place: Place,
    ) {
        let svma = section.sh_addr(LE);
        let is_compressed = section.sh_flags(LE).contains(elf::SHF_COMPRESSED);
        match name {
            b".text" => {
                self.sizes.text = place.len;
                self.text_svma = Some(svma);
            }
            b".got" => self.got_svma = Some(svma),
            b".eh_frame" => {
                self.sizes.eh_frame = place.len;
                self.eh_frame = self.whole(data, name, svma, place);
            }
            b".eh_frame_hdr" => self.sizes.eh_frame_hdr = place.len,
            b".debug_frame" => {
                self.sizes.debug_frame = place.len;
                self.debug_frame = match is_compressed {
                    true => self.inflated(data, name, section).map(Cow::Owned),
                    false => self.whole(data, name, svma, place).map(|section| Cow::Borrowed(section.bytes)),
                };
            }
            b".sframe" => {
                self.sizes.sframe = place.len;
                self.sframe = self.whole(data, name, svma, place);
            }
            b".gopclntab" | b".go.buildinfo" => self.go = true,
            b".note.gnu.build-id" => self.build_id = build_id(data, place),
            b".comment" => self.compilers = compilers(data, place),
            b".debug_info" => {
                self.debug.info = place;
                self.debug.is_compressed = is_compressed;
            }
            b".debug_abbrev" => self.debug.abbrev = place,
            b".debug_str" => self.debug.str = place,
            b".debug_line_str" => self.debug.line_str = place,
            b".debug_str_offsets" => self.debug.str_offsets = place,
            _ => {}
        }
    }

    fn whole<R: ReadRef<'a>>(&mut self, data: R, name: &[u8], svma: u64, place: Place) -> Option<Bytes<'a>> {
        if place.len <= MAX_SECTION_BYTES
            && let Ok(bytes) = data.read_bytes_at(place.offset, place.len)
        {
            return Some(Bytes { svma, bytes });
        }
        self.leave_out(name);
        None
    }

    fn inflated<R: ReadRef<'a>>(
        &mut self,
        data: R,
        name: &[u8],
        section: &'a SectionHeader64<LittleEndian>,
    ) -> Option<Vec<u8>> {
        let inflate = || {
            let (header, offset, len) = section.compression(LE, data).ok()??;
            let format = Format::of(header.ch_type(LE))?;
            let full_bytes = Some(header.ch_size(LE)).filter(|&bytes| bytes <= MAX_SECTION_BYTES)?;
            let bytes = Some(len).filter(|&len| len <= MAX_SECTION_BYTES)?;
            inflate::whole(format, data.read_bytes_at(offset, bytes).ok()?, usize::try_from(full_bytes).ok()?)
        };
        let inflated = inflate();
        if inflated.is_none() {
            self.leave_out(name);
        }
        inflated
    }

    fn leave_out(&mut self, name: &[u8]) {
        self.remarks.push(Remark::SectionLeftOut(String::from_utf8_lossy(name).into_owned()));
    }

    /// Sorts code sections and removes overlaps, so that no byte is counted twice.
    fn make_code_disjoint(&mut self) {
        self.code.sort_by_key(|section| (section.svma.start, section.svma.end));
        let mut at = 0;
        for section in &mut self.code {
            let cut = at.max(section.svma.start) - section.svma.start;
            section.file_offset = section.file_offset.saturating_add(cut);
            section.svma.start = at.max(section.svma.start).min(section.svma.end);
            at = at.max(section.svma.end);
        }
        self.code.retain(|section| !section.svma.is_empty());
        self.data.sort_by_key(|range| range.start);
    }
}

fn header<'a, R: ReadRef<'a>>(data: R) -> Result<&'a FileHeader64<LittleEndian>, Refusal> {
    let ident = data.read_bytes_at(0, 6).map_err(|()| Refusal::NotElf)?;
    match ident {
        [0x7f, b'E', b'L', b'F', 2, 1] => {}
        [0x7f, b'E', b'L', b'F', 1, _] => return Err(Refusal::ThirtyTwoBit),
        [0x7f, b'E', b'L', b'F', 2, 2] => return Err(Refusal::BigEndian),
        [0x7f, b'E', b'L', b'F', ..] => return Err(Refusal::Damaged),
        _ => return Err(Refusal::NotElf),
    }
    FileHeader64::parse(data).map_err(|_error| Refusal::Damaged)
}

fn machine(header: &FileHeader64<LittleEndian>) -> Result<Machine, Refusal> {
    match header.e_type(LE) {
        elf::ET_REL => return Err(Refusal::Relocatable),
        elf::ET_CORE => return Err(Refusal::CoreDump),
        _ => {}
    }
    match header.e_machine(LE) {
        elf::EM_X86_64 => Ok(Machine::X86_64),
        elf::EM_AARCH64 => Ok(Machine::Aarch64),
        other => Err(Refusal::Machine(other.0)),
    }
}

/// The build id note: name size, descriptor size, type 3, name `GNU\0`, descriptor.
///
/// # Sources
/// ELF gABI, "Note Section"; `NT_GNU_BUILD_ID` in `<elf.h>`.
fn build_id<'a, R: ReadRef<'a>>(data: R, place: Place) -> String {
    let note = data.read_bytes_at(place.offset, place.len.min(128)).unwrap_or_default();
    let Some((&[4, 0, 0, 0, len, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0], id)) = note.split_first_chunk::<16>()
    else {
        return String::new();
    };
    id.iter().take(usize::from(len)).map(|byte| format!("{byte:02x}")).collect()
}

/// The distinct strings of `.comment`.
fn compilers<'a, R: ReadRef<'a>>(data: R, place: Place) -> Vec<String> {
    let bytes = data.read_bytes_at(place.offset, place.len.min(MAX_COMMENT_BYTES)).unwrap_or_default();
    let mut names = Vec::new();
    for name in bytes.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = String::from_utf8_lossy(name).into_owned();
        if !names.contains(&name) && names.len() < 16 {
            names.push(name);
        }
    }
    names
}
