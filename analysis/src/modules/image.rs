//! What is loaded where, according to the program headers of an ELF file.

use fpprof_recording::model::BuildId;
use fpprof_unwind::Arch;
use std::ops::Range;

/// Smallest page size of the supported architectures. The loader rounds segments to pages.
const PAGE: u64 = 4096;

/// A loaded segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Offset in the file.
    pub file_offset: u64,
    /// Size in the file.
    pub file_bytes: u64,
    /// Address where it is loaded, SVMA.
    pub svma: u64,
    /// Size in memory.
    pub memory_bytes: u64,
    /// Whether code may run there.
    pub executable: bool,
}

/// The contents of an ELF file's headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Loaded segments.
    pub segments: Vec<Segment>,
    /// GNU build ID.
    pub build_id: Option<BuildId>,
    /// Architecture; `None` if the unwinder does not support it.
    pub arch: Option<Arch>,
    /// Byte order.
    pub little_endian: bool,
    /// Entry point, SVMA; `None` if there is none.
    pub entry: Option<u64>,
    /// SVMA of `PT_GNU_EH_FRAME`, which leads to the call frame information of a file without section headers.
    pub eh_frame_hdr: Option<u64>,
}

impl Image {
    /// AVMA − SVMA of an executable mapping of this file, wrapping; `None` if no segment fits the mapping.
    ///
    /// The segment is the one that contains the file offset. Its address and offset need be neither equal nor congruent
    /// modulo the page size for the file as a whole, only per segment. Two segments may share a page of the file, so
    /// the one whose extent is that of the mapping takes precedence over one that merely contains the offset.
    #[must_use]
    pub fn bias(&self, start: u64, file_offset: u64, len: u64) -> Option<u64> {
        let rank = |segment: &Segment| {
            let first = segment.file_offset & !(PAGE - 1);
            let end = segment.file_offset.checked_add(segment.file_bytes)?;
            if file_offset < first || file_offset >= end {
                return None;
            }
            let end_page = end.checked_next_multiple_of(PAGE).unwrap_or(end);
            let is_whole = first == file_offset && file_offset.checked_add(len) == Some(end_page);
            let holds = segment.file_offset <= file_offset;
            Some((segment.executable, is_whole, holds))
        };
        let candidates = self.segments.iter().filter_map(|segment| Some((rank(segment)?, segment)));
        let (_, segment) = candidates.max_by_key(|&(rank, _)| rank)?;
        let svma = segment.svma.wrapping_add(file_offset.wrapping_sub(segment.file_offset));
        Some(start.wrapping_sub(svma))
    }

    /// SVMAs from the start of the lowest segment to the last page of the highest; `None` without segments.
    #[must_use]
    pub fn svmas(&self) -> Option<Range<u64>> {
        let start = self.segments.iter().map(|segment| segment.svma & !(PAGE - 1)).min()?;
        let end = self.segments.iter().filter_map(|segment| segment.svma.checked_add(segment.memory_bytes)).max()?;
        Some(start..end.checked_next_multiple_of(PAGE)?)
    }

    /// File offset of an SVMA.
    #[must_use]
    pub fn file_offset(&self, svma: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let offset = svma.checked_sub(segment.svma).filter(|&offset| offset < segment.file_bytes)?;
            segment.file_offset.checked_add(offset)
        })
    }
}
