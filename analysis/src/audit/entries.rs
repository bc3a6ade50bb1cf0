//! FDEs: their code, their rows, and the meaning of the rows.

use super::arch::{Reader, Row, Shape, Spec, aarch64, x86_64};
use super::model::{ByteRange, Class, FunctionKind, FunctionRecord, Machine, Remark};
use super::sections::{Bytes, CodeSection, Sections};
use gimli::{
    BaseAddresses, CommonInformationEntry, FrameDescriptionEntry, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindOffset, UnwindSection, Vendor,
};
use rustc_hash::FxHashMap;

/// Longest CIE that is evaluated. Real ones have less than 100 bytes. Every FDE that refers to one evaluates it again,
/// so this bounds the work per 16 bytes of a hostile file.
const MAX_CIE_BYTES: u64 = 512;

/// A frame set up more than this many bytes after a function's start is late. `endbr64`, spills of argument registers
/// and the two instructions of a frame take less.
const LATE_BYTES: u64 = 16;

/// The functions of a file, ascending and disjoint, and remarks on what could not be read.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) records: Vec<FunctionRecord>,
    /// Code by class, ascending; only if asked for.
    pub(super) ranges: Vec<ByteRange>,
    pub(super) remarks: Vec<Remark>,
}

impl Found {
    /// Adds the functions of `.debug_frame` that share no code with those of `.eh_frame`; returns the bytes of their code.
    pub(super) fn add_debug_frame(
        &mut self,
        sections: &Sections<'_>,
        bytes: Bytes<'_>,
        spec: &Spec,
        keep_ranges: bool,
    ) -> u64 {
        let mut section = gimli::DebugFrame::new(bytes.bytes, LittleEndian);
        section.set_address_size(spec.word_bytes);
        section.set_vendor(vendor(sections.machine));
        let mut reading = Reading::new(&section, bases(sections, bytes), sections, spec, true, keep_ranges);
        reading.known = &self.records;
        let mut more = reading.run();
        let added = more.records.iter().fold(0, |sum: u64, record| sum.saturating_add(record.len));
        // If none of its rows are used, their mistakes do not matter.
        if added > 0 || self.records.is_empty() {
            self.remarks.append(&mut more.remarks);
            self.records.append(&mut more.records);
            self.records.sort_unstable_by_key(|record| record.start);
            self.ranges.append(&mut more.ranges);
            self.ranges.sort_unstable_by_key(|range| range.start);
        }
        added
    }
}

/// Reads the FDEs of `.eh_frame`.
pub(super) fn eh_frame(sections: &Sections<'_>, bytes: Bytes<'_>, spec: &Spec, keep_ranges: bool) -> Found {
    let mut section = gimli::EhFrame::new(bytes.bytes, LittleEndian);
    section.set_address_size(spec.word_bytes);
    section.set_vendor(vendor(sections.machine));
    Reading::new(&section, bases(sections, bytes), sections, spec, false, keep_ranges).run()
}

fn vendor(machine: Machine) -> Vendor {
    match machine {
        Machine::X86_64 => Vendor::Default,
        Machine::Aarch64 => Vendor::AArch64,
    }
}

fn bases(sections: &Sections<'_>, bytes: Bytes<'_>) -> BaseAddresses {
    let mut bases = BaseAddresses::default().set_eh_frame(bytes.svma);
    if let Some(text) = sections.text_svma {
        bases = bases.set_text(text);
    }
    if let Some(got) = sections.got_svma {
        bases = bases.set_got(got);
    }
    bases
}

/// The code of one FDE.
#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u64,
    end: u64,
    offset: usize,
}

type Cie<'a> = CommonInformationEntry<Reader<'a>>;

struct Reading<'s, 'a, S> {
    section: &'s S,
    bases: BaseAddresses,
    code: &'s [CodeSection],
    machine: Machine,
    spec: &'s Spec,
    is_debug_frame: bool,
    keep_ranges: bool,
    /// Functions whose code is left out, ascending and disjoint.
    known: &'s [FunctionRecord],
    cies: FxHashMap<usize, Option<Cie<'a>>>,
    n_bad: u64,
    n_overlaps: u64,
    found: Found,
}

