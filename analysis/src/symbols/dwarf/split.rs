//! Split DWARF: units whose functions are in a file of their own (`.dwo`), or in one file for the whole program
//! (`.dwp`).
//!
//! For such a unit the program has a skeleton, with the ranges of its code, its addresses and its lines.
//!
//! # Sources
//! DWARF 5 §7.3.2 and appendix F; before version 5 GNU's extension (`DW_AT_GNU_dwo_name`).

use super::functions::Both;
use super::meter::{Meter, Stop};
use super::sections;
use super::units::{Reader, Units};
use crate::address_space::FileIx;
use crate::modules::{ElfFile, ModuleTable};
use gimli::{Dwarf, DwarfPackageSections, DwarfSections, DwoId, EndianSlice, RunTimeEndian, SectionId, Unit, UnitRef};
use std::cell::OnceCell;
use std::rc::Rc;

/// The most bytes of the sections of one file, uncompressed.
const MAX_BYTES: u64 = 96 << 20;

/// The files of a module's split units.
pub(in crate::symbols) struct SplitFiles<'m> {
    modules: &'m ModuleTable<'m>,
    module: FileIx,
    endian: RunTimeEndian,
    package: OnceCell<Option<DwarfPackageSections<Vec<u8>>>>,
}

impl<'m> SplitFiles<'m> {
    pub(in crate::symbols) fn new(modules: &'m ModuleTable<'m>, module: FileIx, endian: RunTimeEndian) -> Self {
        Self { modules, module, endian, package: OnceCell::new() }
    }

    /// Runs `find` on the split unit of a skeleton in `main`; `None` if no file has the unit.
    pub(super) fn enter<'a, T>(
        &self,
        main: &Dwarf<Reader<'a>>,
        skeleton: UnitRef<'_, Reader<'a>>,
        id: DwoId,
        meter: &Meter,
        find: impl for<'x> FnOnce(&mut Both<'_, 'x>, &Rc<Unit<Reader<'x>>>) -> Result<T, Stop>,
    ) -> Result<Option<T>, Stop> {
        if let Some(package) = self.package(meter) {
            let package = package.borrow(|bytes| self.reader(bytes), self.reader(&[]))?;
            if let Some(split) = package.find_cu(id, main)? {
                return enter(&split, skeleton.unit, id, meter, find);
            }
        }
        let Some(sections) = self.unit_file(skeleton, meter)? else { return Ok(None) };
        let mut split = sections.borrow(|bytes| self.reader(bytes));
        split.make_dwo(main);
        enter(&split, skeleton.unit, id, meter, find)
    }

    fn reader<'a>(&self, bytes: &'a [u8]) -> Reader<'a> {
        EndianSlice::new(bytes, self.endian)
    }

    fn package(&self, meter: &Meter) -> Option<&DwarfPackageSections<Vec<u8>>> {
        let read = || {
            let file = self.modules.open_package(self.module)?;
            let mut left_bytes = MAX_BYTES;
            DwarfPackageSections::load(|id| section(&file, id, &mut left_bytes, meter)).ok()
        };
        self.package.get_or_init(read).as_ref()
    }

    fn unit_file(
        &self,
        skeleton: UnitRef<'_, Reader<'_>>,
        meter: &Meter,
    ) -> Result<Option<DwarfSections<Vec<u8>>>, Stop> {
        let Some(name) = skeleton.dwo_name()? else { return Ok(None) };
        let name = skeleton.attr_string(name)?;
        let folder = skeleton.comp_dir.map(|folder| folder.slice()).unwrap_or_default();
        let Some(file) = self.modules.open_split(self.module, folder, name.slice()) else { return Ok(None) };
        let mut left_bytes = MAX_BYTES;
        DwarfSections::load(|id| section(&file, id, &mut left_bytes, meter)).map(Some)
    }
}

fn section(file: &ElfFile, id: SectionId, left_bytes: &mut u64, meter: &Meter) -> Result<Vec<u8>, Stop> {
    // The whole section: a package has offsets into each section, whether it is needed or not.
    let bytes = id.dwo_name().map_or(Ok(Vec::new()), |name| sections::section(file, name, left_bytes));
    let bytes = bytes.map_err(|_| meter.too_much())?;
    meter.take(bytes.len() as u64)?;
    Ok(bytes)
}

/// Runs `find` on the unit with the skeleton's id, if it is in the file.
fn enter<'x, T>(
    split: &Dwarf<Reader<'x>>,
    skeleton: &Unit<Reader<'x>>,
    id: DwoId,
    meter: &Meter,
    find: impl FnOnce(&mut Both<'_, 'x>, &Rc<Unit<Reader<'x>>>) -> Result<T, Stop>,
) -> Result<Option<T>, Stop> {
    let mut both = Both { main: Units::new(split, meter), shared: None };
    for offset in both.main.offsets() {
        let header = both.main.header(offset)?;
        let mut unit = both.main.unit(header)?;
        if unit.dwo_id == Some(id) {
            unit.copy_relocated_attributes(skeleton);
            return find(&mut both, &Rc::new(unit)).map(Some);
        }
    }
    Ok(None)
}
