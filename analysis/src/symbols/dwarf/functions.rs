//! Finds the functions of a unit at some addresses, and functions inlined there.
//!
//! DIEs are read once from first to last to find functions, and those of each function at a wanted address once more to
//! find inlined functions. Only what is at a wanted address is kept.

use super::meter::{Meter, Stop};
use super::units::{Reader, Units};
use gimli::{Abbreviation, AttributeValue, EntriesRaw, Range, RangeListsOffset, Unit, UnitOffset, UnitRef};
use std::rc::Rc;

/// The most inline frames at one address; the deepest in rustc has about 60.
const MAX_INLINE_DEPTH: usize = 256;
/// The most references followed from a function to the DIE with its name.
const MAX_REFERENCES: usize = 16;
/// Steps per entry of a range list.
const RANGE_STEPS: u64 = 16;

/// A function at an address.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Function<'a> {
    pub(super) name: Option<&'a [u8]>,
    /// File, by its number in the unit's line program, and line of the call if it is inlined.
    pub(super) call: (Option<u64>, Option<u32>),
}

/// The functions at a wanted address: the function, then those inlined, innermost last. Empty if not known.
pub(super) type At<'a> = Vec<Function<'a>>;

/// The location of a DIE's code.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    low: Option<u64>,
    high: Option<u64>,
    bytes: Option<u64>,
    list: Option<RangeListsOffset<usize>>,
}

impl Place {
    fn note<'a>(&mut self, unit: UnitRef<'_, Reader<'a>>, attr: &gimli::Attribute<Reader<'a>>) -> Result<(), Stop> {
        let address = |value| match value {
            AttributeValue::Addr(address) => Ok::<_, Stop>(Some(address)),
            AttributeValue::DebugAddrIndex(index) => Ok(Some(unit.address(index)?)),
            _ => Ok(None),
        };
        match attr.name() {
            gimli::DW_AT_low_pc => self.low = address(attr.value())?,
            gimli::DW_AT_high_pc => match attr.value() {
                AttributeValue::Udata(bytes) => self.bytes = Some(bytes),
                value => self.high = address(value)?,
            },
            gimli::DW_AT_ranges => self.list = unit.attr_ranges_offset(attr.value())?,
            _ => {}
        }
        Ok(())
    }

    /// Calls `visit` with each range of code. Code that the linker discarded is at 0, where there is no code.
    fn ranges(
        &self,
        unit: UnitRef<'_, Reader<'_>>,
        meter: &Meter,
        mut visit: impl FnMut(Range) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut visit = |range: Range| if 0 < range.begin && range.begin < range.end { visit(range) } else { Ok(()) };
        if let Some(offset) = self.list {
            let mut list = unit.ranges(offset)?;
            while let Some(entry) = list.next_raw()? {
                meter.take(RANGE_STEPS)?;
                if let Some(range) = list.convert_raw(entry)? {
                    visit(range)?;
                }
            }
            return Ok(());
        }
        let end = self.high.or_else(|| Some(self.low?.wrapping_add(self.bytes?)));
        self.low.zip(end).map_or(Ok(()), |(begin, end)| visit(Range { begin, end }))
    }
}

/// Indices of the wanted addresses in a range.
pub(super) fn within(wanted: &[u64], range: &Range) -> std::ops::Range<usize> {
    wanted.partition_point(|&svma| svma < range.begin)..wanted.partition_point(|&svma| svma < range.end)
}

/// The wanted addresses, with their indices, at which a unit has code.
pub(super) fn of_unit(
    unit: UnitRef<'_, Reader<'_>>,
    wanted: &[(u64, usize)],
    meter: &Meter,
) -> Result<Vec<(u64, usize)>, Stop> {
    let mut entries = unit.entries();
    let root = entries.next_dfs()?.ok_or(Stop::Damaged)?;
    let mut place = Place::default();
    root.attrs().iter().try_for_each(|attr| place.note(unit, attr))?;
    let mut found = Vec::new();
    place.ranges(unit, meter, |range| {
        let from = wanted.partition_point(|&(svma, _)| svma < range.begin);
        let hits = wanted.iter().skip(from).take_while(|&&(svma, _)| svma < range.end);
        let before = found.len();
        found.extend(hits.copied());
        meter.take(found.len().saturating_sub(before) as u64)
    })?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The relevant attributes of a DIE.
#[derive(Debug, Clone, Default)]
struct Entry<'a> {
    place: Place,
    linkage_name: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
    /// The DIE that has the name.
    refers: Option<AttributeValue<Reader<'a>>>,
    call: (Option<u64>, Option<u32>),
}

impl<'a> Entry<'a> {
    fn read(
        unit: UnitRef<'_, Reader<'a>>,
        entries: &mut EntriesRaw<'_, Reader<'a>>,
        abbreviation: &Abbreviation,
    ) -> Result<Self, Stop> {
        let mut entry = Self::default();
        for &spec in abbreviation.attributes() {
            let attr = entries.read_attribute(spec)?;
            entry.place.note(unit, &attr)?;
            let text = || unit.attr_string(attr.value()).ok().map(|text| text.slice());
            match attr.name() {
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => entry.linkage_name = text(),
                gimli::DW_AT_name => entry.name = text(),
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => entry.refers = Some(attr.value()),
                gimli::DW_AT_call_file => {
                    // Before version 5, file 0 means none.
                    let is_file = |&file: &u64| file > 0 || unit.header.version() >= 5;
                    entry.call.0 = attr.udata_value().filter(is_file);
                }
                gimli::DW_AT_call_line => {
                    entry.call.1 =
                        attr.udata_value().and_then(|line| u32::try_from(line).ok()).filter(|&line| line > 0);
                }
                _ => {}
            }
        }
        Ok(entry)
    }

