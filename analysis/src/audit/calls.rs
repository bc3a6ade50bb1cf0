//! Finds the functions that call, and those for aarch64 that set the frame pointer. Code is read once, in order, through a window.

use super::arch::{Calls, Context, Spec, Target, aarch64, x86_64};
use super::model::{FunctionKind, FunctionRecord, Machine};
use super::sections::{CodeSection, Sections};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

/// Bytes read at a time. A larger window would not fit the second-level cache.
const WINDOW_BYTES: usize = 256 << 10;
/// The most bytes of a function that are examined.
const MAX_FUNCTION_BYTES: usize = 8 << 20;

/// Knows which addresses are functions, code and data.
pub(super) struct Addresses {
    /// Starts of functions, ascending.
    starts: Vec<u64>,
    code: Vec<CodeSection>,
    data: Vec<Range<u64>>,
}

impl Addresses {
    pub(super) fn new(sections: &Sections<'_>, records: &[FunctionRecord]) -> Self {
        let starts = records.iter().map(|record| record.start).collect();
        Self { starts, code: sections.code.clone(), data: sections.data.clone() }
    }
}

impl Context for Addresses {
    fn at(&self, svma: u64) -> Target {
        let above = self.code.partition_point(|section| section.svma.start <= svma);
        let section = above.checked_sub(1).and_then(|index| self.code.get(index));
        if let Some(section) = section.filter(|section| section.svma.contains(&svma)) {
            let is_start = section.is_stubs || self.starts.binary_search(&svma).is_ok();
            return if is_start { Target::Start } else { Target::Code };
        }
        let above = self.data.partition_point(|range| range.start <= svma);
        let data = above.checked_sub(1).and_then(|index| self.data.get(index));
        if data.is_some_and(|data| data.contains(&svma)) { Target::Data } else { Target::Nothing }
    }
}

/// Reads the code of every function and determines whether it is a leaf, and where rows cannot tell, whether it keeps a frame
/// pointer. `visit` is called with the code of every
/// function that could be read completely.
///
/// Returns `false` if code could not be read to its end.
pub(super) fn read_functions<R: Read + Seek>(
    file: R,
    machine: Machine,
    spec: &Spec,
    addresses: &Addresses,
    records: &mut [FunctionRecord],
    mut visit: impl FnMut(&FunctionRecord, &[u8]),
) -> bool {
    let mut window = Window { file, bytes: Vec::new(), svma: 0..0 };
    let mut complete = true;
    let mut rest = records;
    for section in &addresses.code {
        let before = rest.partition_point(|record| record.start < section.svma.start);
        rest = rest.get_mut(before..).unwrap_or_default();
        let inside = rest.partition_point(|record| record.start < section.svma.end);
        let (records, after) = rest.split_at_mut(inside);
        rest = after;
        for record in records.iter_mut().filter(|record| is_code_of_interest(record.kind)) {
            let Some(code) = window.code(section, record, spec) else {
                complete = false;
                break;
            };
            if record.kind == FunctionKind::Function {
                record.leaf = is_leaf(machine, code, record.start, addresses);
                if machine == Machine::Aarch64 && record.framed && !aarch64::sets_frame_pointer(code) {
                    record.breaks_chain = record.breaks_chain.saturating_add(record.ok);
                    (record.framed, record.late, record.ok) = (false, false, 0);
                }
            }
            visit(record, code);
        }
    }
    complete
}

fn is_code_of_interest(kind: FunctionKind) -> bool {
    matches!(kind, FunctionKind::Function | FunctionKind::Part)
}

fn is_leaf(machine: Machine, code: &[u8], svma: u64, addresses: &Addresses) -> Option<bool> {
    let is_whole = code.len() < MAX_FUNCTION_BYTES;
    let calls = match machine {
        Machine::X86_64 => match x86_64::calls(code, svma, addresses) {
            Calls::Unclear => x86_64::decoded_calls(code, svma),
            clear => clear == Calls::Yes,
        },
        Machine::Aarch64 => aarch64::calls(code) == Calls::Yes,
    };
    (calls || is_whole).then_some(!calls)
}

/// Part of a section, in memory.
struct Window<R> {
    file: R,
    bytes: Vec<u8>,
    svma: Range<u64>,
}

impl<R: Read + Seek> Window<R> {
    /// The code of a function, cut to [`MAX_FUNCTION_BYTES`]; `None` if it cannot be read.
    fn code(&mut self, section: &CodeSection, record: &FunctionRecord, spec: &Spec) -> Option<&[u8]> {
        let len = usize::try_from(record.len).ok()?.min(MAX_FUNCTION_BYTES);
        let end = record.start.checked_add(len as u64)?;
        if record.start < self.svma.start || end > self.svma.end {
            self.fill(section, record.start, len.saturating_add(spec.longest_call).max(WINDOW_BYTES))?;
        }
        let offset = usize::try_from(record.start.checked_sub(self.svma.start)?).ok()?;
        self.bytes.get(offset..offset.checked_add(len)?)
    }

    fn fill(&mut self, section: &CodeSection, start: u64, wanted: usize) -> Option<()> {
        let left = usize::try_from(section.svma.end.checked_sub(start)?).unwrap_or(usize::MAX);
        let len = wanted.min(left);
        let offset = section.file_offset.checked_add(start.checked_sub(section.svma.start)?)?;
        self.svma = 0..0;
        self.bytes.resize(len, 0);
        self.file.seek(SeekFrom::Start(offset)).ok()?;
        self.file.read_exact(&mut self.bytes).ok()?;
        self.svma = start..start.checked_add(len as u64)?;
        Some(())
    }
}