impl<'s, 'a, S: UnwindSection<Reader<'a>>> Reading<'s, 'a, S> {
    fn new(
        section: &'s S,
        bases: BaseAddresses,
        sections: &'s Sections<'_>,
        spec: &'s Spec,
        is_debug_frame: bool,
        keep_ranges: bool,
    ) -> Self {
        let (code, machine) = (&sections.code, sections.machine);
        let (cies, found) = (FxHashMap::default(), Found::default());
        let (n_bad, n_overlaps, known) = (0, 0, &[][..]);
        Self { section, bases, code, machine, spec, is_debug_frame, keep_ranges, known, cies, n_bad, n_overlaps, found }
    }

    fn run(mut self) -> Found {
        let mut entries = self.scan();
        entries.sort_unstable_by_key(|entry| (entry.start, entry.end, entry.offset));
        self.found.records.reserve_exact(entries.len());
        let mut context = UnwindContext::new();
        let mut at = 0;
        for entry in entries {
            if entry.start < at {
                self.n_overlaps += 1;
            }
            if entry.end <= at {
                continue;
            }
            self.evaluate(entry, at, &mut context);
            at = entry.end;
        }
        for (n, remark) in
            [(self.n_bad, Remark::BadEntries(self.n_bad)), (self.n_overlaps, Remark::Overlaps(self.n_overlaps))]
        {
            if n > 0 {
                self.found.remarks.push(remark);
            }
        }
        self.found
    }

    /// The FDEs that cover code, in the section's order. A terminator in the middle is skipped.
    fn scan(&mut self) -> Vec<Entry> {
        let n_bytes = self.section.section().slice().len();
        let mut entries = Vec::new();
        let mut offset = 0;
        while let Some((after, len)) = initial_length(self.section.section().slice(), offset) {
            if len == 0 {
                offset = after;
                continue;
            }
            let end = usize::try_from(len).ok().and_then(|len| after.checked_add(len)).filter(|end| *end <= n_bytes);
            let Some(end) = end else {
                self.n_bad += 1;
                break;
            };
            if !self.is_cie(after, len) {
                match self.parse(offset) {
                    Some(fde) => entries.extend(self.covered(offset, &fde)),
                    None => self.n_bad += 1,
                }
            }
            offset = end;
        }
        entries
    }

    /// Whether the entry whose length field ends at `after` is a CIE.
    ///
    /// # Sources
    /// LSB 5.0 Core §10.6.1 (`.eh_frame`: the field is 0); DWARF 5 §6.4.1 (`.debug_frame`: all ones, 8 bytes wide in
    /// 64-bit DWARF).
    fn is_cie(&self, after: usize, len: u64) -> bool {
        let field = self.section.section().slice().get(after..).unwrap_or_default();
        let short = field.first_chunk().map(|field| u32::from_le_bytes(*field));
        match self.is_debug_frame {
            false => short == Some(0),
            true if len > u64::from(u32::MAX) => field.first_chunk() == Some(&[0xff; 8]),
            true => short == Some(u32::MAX),
        }
    }

    fn parse(&mut self, offset: usize) -> Option<FrameDescriptionEntry<Reader<'a>>> {
        let partial = self.section.partial_fde_from_offset(&self.bases, offset.into()).ok()?;
        let cie_offset = partial.cie_offset();
        let cie = self.cies.entry(UnwindOffset::into(cie_offset)).or_insert_with(|| {
            let bytes = self.section.section().slice();
            let (_, len) = initial_length(bytes, UnwindOffset::into(cie_offset))?;
            if len > MAX_CIE_BYTES {
                return None;
            }
            self.section.cie_from_offset(&self.bases, cie_offset).ok()
        });
        let cie = cie.as_ref()?;
        partial.parse(|_, _, _| Ok(cie.clone())).ok()
    }

    /// The FDE, if it covers code of the file that is not known. For discarded code the linker leaves FDEs without bytes, or
    /// with address 0.
    fn covered(&self, offset: usize, fde: &FrameDescriptionEntry<Reader<'a>>) -> Option<Entry> {
        let (start, end) = (fde.initial_address(), fde.end_address());
        let section = self.section_of(start)?;
        let end = end.min(section.svma.end);
        let at = self.known.partition_point(|known| known.start.saturating_add(known.len) <= start);
        let is_known = self.known.get(at).is_some_and(|known| known.start < end);
        (start < end && !is_known).then_some(Entry { start, end, offset })
    }

    fn section_of(&self, svma: u64) -> Option<&'s CodeSection> {
        let above = self.code.partition_point(|section| section.svma.start <= svma);
        self.code.get(above.checked_sub(1)?).filter(|section| section.svma.contains(&svma))
    }

    /// Evaluates the rows of an FDE; bytes below `from` have been counted with another.
    fn evaluate(&mut self, entry: Entry, from: u64, context: &mut UnwindContext<usize>) {
        let start = entry.start.max(from);
        let Some(fde) = self.parse(entry.offset) else { return };
        let is_stubs = self.section_of(entry.start).is_some_and(|section| section.is_stubs);
        let mut builder = Builder::new(start, entry, self.keep_ranges);
        if fde.is_signal_trampoline() {
            builder.kind = FunctionKind::Signal;
        }
        let complete = self.rows(&fde, context, &mut builder);
        if complete.is_none() {
            self.n_bad += 1;
            builder.kind = FunctionKind::Unreadable;
        } else if is_stubs {
            builder.kind = FunctionKind::Stubs;
        }
        self.found.records.push(builder.finish(&mut self.found.ranges));
    }

    /// Passes every row to the builder; `None` if one cannot be evaluated.
    fn rows(
        &self,
        fde: &FrameDescriptionEntry<Reader<'a>>,
        context: &mut UnwindContext<usize>,
        builder: &mut Builder,
    ) -> Option<()> {
        let mut table = fde.rows(self.section, &self.bases, context).ok()?;
        while let Some(row) = table.next_row().ok()? {
            let row = Row { row, section: self.section };
            let shape = match self.machine {
                Machine::X86_64 => x86_64::shape(&row),
                Machine::Aarch64 => aarch64::shape(&row),
            };
            builder.add(&row, shape, self.spec);
        }
        Some(())
    }
}

