//! Parses units on demand; neighbouring units share their abbreviation table.

use super::meter::{Meter, Stop};
use crate::abbreviations::table_bytes;
use gimli::{
    Abbreviations, AttributeValue, DebugAbbrevOffset, DebugInfoOffset, DebugLineOffset, Dwarf, EndianSlice,
    RunTimeEndian, Section as _, Unit, UnitHeader, UnitType,
};
use std::rc::Rc;
use std::sync::Arc;

/// Reads sections.
pub(super) type Reader<'a> = EndianSlice<'a, RunTimeEndian>;

/// Size of the largest accepted abbreviation table; those of the largest units have about 50 KiB.
const MAX_TABLE_BYTES: usize = 512 << 10;
/// Size of the largest accepted header of a line program, including file names: about 10,000 of them.
const MAX_LINE_HEAD_BYTES: u64 = 256 << 10;
/// Steps per unit, in addition to its bytes.
const UNIT_STEPS: u64 = 128;
/// The most bytes of abbreviations of units that are cached to resolve references to names.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// The units of `.debug_info`.
pub(super) struct Units<'d, 'a> {
    pub(super) dwarf: &'d Dwarf<Reader<'a>>,
    meter: &'d Meter,
    /// Offsets of the units seen so far, ascending.
    offsets: Vec<usize>,
    table: Option<Table>,
    kept: Vec<(usize, Rc<Unit<Reader<'a>>>)>,
    kept_bytes: usize,
}

/// The last abbreviation table that was parsed.
struct Table {
    offset: DebugAbbrevOffset,
    bytes: usize,
    parsed: Arc<Abbreviations>,
}

impl<'d, 'a> Units<'d, 'a> {
    pub(super) fn new(dwarf: &'d Dwarf<Reader<'a>>, meter: &'d Meter) -> Self {
        let mut units = Self { dwarf, meter, offsets: Vec::new(), table: None, kept: Vec::new(), kept_bytes: 0 };
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            let is_of_types = matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. });
            if let Some(offset) = header.debug_info_offset().filter(|_| !is_of_types) {
                units.offsets.push(offset.0);
            }
            if meter.take(UNIT_STEPS).is_err() {
                break;
            }
        }
        units
    }

    pub(super) fn offsets(&self) -> Vec<usize> {
        self.offsets.clone()
    }

    /// The header of the unit at an offset.
    pub(super) fn header(&self, offset: usize) -> Result<UnitHeader<Reader<'a>>, Stop> {
        Ok(self.dwarf.unit_header(DebugInfoOffset(offset))?)
    }

    /// A unit with its abbreviations and the header of its line program.
    pub(super) fn unit(&mut self, header: UnitHeader<Reader<'a>>) -> Result<Unit<Reader<'a>>, Stop> {
        let abbreviations = self.abbreviations(&header)?;
        let mut entries = header.entries(&abbreviations);
        let root = entries.next_dfs()?.ok_or(Stop::Damaged)?;
        if let Some(AttributeValue::DebugLineRef(offset)) = root.attr_value(gimli::DW_AT_stmt_list) {
            let bytes = self.line_head_bytes(offset).ok_or(Stop::Damaged)?;
            if bytes > MAX_LINE_HEAD_BYTES {
                return Err(self.meter.too_much());
            }
            self.meter.take(bytes)?;
        }
        Ok(Unit::new_with_abbreviations(self.dwarf, header, abbreviations)?)
    }

    /// The unit that contains an offset of `.debug_info`, to look up a name there.
    pub(super) fn holding(&mut self, offset: usize) -> Result<Rc<Unit<Reader<'a>>>, Stop> {
        let above = self.offsets.partition_point(|&start| start <= offset);
        let start = *above.checked_sub(1).and_then(|at| self.offsets.get(at)).ok_or(Stop::Damaged)?;
        if let Some((_, unit)) = self.kept.iter().find(|(kept, _)| *kept == start) {
            return Ok(Rc::clone(unit));
        }
        self.meter.take(UNIT_STEPS)?;
        let header = self.header(start)?;
        let unit = Rc::new(Unit { line_program: None, ..self.unit(header)? });
        self.kept_bytes = self.kept_bytes.saturating_add(self.table.as_ref().map_or(0, |table| table.bytes));
        if self.kept_bytes > MAX_KEPT_BYTES {
            self.kept.clear();
            self.kept_bytes = 0;
        }
        self.kept.push((start, Rc::clone(&unit)));
        Ok(unit)
    }

    fn abbreviations(&mut self, header: &UnitHeader<Reader<'a>>) -> Result<Arc<Abbreviations>, Stop> {
        let offset = header.debug_abbrev_offset();
        if let Some(table) = self.table.as_ref().filter(|table| table.offset == offset) {
            return Ok(Arc::clone(&table.parsed));
        }
        let section = self.dwarf.debug_abbrev.reader().slice();
        let bytes = table_bytes(section, offset.0, MAX_TABLE_BYTES).ok_or_else(|| self.meter.too_much())?;
        self.meter.take(bytes as u64)?;
        let parsed = Arc::new(self.dwarf.debug_abbrev.abbreviations(offset)?);
        self.table = Some(Table { offset, bytes, parsed: Arc::clone(&parsed) });
        Ok(parsed)
    }

    /// Size of a line program's header, including file names.
    ///
    /// # Sources
    /// DWARF 5 §6.2.4: `unit_length`, `version`, from version 5 on two sizes, `header_length`.
    fn line_head_bytes(&self, offset: DebugLineOffset) -> Option<u64> {
        use gimli::Reader as _;
        let mut reader = *self.dwarf.debug_line.reader();
        reader.skip(offset.0).ok()?;
        let (_, format) = reader.read_initial_length().ok()?;
        if reader.read_u16().ok()? >= 5 {
            reader.skip(2).ok()?;
        }
        reader.read_length(format).ok().map(|bytes| bytes as u64)
    }
}