    fn own_name(&self) -> Option<&'a [u8]> {
        self.linkage_name.or(self.name)
    }
}

/// The units of a file, and of its supplementary file (dwz).
pub(super) struct Both<'d, 'a> {
    pub(super) main: Units<'d, 'a>,
    pub(super) shared: Option<Units<'d, 'a>>,
}

impl<'a> Both<'_, 'a> {
    /// The name of a DIE in a unit of the main file; it may be at a DIE elsewhere.
    fn name(&mut self, unit: &Rc<Unit<Reader<'a>>>, entry: &Entry<'a>) -> Option<&'a [u8]> {
        let (mut unit, mut entry, mut is_shared) = (Rc::clone(unit), entry.clone(), false);
        for _ in 0..MAX_REFERENCES {
            if let Some(name) = entry.own_name() {
                return Some(name);
            }
            is_shared |= matches!(entry.refers, Some(AttributeValue::DebugInfoRefSup(_)));
            let units = if is_shared { self.shared.as_mut()? } else { &mut self.main };
            let offset = match entry.refers? {
                AttributeValue::UnitRef(offset) => offset,
                AttributeValue::DebugInfoRef(offset) | AttributeValue::DebugInfoRefSup(offset) => {
                    unit = units.holding(offset.0).ok()?;
                    offset.to_unit_offset(&unit.header)?
                }
                _ => return None,
            };
            let unit = UnitRef::new(units.dwarf, &unit);
            let mut entries = unit.entries_raw(Some(offset)).ok()?;
            let abbreviation = entries.read_abbreviation().ok()??;
            entry = Entry::read(unit, &mut entries, abbreviation).ok()?;
        }
        None
    }
}

/// Finds the functions at some addresses in a unit.
pub(super) fn find<'a>(
    both: &mut Both<'_, 'a>,
    unit: &Rc<Unit<Reader<'a>>>,
    wanted: &[u64],
    meter: &Meter,
) -> Result<Vec<At<'a>>, Stop> {
    meter.take(unit.header.length_including_self() as u64)?;
    let mut search = Search { both, unit, meter, wanted, found: vec![Vec::new(); wanted.len()] };
    let dwarf = search.both.main.dwarf;
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() {
        let offset = entries.next_offset();
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if abbreviation.tag() != gimli::DW_TAG_subprogram {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        let entry = Entry::read(UnitRef::new(dwarf, unit), &mut entries, abbreviation)?;
        if search.take(&entry, 0)? {
            search.read_inlined(offset)?;
        }
    }
    Ok(search.found)
}

struct Search<'s, 'd, 'a> {
    both: &'s mut Both<'d, 'a>,
    unit: &'s Rc<Unit<Reader<'a>>>,
    meter: &'s Meter,
    wanted: &'s [u64],
    found: Vec<At<'a>>,
}

impl<'a> Search<'_, '_, 'a> {
    fn unit(&self) -> UnitRef<'_, Reader<'a>> {
        UnitRef::new(self.both.main.dwarf, self.unit)
    }

    /// Adds a function, inlined `depth` levels deep, at each wanted address in its code that has none at that depth
    /// yet. Returns whether there was one.
    fn take(&mut self, entry: &Entry<'a>, depth: usize) -> Result<bool, Stop> {
        let mut hits = Vec::new();
        entry.place.ranges(self.unit(), self.meter, |range| {
            let within = within(self.wanted, &range);
            self.meter.take(within.len() as u64)?;
            hits.extend(within.filter(|&at| self.found.get(at).is_some_and(|at| at.len() == depth)));
            Ok(())
        })?;
        if hits.is_empty() {
            return Ok(false);
        }
        let function = Function { name: self.both.name(self.unit, entry), call: entry.call };
        for hit in hits {
            if let Some(at) = self.found.get_mut(hit).filter(|at| at.len() == depth) {
                at.push(function);
            }
        }
        Ok(true)
    }

    /// Reads the functions inlined into the function at an offset.
    fn read_inlined(&mut self, offset: UnitOffset) -> Result<(), Stop> {
        let unit = self.unit;
        let mut entries = unit.entries_raw(Some(offset))?;
        let depth = entries.next_depth();
        if let Some(abbreviation) = entries.read_abbreviation()? {
            entries.skip_attributes(abbreviation.attributes())?;
        }
        // The tree depths of the inlined functions that enclose the next DIE.
        let mut outer: Vec<isize> = Vec::new();
        while !entries.is_empty() && entries.next_depth() > depth {
            let (own_depth, before) = (entries.next_depth(), entries.next_offset());
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            while outer.last().is_some_and(|&outer| outer >= own_depth) {
                outer.pop();
            }
            match abbreviation.tag() {
                gimli::DW_TAG_inlined_subroutine if outer.len() < MAX_INLINE_DEPTH => {
                    outer.push(own_depth);
                    let entry = Entry::read(self.unit(), &mut entries, abbreviation)?;
                    self.take(&entry, outer.len())?;
                }
                // A nested function, which is not inlined here.
                gimli::DW_TAG_subprogram => {
                    entries.skip_attributes(abbreviation.attributes())?;
                    while !entries.is_empty() && entries.next_depth() > own_depth {
                        if let Some(abbreviation) = entries.read_abbreviation()? {
                            entries.skip_attributes(abbreviation.attributes())?;
                        }
                    }
                }
                _ => entries.skip_attributes(abbreviation.attributes())?,
            }
            self.meter.take(entries.next_offset().0.saturating_sub(before.0) as u64)?;
        }
        Ok(())
    }
}
