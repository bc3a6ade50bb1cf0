//! Looks up files and lines of addresses with the line program of a unit, which is run once and not stored.

use super::meter::{Meter, Stop};
use super::units::Reader;
use gimli::UnitRef;

/// A line of a file, by its number in the line program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) file: u64,
    pub(super) line: u32,
}

/// The line of each of the wanted addresses, which must be ascending.
pub(super) fn lines(unit: UnitRef<'_, Reader<'_>>, wanted: &[u64], meter: &Meter) -> Result<Vec<Option<Line>>, Stop> {
    let mut found = vec![None; wanted.len()];
    let Some(program) = unit.line_program.clone() else { return Ok(found) };
    meter.take(program.header().raw_program_buf().len() as u64)?;
    let mut rows = program.rows();
    let (mut before, mut start): (Option<(u64, Option<Line>)>, _) = (None, None);
    while let Some((_, row)) = rows.next_row()? {
        // The sequence of a function that the linker discarded begins at 0 and may extend over other code.
        let is_discarded = *start.get_or_insert(row.address()) == 0;
        // A row covers the code up to the next row; of several for one address the last counts.
        if let Some((address, line)) = before
            && address < row.address()
            && !is_discarded
        {
            let within = super::functions::within(wanted, &gimli::Range { begin: address, end: row.address() });
            meter.take(within.len() as u64)?;
            for slot in found.get_mut(within).into_iter().flatten() {
                *slot = slot.or(line);
            }
        }
        let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
        let line = line.map(|line| Line { file: row.file_index(), line });
        before = (!row.end_sequence()).then_some((row.address(), line));
        start = start.filter(|_| !row.end_sequence());
    }
    Ok(found)
}

/// The most bytes of a path. If it is longer, its end is kept, which is more significant.
const MAX_PATH_BYTES: usize = 1024;

/// The path of a file, absolute if the unit has the compilation directory; only the end of a long path.
///
/// # Sources
/// DWARF 5 §6.2.4: folder 0 is the compilation directory, as in earlier versions, where it is not in the table.
pub(super) fn path(unit: UnitRef<'_, Reader<'_>>, number: u64) -> Option<Vec<u8>> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(number)?;
    let name = unit.attr_string(file.path_name()).ok()?;
    let in_table = (file.directory_index() != 0).then(|| file.directory(header)).flatten();
    let folder = in_table.and_then(|folder| unit.attr_string(folder).ok());
    let mut path: Vec<u8> = Vec::new();
    for part in [unit.comp_dir, folder, Some(name)].into_iter().flatten() {
        match part.slice() {
            [b'/', ..] => path.clear(),
            _ if path.is_empty() => {}
            _ => path.push(b'/'),
        }
        let start = part.slice().len().saturating_sub(MAX_PATH_BYTES);
        path.extend_from_slice(part.slice().get(start..).unwrap_or_default());
    }
    path.drain(..path.len().saturating_sub(MAX_PATH_BYTES));
    Some(path)
}
