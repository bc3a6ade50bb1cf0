//! Files and lines of some addresses, from the line program of a unit, which is run once and not kept.

use super::meter::{Meter, Stop};
use super::units::Reader;
use gimli::UnitRef;

/// A line of a file, by its number in the line program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) file: u64,
    pub(super) line: u32,
}

/// The line of each of the wanted addresses, which ascend.
pub(super) fn lines(unit: UnitRef<'_, Reader<'_>>, wanted: &[u64], meter: &Meter) -> Result<Vec<Option<Line>>, Stop> {
    let mut found = vec![None; wanted.len()];
    let Some(program) = unit.line_program.clone() else { return Ok(found) };
    meter.take(program.header().raw_program_buf().len() as u64)?;
    let mut rows = program.rows();
    let mut before: Option<(u64, Option<Line>)> = None;
    while let Some((_, row)) = rows.next_row()? {
        // A row speaks for the code up to the next; of several for one address the last does.
        if let Some((address, line)) = before
            && address < row.address()
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
    }
    Ok(found)
}

/// The path of a file, as the line program has it.
pub(super) fn file<'a>(unit: UnitRef<'_, Reader<'a>>, number: u64) -> Option<&'a [u8]> {
    let program = unit.line_program.as_ref()?;
    let name = program.header().file(number)?.path_name();
    Some(unit.attr_string(name).ok()?.slice())
}
