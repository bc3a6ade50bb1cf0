//! A module's unwind information, indexed on first use.

use alloc::boxed::Box;
use core::fmt;
use core::ops::Range;

use gimli::{BaseAddresses, DebugFrame, EhFrame, LittleEndian, UnwindSection};
use once_cell::race::OnceBox;

use super::entry::{Fde, SectionKind, parse};
use super::header::Header;
use super::index::Index;
use super::sections::{ModuleSections, Section};
use super::sframe::{Sframe, SframeRow};
use crate::arch::Arch;
use crate::error::Error;
use crate::stack::Root;

/// How far above the entry point code without unwind information still belongs to it. glibc's loader has 64 bytes
/// there, musl's `_start` 22.
const ENTRY_CODE_BYTES: u64 = 128;

/// Where an FDE may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) kind: SectionKind,
    pub(crate) offset: usize,
    /// Start of its code according to the header, which may be wrong.
    pub(crate) start: Option<u64>,
}

/// A module's unwind information, indexed on first use. Shared between threads without locks.
pub struct Module {
    sections: ModuleSections,
    eh_frame_bases: BaseAddresses,
    debug_frame_bases: BaseAddresses,
    header: Option<Header>,
    sframe: Option<Sframe>,
    left_out_index: OnceBox<Index>,
    eh_frame_index: OnceBox<Index>,
    debug_frame_index: OnceBox<Index>,
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module").field("sections", &self.sections).finish_non_exhaustive()
    }
}

impl Module {
    /// Creates a module. Cheap: nothing is indexed before the first look-up that needs it.
    #[must_use]
    pub fn new(sections: ModuleSections) -> Self {
        let mut bases = BaseAddresses::default();
        if let Some(text) = &sections.text {
            bases = bases.set_text(text.start);
        }
        if let Some(got) = sections.got {
            bases = bases.set_got(got);
        }
        let base_of = |section: &Option<Section>| match section {
            Some(section) => bases.clone().set_eh_frame(section.svma),
            None => bases.clone(),
        };
        Self {
            eh_frame_bases: base_of(&sections.eh_frame),
            debug_frame_bases: base_of(&sections.debug_frame),
            header: Header::parse(&sections),
            sframe: sections.sframe.as_ref().and_then(|section| Sframe::parse(section, sections.arch)),
            left_out_index: OnceBox::new(),
            eh_frame_index: OnceBox::new(),
            debug_frame_index: OnceBox::new(),
            sections,
        }
    }

    /// The architecture of the code.
    #[must_use]
    pub fn arch(&self) -> Arch {
        self.sections.arch
    }

    /// Number of FDEs: (usable, unusable). Reads both sections in full.
    #[must_use]
    pub fn count_entries(&self) -> (usize, usize) {
        let (eh_frame, debug_frame) = (self.eh_frame_index(), self.debug_frame_index());
        (eh_frame.n_entries() + debug_frame.n_entries(), eh_frame.n_bad() + debug_frame.n_bad())
    }

    /// Whether the call frame information at an address describes a signal frame.
    #[must_use]
    pub fn is_signal_frame(&self, svma: u64) -> bool {
        self.find(svma).is_ok_and(|fde| fde.is_signal_frame())
    }

    /// Calls `visit` with the range of every FDE or `.sframe` function, ascending within each section. Reads all
    /// sections in full.
    pub fn for_each_range(&self, mut visit: impl FnMut(Range<u64>)) {
        if let (Some(section), Some(sframe)) = (&self.sections.sframe, &self.sframe) {
            sframe.ranges(section).for_each(&mut visit);
        }
        for index in [self.eh_frame_index(), self.debug_frame_index()] {
            index.ranges().for_each(&mut visit);
        }
    }

    /// The range of the FDE that covers an address: its function, or a part of one.
    #[must_use]
    pub fn range_of(&self, svma: u64) -> Option<Range<u64>> {
        self.find(svma).ok().map(|fde| fde.range())
    }

    /// Where the FDE of an address may be, without reading it.
    pub(crate) fn place(&self, svma: u64) -> Option<Place> {
        if let Some((start, offset)) = self.header.as_ref().and_then(|header| header.find(&self.sections, svma)) {
            return Some(Place { kind: SectionKind::EhFrame, offset, start: Some(start) });
        }
        if let Some(offset) = self.eh_frame_index().find(svma) {
            return Some(Place { kind: SectionKind::EhFrame, offset, start: None });
        }
        let offset = self.debug_frame_index().find(svma)?;
        Some(Place { kind: SectionKind::DebugFrame, offset, start: None })
    }

