//! What is loaded where, as the program headers of an ELF file say.

use fpprof_recording::model::BuildId;
use fpprof_unwind::Arch;
use std::ops::Range;

/// Smallest page size of the architectures we know. The loader rounds segments to pages.
const PAGE: u64 = 4096;

/// A loaded segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Offset into the file.
    pub file_offset: u64,
    /// Bytes in the file.
    pub file_bytes: u64,
    /// Where it is loaded, SVMA.
    pub svma: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Code may run there.
    pub executable: bool,
}

/// What the headers of an ELF file say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Loaded segments.
    pub segments: Vec<Segment>,
    /// GNU build id.
    pub build_id: Option<BuildId>,
    /// Architecture; `None` for one the unwinder does not know.
    pub arch: Option<Arch>,
    /// Byte order.
    pub little_endian: bool,
    /// Entry point, SVMA; `None` when there is none.
    pub entry: Option<u64>,
    /// SVMA of `PT_GNU_EH_FRAME`, the way to the call frame information of a file without section headers.
    pub eh_frame_hdr: Option<u64>,
}

impl Image {
    /// AVMA − SVMA of an executable mapping of this file, wrapping; `None` when no segment is mapped so.
    ///
    /// The segment is the one that holds the file offset. Its address and its offset need be neither equal nor equal
    /// modulo the page size in the file as a whole, only per segment; and two segments may share a page of the file, so
    /// that the one whose extent is that of the mapping is taken before one that merely holds the offset.
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

    /// SVMAs from the first byte of the lowest segment to the last page of the highest; `None` for no segments.
    #[must_use]
    pub fn svmas(&self) -> Option<Range<u64>> {
        let start = self.segments.iter().map(|segment| segment.svma & !(PAGE - 1)).min()?;
        let end = self.segments.iter().filter_map(|segment| segment.svma.checked_add(segment.memory_bytes)).max()?;
        Some(start..end.checked_next_multiple_of(PAGE)?)
    }

    /// Offset into the file of an SVMA.
    #[must_use]
    pub fn file_offset(&self, svma: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let offset = svma.checked_sub(segment.svma).filter(|&offset| offset < segment.file_bytes)?;
            segment.file_offset.checked_add(offset)
        })
    }
}