/// Sums up the rows of one FDE.
struct Builder {
    entry: Entry,
    kind: FunctionKind,
    is_first: bool,
    /// Start of the bytes that are not counted yet.
    at: u64,
    /// Start of the bytes after a push of the frame pointer, while the next row is still to decide on them.
    pushed: Option<u64>,
    ranges: Option<Vec<ByteRange>>,
    record: FunctionRecord,
}

impl Builder {
    fn new(start: u64, entry: Entry, keep_ranges: bool) -> Self {
        let record = FunctionRecord {
            start,
            len: entry.end.saturating_sub(start),
            kind: FunctionKind::Function,
            leaf: None,
            framed: false,
            late: false,
            realigned: false,
            saves_others: false,
            ok: 0,
            drops_caller: 0,
            breaks_chain: 0,
        };
        let kind = FunctionKind::Function;
        let ranges = keep_ranges.then(Vec::new);
        Self { entry, kind, is_first: true, at: start, pushed: None, ranges, record }
    }

    /// Adds a row. The bytes after a push are only counted with the next row, which shows whether the push set up a frame.
    fn add<'a, S: UnwindSection<Reader<'a>>>(&mut self, row: &Row<'_, '_, S>, shape: Shape, spec: &Spec) {
        let start = row.row.start_address();
        if self.is_first {
            self.is_first = false;
            self.judge_first(row, shape, spec);
        }
        let frame_begins = matches!(shape, Shape::Framed | Shape::Realigned);
        if frame_begins && !self.record.framed {
            self.record.framed = true;
            self.record.late = start.saturating_sub(self.entry.start) > LATE_BYTES;
        }
        self.record.realigned |= shape == Shape::Realigned;
        if shape == Shape::Stub {
            self.kind = FunctionKind::Stubs;
        }
        self.record.saves_others = self.record.saves_others
            || row
                .row
                .registers()
                .any(|(register, rule)| spec.others.contains(&register.0) && matches!(rule, RegisterRule::Offset(_)));
        self.settle_pushed(start, frame_begins);
        if shape == Shape::Pushed {
            self.count_until(start, Shape::Pushed);
            self.pushed = Some(start.max(self.at));
        }
        let end = row.row.end_address().min(self.entry.end);
        if self.pushed.is_none() {
            self.count_until(end, shape);
        } else {
            self.at = self.at.max(end);
        }
    }

