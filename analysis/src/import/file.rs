//! The header of a perf.data file, which is not trusted.

use super::bytes::Bytes;
use super::description::{Attribute, Features, MAX_EVENTS, MAX_IDS, feature};
use super::error::ImportError;
use fpprof_recording::LooksLike;
use std::io::{Read, Seek, SeekFrom};

/// Bytes of `struct perf_file_header`, and of a pair of offset and size.
const HEADER_BYTES: u64 = 104;
const SECTION_BYTES: u64 = 16;
/// The most bytes of a feature. The build IDs of a whole machine are the largest: about 100 bytes for each file.
const MAX_FEATURE_BYTES: u64 = 64 << 20;

/// The header, checked against the length of the file.
pub(super) struct FileHeader {
    pub(super) attributes: Vec<Attribute>,
    pub(super) features: Features,
    /// Offset and size of the records.
    pub(super) data: Section,
    /// The file ends before its records do, or perf was killed before it wrote their size: the records are assumed to
    /// extend to the end of the file, and there are no features.
    pub(super) is_unfinished: bool,
}

/// A part of the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Section {
    fn parse(bytes: &mut Bytes<'_>) -> Option<Self> {
        Some(Self { offset: bytes.u64()?, size: bytes.u64()? })
    }

    fn end(self) -> Option<u64> {
        self.offset.checked_add(self.size)
    }
}

/// Whether the first bytes (16 if available) are those of a pipe's stream, whose header has only the magic number and
/// the size.
///
/// # Errors
/// If they are not perf's, or from a big-endian machine.
pub(super) fn is_pipe(first: &[u8]) -> Result<bool, ImportError> {
    match first {
        [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', size @ ..] => {
            Ok(size.first_chunk().copied().map(u64::from_le_bytes) == Some(16))
        }
        [b'2', b'E', b'L', b'I', b'F', b'R', b'E', b'P', ..] => Err(ImportError::BigEndian),
        [b'P', b'E', b'R', b'F', b'F', b'I', b'L', b'E', ..] => {
            Err(ImportError::Damaged("perf.data version 1 is not supported"))
        }
        other => Err(ImportError::Foreign(LooksLike::judge(other))),
    }
}

impl FileHeader {
    /// Reads the header, the events and the features.
    ///
    /// # Errors
    /// If the file has another format, or its header refers to something beyond the file.
    ///
    /// # Sources
    /// `tools/perf/Documentation/perf.data-file-format.txt`.
    pub(super) fn read<R: Read + Seek>(input: &mut R) -> Result<Self, ImportError> {
        let file_len = input.seek(SeekFrom::End(0)).map_err(ImportError::Read)?;
        let mut part = |section: Section, what: &'static str| part(input, section, file_len, what);
        let first = part(Section { offset: 0, size: 16.min(file_len) }, "its header is truncated")?;
        is_pipe(&first)?;
        let header = part(Section { offset: 0, size: HEADER_BYTES }, "its header is truncated")?;
        let mut bytes = Bytes(header.get(16..).unwrap_or(&[]));
        let parsed = (|| {
            let attr_len = bytes.u64()?;
            let [attributes, data] = [Section::parse(&mut bytes)?, Section::parse(&mut bytes)?];
            let _event_types = Section::parse(&mut bytes)?;
            Some((attr_len, attributes, data, bytes.u64()?))
        })();
        let (attr_len, attributes, mut data, flags) = parsed.ok_or(ImportError::Damaged("its header is truncated"))?;
        let is_unfinished = data.size == 0 || data.end().is_none_or(|end| end > file_len);
        if is_unfinished {
            data.size = file_len.saturating_sub(data.offset);
        }
        let attributes = read_attributes(attributes, attr_len, &mut part)?;
        let mut features = Features::default();
        // If perf was killed, the table of features was not written either.
        if !is_unfinished && let Some(mut place) = data.end() {
            for number in (0..u64::from(u64::BITS)).filter(|number| flags >> number & 1 != 0) {
                let words = part(Section { offset: place, size: SECTION_BYTES }, "its table of features is truncated")?;
                place = place.saturating_add(SECTION_BYTES);
                let section = Section::parse(&mut Bytes(&words)).filter(|_| feature::READ.contains(&number));
                let Some(section) = section else { continue };
                if section.size > MAX_FEATURE_BYTES {
                    return Err(ImportError::Damaged("a feature has an invalid size"));
                }
                features.add(number, &part(section, "a feature is truncated")?);
            }
        }
        Ok(Self { attributes, features, data, is_unfinished })
    }
}

fn part<R: Read + Seek>(
    input: &mut R,
    section: Section,
    file_len: u64,
    what: &'static str,
) -> Result<Vec<u8>, ImportError> {
    let len = usize::try_from(section.size).ok().filter(|_| section.end().is_some_and(|end| end <= file_len));
    let mut bytes = vec![0; len.ok_or(ImportError::Damaged(what))?];
    input.seek(SeekFrom::Start(section.offset)).map_err(ImportError::Read)?;
    input.read_exact(&mut bytes).map_err(ImportError::Read)?;
    Ok(bytes)
}

fn read_attributes(
    section: Section,
    attr_len: u64,
    part: &mut impl FnMut(Section, &'static str) -> Result<Vec<u8>, ImportError>,
) -> Result<Vec<Attribute>, ImportError> {
    const WHAT: &str = "the descriptions of its events are truncated";
    let n = section.size.checked_div(attr_len).unwrap_or(0);
    if n == 0 || n > MAX_EVENTS as u64 {
        return Err(ImportError::Damaged("it has no events, or too many"));
    }
    let own_len = attr_len.checked_sub(SECTION_BYTES).ok_or(ImportError::Damaged(WHAT))?;
    let all = part(section, WHAT)?;
    let mut bytes = Bytes(&all);
    let mut left_ids = MAX_IDS;
    let mut attributes = Vec::new();
    for _ in 0..n {
        let mut attribute = Attribute::parse(bytes.take(own_len).unwrap_or(&[]))?;
        let ids = Section::parse(&mut bytes).ok_or(ImportError::Damaged(WHAT))?;
        // Several events may refer to the same ids.
        left_ids = left_ids.checked_sub(ids.size / 8).ok_or(ImportError::Damaged("too many event ids"))?;
        let ids = part(ids, "its event ids are truncated")?;
        attribute.ids = ids.chunks_exact(8).filter_map(|id| Bytes(id).u64()).collect();
        attributes.push(attribute);
    }
    Ok(attributes)
}
