//! Bounded reading of an ELF file.

use super::budget::{Budget, SharedBudget};
use super::inflate::{self, Format};
use super::{Image, Missing, Opened, Segment};
use bytes::Bytes;
use fpprof_recording::model::BuildId;
use fpprof_unwind::Arch;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{CompressionHeader, FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use object::read::{FileKind, ReadCache, ReadRef};
use object::{Endian, Endianness};
use std::borrow::Cow;

/// The most loaded segments considered; real files have a handful.
const MAX_SEGMENTS: usize = 256;
/// The most section or segment headers of an accepted file; linkers write about forty of each.
const MAX_HEADERS: u32 = 1 << 16;
/// The most sections or segments of notes searched for the build ID.
const MAX_NOTES: usize = 64;
/// The most bytes of notes searched for the build ID.
const MAX_NOTE_BYTES: u64 = 64 << 10;
/// The most bytes of a link to a supplementary file: a path and a build ID.
const MAX_LINK_BYTES: u64 = 8 << 10;
/// The most bytes of section names.
const MAX_NAME_BYTES: u64 = 1 << 20;
/// Limit of the compression ratio of a section: zlib can reach 1032, but only for zeros.
///
/// # Sources
/// "Maximum Compression Factor", zlib technical details.
const MAX_COMPRESSION: u64 = 100;

/// A section header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionInfo {
    /// Name.
    pub name: Vec<u8>,
    /// `SHT_*`.
    pub kind: u32,
    /// Address where it is loaded, SVMA.
    pub svma: u64,
    /// Size in memory, or in the file if it is not loaded.
    pub bytes: u64,
    /// Index of a related section: for a symbol table, its strings.
    pub link: u32,
    /// `SHF_*`.
    pub flags: u64,
    /// Offset and size in the file; `None` if it has no bytes there.
    file_range: Option<(u64, u64)>,
    /// Format and uncompressed size, if it is compressed.
    compression: Option<(Option<Format>, u64)>,
}

impl SectionInfo {
    /// Whether it contains instructions.
    #[must_use]
    pub fn is_code(&self) -> bool {
        self.flags & elf::SHF_EXECINSTR.0 != 0
    }

    /// Whether it consists of stubs that call other functions. Linkers may put a symbol without a size on one, for a function that
    /// is chosen at run time.
    #[must_use]
    pub fn has_stubs(&self) -> bool {
        matches!(&*self.name, b".plt" | b".plt.sec" | b".plt.got" | b".iplt")
    }

    /// Offset and size in the file, if it is not compressed.
    pub(super) fn plain_range(&self) -> Option<(u64, u64)> {
        self.file_range.filter(|_| self.compression.is_none())
    }

    /// Number of bytes that [`ElfFile::read`] returns, uncompressed; 0 if the file has none of them.
    #[must_use]
    pub fn full_bytes(&self) -> u64 {
        match (self.compression, self.file_range) {
            (Some((_, full_bytes)), _) => full_bytes,
            (None, Some((_, bytes))) => bytes,
            (None, None) => 0,
        }
    }
}

/// An open ELF file, 32 or 64 bits, of either byte order.
#[derive(Debug)]
pub struct ElfFile {
    /// Reads headers, which are accessed again and again.
    cache: ReadCache<SharedBudget>,
    /// Reads the bytes of sections, which are long and read once.
    reader: SharedBudget,
    image: Image,
    is_64: bool,
    /// The file that the DWARF shares parts with (dwz), if it was looked up.
    supplementary: Option<Box<Self>>,
}

impl ElfFile {
    /// Reads the ELF header, the program headers and the build ID.
    ///
    /// # Errors
    /// [`Missing::NotElf`].
    pub fn new(opened: Opened) -> Result<Self, Missing> {
        let reader = SharedBudget::new(Budget::new(opened.reader));
        let cache = ReadCache::new(reader.clone());
        let (image, is_64) = match FileKind::parse(&cache).map_err(|_| Missing::NotElf)? {
            FileKind::Elf64 => (image::<FileHeader64<Endianness>>(&cache), true),
            FileKind::Elf32 => (image::<FileHeader32<Endianness>>(&cache), false),
            _ => return Err(Missing::NotElf),
        };
        let image = image.ok_or(Missing::NotElf)?;
        Ok(Self { cache, reader, image, is_64, supplementary: None })
    }

    /// The contents of the headers.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Whether it is a file of ELF class 64.
    #[must_use]
    pub fn is_64(&self) -> bool {
        self.is_64
    }

    /// Its sections, in order; empty if it has no section headers or they cannot be parsed.
    #[must_use]
    pub fn sections(&self) -> Vec<SectionInfo> {
        let sections = if self.is_64 {
            sections::<FileHeader64<Endianness>>(&self.cache)
        } else {
            sections::<FileHeader32<Endianness>>(&self.cache)
        };
        sections.unwrap_or_default()
    }

    /// Whether it has a section of this name with bytes in the file.
    #[must_use]
    pub fn has_section(&self, name: &[u8]) -> bool {
        self.sections().iter().any(|section| section.name == name && section.full_bytes() > 0)
    }