    /// The FDE at `place`, if it starts where the header says and covers the address.
    pub(crate) fn find_at(&self, place: Place, svma: u64) -> Option<Fde<'_>> {
        let fde = self.parse(place.kind, place.offset).ok()?;
        let is_right = place.start.is_none_or(|start| start == fde.range().start);
        (is_right && fde.contains(svma)).then_some(fde)
    }

    /// The FDE that covers an address: by the header, else by a scan of `.eh_frame`, else of `.debug_frame`.
    pub(crate) fn find(&self, svma: u64) -> Result<Fde<'_>, Error> {
        if !self.sections.little_endian {
            return Err(Error::BigEndian);
        }
        let index = match self.header.as_ref().map(|header| self.find_by_header(header, svma)) {
            Some(Ok(fde)) if fde.contains(svma) => return Ok(fde),
            Some(Ok(_)) => self.left_out_index(),
            _ => self.eh_frame_index(),
        };
        if let Some(offset) = index.find(svma) {
            return self.parse(SectionKind::EhFrame, offset);
        }
        match self.debug_frame_index().find(svma) {
            Some(offset) => self.parse(SectionKind::DebugFrame, offset),
            None => Err(Error::NoRow(svma)),
        }
    }

    /// The addresses around `svma` for which [`Self::find`] has the same result. Where FDEs overlap, each has its own
    /// part.
    pub(crate) fn extent(&self, svma: u64) -> Range<u64> {
        let mut extent = 0..u64::MAX;
        let mut index = None;
        if let Some(header) = &self.header {
            extent = header.extent(&self.sections, svma);
            match self.find_by_header(header, svma).map(|fde| (fde.contains(svma), fde.range())) {
                Ok((true, range)) => return common(&extent, &range),
                Ok((false, range)) => {
                    extent.start = extent.start.max(range.end);
                    index = Some(self.left_out_index());
                }
                Err(_) => {}
            }
        }
        let index = index.unwrap_or_else(|| self.eh_frame_index());
        extent = common(&extent, &index.extent(svma));
        if index.find(svma).is_none() {
            extent = common(&extent, &self.debug_frame_index().extent(svma));
        }
        extent
    }

    /// The `.sframe` row of an address; `None` if the module is not unwound by `.sframe`.
    pub(crate) fn sframe_row(&self, svma: u64) -> Option<Result<SframeRow, Error>> {
        let section = self.sections.sframe.as_ref()?;
        let row = self.sframe.as_ref().and_then(|sframe| sframe.row(section, svma));
        Some(row.ok_or(Error::NoRow(svma)))
    }

    /// Whether an address without a row is in the code of the entry point. False if the entry point itself has a row:
    /// then code without a row after it is something else.
    pub(crate) fn is_entry_code(&self, svma: u64) -> bool {
        let Some(entry) = self.sections.entry else { return false };
        let Some(offset) = svma.checked_sub(entry) else { return false };
        offset < ENTRY_CODE_BYTES && !self.has_row(entry) && self.next_start(entry).is_none_or(|next| svma < next)
    }

    /// Whether unwind information, valid or not, covers an address.
    pub(crate) fn has_row(&self, svma: u64) -> bool {
        match self.sframe_row(svma) {
            Some(row) => row.is_ok(),
            None => !matches!(self.find(svma), Err(Error::NoRow(_))),
        }
    }

    /// Start of the next code above an address that has unwind information.
    fn next_start(&self, svma: u64) -> Option<u64> {
        match (&self.sections.sframe, &self.sframe) {
            (Some(section), Some(sframe)) => sframe.next_start(section, svma),
            _ => {
                let indexes = [self.eh_frame_index(), self.debug_frame_index()];
                indexes.iter().filter_map(|index| index.next_start(svma)).min()
            }
        }
    }

    /// The root declared for an address in [`ModuleSections::roots`].
    #[must_use]
    pub fn root_at(&self, svma: u64) -> Option<Root> {
        self.sections.roots.iter().find_map(|(range, root)| range.contains(&svma).then_some(*root))
    }

    /// Whether a root is declared for any of these addresses.
    pub(crate) fn has_root_in(&self, addresses: &Range<u64>) -> bool {
        self.sections.roots.iter().any(|(range, _)| range.start < addresses.end && addresses.start < range.end)
    }

    /// Whether the entry point is in this range.
    pub(crate) fn has_entry_in(&self, range: Range<u64>) -> bool {
        self.sections.entry.is_some_and(|entry| range.contains(&entry))
    }

    /// A section and its bytes.
    pub(crate) fn section(&self, kind: SectionKind) -> Option<&Section> {
        match kind {
            SectionKind::EhFrame => self.sections.eh_frame.as_ref(),
            SectionKind::DebugFrame => self.sections.debug_frame.as_ref(),
        }
    }

    /// `.eh_frame` for the parser.
    pub(crate) fn eh_frame(&self) -> EhFrame<super::Reader<'_>> {
        let mut section = EhFrame::new(self.bytes(SectionKind::EhFrame), LittleEndian);
        section.set_address_size(self.sections.arch.spec().word_bytes);
        section.set_vendor(self.sections.arch.spec().vendor);
        section
    }

    /// `.debug_frame` for the parser.
    pub(crate) fn debug_frame(&self) -> DebugFrame<super::Reader<'_>> {
        let mut section = DebugFrame::new(self.bytes(SectionKind::DebugFrame), LittleEndian);
        section.set_address_size(self.sections.arch.spec().word_bytes);
        section.set_vendor(self.sections.arch.spec().vendor);
        section
    }

    /// The base addresses for encoded pointers in a section.
    pub(crate) fn bases(&self, kind: SectionKind) -> &BaseAddresses {
        match kind {
            SectionKind::EhFrame => &self.eh_frame_bases,
            SectionKind::DebugFrame => &self.debug_frame_bases,
        }
    }

    fn bytes(&self, kind: SectionKind) -> &[u8] {
        self.section(kind).map_or(&[], |section| &section.bytes)
    }

    /// The FDE the header lists for an address, if the header is right about its start.
    fn find_by_header(&self, header: &Header, svma: u64) -> Result<Fde<'_>, Error> {
        let (start, offset) = header.find(&self.sections, svma).ok_or(Error::NoRow(svma))?;
        let fde = self.parse(SectionKind::EhFrame, offset)?;
        if fde.range().start == start { Ok(fde) } else { Err(Error::NoRow(svma)) }
    }

    /// The FDEs of `.eh_frame` missing from the header. Usually there are none, and checking that takes a tenth of the
    /// time of a full scan.
    fn left_out_index(&self) -> &Index {
        let build = || match self.header.as_ref().and_then(|header| header.offsets(&self.sections)) {
            Some(listed) => Index::scan_unlisted(&self.eh_frame(), &self.eh_frame_bases, listed),
            None => self.build(&self.eh_frame(), SectionKind::EhFrame),
        };
        self.left_out_index.get_or_init(|| Box::new(build()))
    }

    fn parse(&self, kind: SectionKind, offset: usize) -> Result<Fde<'_>, Error> {
        let bases = self.bases(kind);
        let fde = match kind {
            SectionKind::EhFrame => parse(&self.eh_frame(), bases, offset.into())?,
            SectionKind::DebugFrame => parse(&self.debug_frame(), bases, offset.into())?,
        };
        Ok(Fde::new(kind, fde))
    }

    fn eh_frame_index(&self) -> &Index {
        let build = || self.build(&self.eh_frame(), SectionKind::EhFrame);
        self.eh_frame_index.get_or_init(|| Box::new(build()))
    }

    fn debug_frame_index(&self) -> &Index {
        let build = || self.build(&self.debug_frame(), SectionKind::DebugFrame);
        self.debug_frame_index.get_or_init(|| Box::new(build()))
    }

    fn build<'a, S: UnwindSection<super::Reader<'a>>>(&self, section: &S, kind: SectionKind) -> Index {
        if !self.sections.little_endian {
            return Index::default();
        }
        Index::scan(section, self.bases(kind), kind, self.sections.text.as_ref())
    }
}

fn common(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    a.start.max(b.start)..a.end.min(b.end)
}