    /// Decides whether the FDE starts a function: the return address is on top of the stack and nothing is saved.
    fn judge_first<'a, S: UnwindSection<Reader<'a>>>(&mut self, row: &Row<'_, '_, S>, shape: Shape, spec: &Spec) {
        if self.kind != FunctionKind::Function {
            return;
        }
        let is_start = row.cfa() == Some((spec.sp, spec.entry_cfa)) && !saves_any(row);
        self.kind = match shape {
            Shape::Root => FunctionKind::Root,
            Shape::Stub => FunctionKind::Stubs,
            _ if is_start => FunctionKind::Function,
            _ => FunctionKind::Part,
        };
    }

    /// Classifies the bytes after a push: still the caller's register if the frame was set up next, otherwise saved.
    fn settle_pushed(&mut self, next: u64, frame_begins: bool) {
        let Some(start) = self.pushed.take() else { return };
        self.at = start;
        self.count_until(next, if frame_begins { Shape::DropsCaller } else { Shape::Breaks });
    }

    fn count_until(&mut self, end: u64, shape: Shape) {
        let end = end.min(self.entry.end);
        let n = end.saturating_sub(self.at);
        if n == 0 {
            return;
        }
        let class = match shape {
            Shape::Framed | Shape::Realigned | Shape::Root => Class::Ok,
            Shape::DropsCaller | Shape::Stub => Class::DropsCaller,
            Shape::Pushed | Shape::Breaks => Class::BreaksChain,
        };
        *match class {
            Class::Ok => &mut self.record.ok,
            Class::DropsCaller => &mut self.record.drops_caller,
            Class::BreaksChain => &mut self.record.breaks_chain,
        } += n;
        if let Some(ranges) = &mut self.ranges {
            match ranges.last_mut() {
                Some(last) if last.class == class && last.end == self.at => last.end = end,
                _ => ranges.push(ByteRange { start: self.at, end, class }),
            }
        }
        self.at = end;
    }

    fn finish(mut self, ranges: &mut Vec<ByteRange>) -> FunctionRecord {
        self.settle_pushed(self.entry.end, false);
        if self.kind == FunctionKind::Unreadable {
            // Nothing is known about rows that could not be evaluated: assume that the walk breaks.
            self.count_until(self.entry.end, Shape::Breaks);
        }
        ranges.extend(self.ranges.into_iter().flatten());
        FunctionRecord { kind: self.kind, ..self.record }
    }
}

/// Whether a row saves any register other than the return address.
fn saves_any<'a, S: UnwindSection<Reader<'a>>>(row: &Row<'_, '_, S>) -> bool {
    const X86_64_RA: Register = Register(16);
    row.row.registers().any(|(register, rule)| {
        *register != X86_64_RA && !matches!(rule, RegisterRule::SameValue | RegisterRule::Undefined)
    })
}

/// The length field at `offset`: (offset of its end, value).
///
/// # Sources
/// DWARF 5 §7.2.2.
fn initial_length(bytes: &[u8], offset: usize) -> Option<(usize, u64)> {
    let short = u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?);
    let after = offset.checked_add(4)?;
    if short != u32::MAX {
        return Some((after, u64::from(short)));
    }
    let long = u64::from_le_bytes(*bytes.get(after..)?.first_chunk()?);
    Some((after.checked_add(8)?, long))
}