    /// The bytes of a section, uncompressed; `None` if there are none, more than `max_bytes`, or they cannot be read.
    #[must_use]
    pub fn read(&self, section: &SectionInfo, max_bytes: u64) -> Option<Vec<u8>> {
        let (offset, bytes) = section.file_range?;
        let data = self.read_range(offset, bytes, max_bytes)?;
        let Some((format, full_bytes)) = section.compression else { return Some(data) };
        if full_bytes > max_bytes || full_bytes > bytes.saturating_mul(MAX_COMPRESSION) {
            return None;
        }
        inflate::whole(format?, &data, usize::try_from(full_bytes).ok()?)
    }

    /// Like [`Self::read`], but without a copy if the section is not compressed; then the bytes are cached in `self`
    /// and not read twice.
    #[must_use]
    pub fn bytes(&self, section: &SectionInfo, max_bytes: u64) -> Option<Cow<'_, [u8]>> {
        match (section.compression, section.file_range?) {
            (None, (offset, bytes)) if bytes <= max_bytes => {
                ReadRef::read_bytes_at(&self.cache, offset, bytes).ok().map(Cow::Borrowed)
            }
            (None, _) => None,
            (Some(_), _) => self.read(section, max_bytes).map(Cow::Owned),
        }
    }

    /// The supplementary file that this debug file shares DWARF with (dwz), if it was found.
    #[must_use]
    pub fn supplementary(&self) -> Option<&Self> {
        self.supplementary.as_deref()
    }

    /// Path and build ID of the supplementary file.
    ///
    /// # Sources
    /// `.gnu_debugaltlink`: a path, a zero byte, a build id (dwz, `write_gnu_debugaltlink`).
    #[must_use]
    pub fn supplementary_link(&self) -> Option<(Vec<u8>, BuildId)> {
        let sections = self.sections();
        let link = sections.iter().find(|section| section.name == b".gnu_debugaltlink")?;
        let bytes = self.read(link, MAX_LINK_BYTES)?;
        let end = bytes.iter().position(|&byte| byte == 0)?;
        let build_id = BuildId::new(bytes.get(end.checked_add(1)?..)?)?;
        Some((bytes.get(..end)?.to_vec(), build_id))
    }

    /// Like [`Self::read`], but shared. An uncompressed section is read directly into the shared memory.
    #[must_use]
    pub fn read_shared(&self, section: &SectionInfo, max_bytes: u64) -> Option<Bytes> {
        match (section.compression, section.file_range) {
            (None, Some((offset, bytes))) => self.read_range_shared(offset, bytes, max_bytes),
            _ => self.read(section, max_bytes).map(Bytes::from),
        }
    }

    /// Bytes of the file; `None` if there are more than `max_bytes`, or they cannot be read.
    #[must_use]
    pub fn read_range(&self, offset: u64, bytes: u64, max_bytes: u64) -> Option<Vec<u8>> {
        if bytes > max_bytes { None } else { self.reader.read_at(offset, bytes) }
    }

    /// Like [`Self::read_range`], but shared.
    pub(super) fn read_range_shared(&self, offset: u64, bytes: u64, max_bytes: u64) -> Option<Bytes> {
        if bytes > max_bytes { None } else { self.reader.read_at(offset, bytes) }
    }
}

impl ElfFile {
    /// Sets the supplementary file.
    pub(super) fn with_supplementary(self, supplementary: Option<Self>) -> Self {
        Self { supplementary: supplementary.map(Box::new), ..self }
    }

    /// Copies the bytes at an SVMA; returns false if not all of them are in the file.
    pub(super) fn copy_code(&self, svma: u64, code: &mut [u8]) -> bool {
        let len = code.len() as u64;
        let bytes = self.image.file_offset(svma).and_then(|offset| self.read_range(offset, len, len));
        let Some(bytes) = bytes.filter(|bytes| bytes.len() == code.len()) else { return false };
        code.copy_from_slice(&bytes);
        true
    }
}

/// Whether a file has, or claims, more section or program headers than are accepted.
pub(crate) fn has_too_many_headers<'data, E: FileHeader>(
    header: &E,
    endian: E::Endian,
    data: impl ReadRef<'data>,
) -> bool {
    [header.shnum(endian, data), header.phnum(endian, data)].iter().any(|n| n.is_ok_and(|n| n > MAX_HEADERS))
}

fn image<E: FileHeader<Endian = Endianness>>(cache: &ReadCache<SharedBudget>) -> Option<Image> {
    let header = E::parse(cache).ok()?;
    let endian = header.endian().ok()?;
    if has_too_many_headers(header, endian, cache) {
        return None;
    }
    let mut image = Image {
        segments: Vec::new(),
        build_id: None,
        arch: arch(header.e_machine(endian)),
        little_endian: endian.is_little_endian(),
        entry: Some(header.e_entry(endian).into()).filter(|&entry| entry != 0),
        eh_frame_hdr: None,
    };
    let mut n_notes = 0;
    for program in header.program_headers(endian, cache).ok()? {
        match program.p_type(endian) {
            elf::PT_LOAD if image.segments.len() < MAX_SEGMENTS => image.segments.push(Segment {
                file_offset: program.p_offset(endian).into(),
                file_bytes: program.p_filesz(endian).into(),
                svma: program.p_vaddr(endian).into(),
                memory_bytes: program.p_memsz(endian).into(),
                executable: program.p_flags(endian) & elf::PF_X != elf::ProgramFlags(0),
            }),
            elf::PT_GNU_EH_FRAME => image.eh_frame_hdr = Some(program.p_vaddr(endian).into()),
            elf::PT_NOTE
                if image.build_id.is_none()
                    && n_notes < MAX_NOTES
                    && program.p_filesz(endian).into() <= MAX_NOTE_BYTES =>
            {
                n_notes += 1;
                image.build_id =
                    program.notes(endian, cache).ok().flatten().and_then(|notes| build_id::<E>(notes, endian));
            }
            _ => {}
        }
    }
    if image.build_id.is_none() {
        // A supplementary file (dwz) has no program headers.
        let sections = header.section_headers(endian, cache).unwrap_or_default();
        let notes = sections.iter().filter(|section| {
            section.sh_type(endian) == elf::SHT_NOTE && section.sh_size(endian).into() <= MAX_NOTE_BYTES
        });
        image.build_id = notes
            .take(MAX_NOTES)
            .filter_map(|section| section.notes(endian, cache).ok()?)
            .find_map(|notes| build_id::<E>(notes, endian));
    }
    Some(image)
}

fn build_id<E: FileHeader<Endian = Endianness>>(mut notes: NoteIterator<'_, E>, endian: Endianness) -> Option<BuildId> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
            return BuildId::new(note.desc());
        }
    }
    None
}

fn sections<E: FileHeader<Endian = Endianness>>(cache: &ReadCache<SharedBudget>) -> object::Result<Vec<SectionInfo>> {
    let header = E::parse(cache)?;
    let endian = header.endian()?;
    let headers = header.section_headers(endian, cache)?;
    let names_index = header.section_strings_index(endian, cache)?;
    let names: &[u8] = match headers.get(names_index.0) {
        Some(names) if names.sh_size(endian).into() <= MAX_NAME_BYTES => names.data(endian, cache)?,
        _ => &[],
    };
    Ok(headers.iter().map(|section| info::<E>(section, endian, names, cache)).collect())
}

fn info<E: FileHeader<Endian = Endianness>>(
    section: &E::SectionHeader,
    endian: Endianness,
    names: &[u8],
    cache: &ReadCache<SharedBudget>,
) -> SectionInfo {
    let name = usize::try_from(section.sh_name(endian)).ok().and_then(|start| names.get(start..)).unwrap_or(&[]);
    let name = name.split(|&byte| byte == 0).next().unwrap_or(&[]);
    let mut file_range = section.file_range(endian);
    let mut compression = None;
    if let Ok(Some((header, offset, bytes))) = section.compression(endian, cache) {
        compression = Some((Format::of(header.ch_type(endian)), header.ch_size(endian).into()));
        file_range = Some((offset, bytes));
    }
    let mut name = name.get(..name.len().min(64)).unwrap_or(name).to_vec();
    if let Some((place, full_bytes)) = file_range.and_then(|range| old_compression(&name, range, cache)) {
        (compression, file_range) = (Some((Some(Format::Zlib), full_bytes)), Some(place));
        // The name without compression.
        name.remove(1);
    }
    SectionInfo {
        name,
        kind: section.sh_type(endian).0,
        svma: section.sh_addr(endian).into(),
        bytes: section.sh_size(endian).into(),
        link: section.sh_link(endian),
        flags: section.sh_flags(endian).0,
        file_range,
        compression,
    }
}

/// Offset and size of the compressed bytes of a `.zdebug_*` section, and its uncompressed size.
///
/// # Sources
/// Before ELF had `SHF_COMPRESSED`, binutils wrote `ZLIB`, the size as eight bytes, big-endian, and a stream
/// (`bfd/compress.c`).
fn old_compression(
    name: &[u8],
    (offset, bytes): (u64, u64),
    cache: &ReadCache<SharedBudget>,
) -> Option<((u64, u64), u64)> {
    const HEAD_BYTES: u64 = 12;
    let rest = bytes.checked_sub(HEAD_BYTES).filter(|_| name.starts_with(b".zdebug_"))?;
    let head = ReadRef::read_bytes_at(cache, offset, HEAD_BYTES).ok()?;
    let full_bytes = u64::from_be_bytes(*head.strip_prefix(b"ZLIB")?.first_chunk()?);
    Some(((offset.checked_add(HEAD_BYTES)?, rest), full_bytes))
}

fn arch(machine: elf::Machine) -> Option<Arch> {
    match machine {
        elf::EM_X86_64 => Some(Arch::X86_64),
        elf::EM_AARCH64 => Some(Arch::Aarch64),
        elf::EM_386 => Some(Arch::I386),
        _ => None,
    }
}
