//! Audits one file.

use super::arch::spec;
use super::calls::{Addresses, read_functions};
use super::check::Check;
use super::entries::{self, Found};
use super::model::{
    ByteRange, Class, Code, CodeTally, FileAudit, FunctionKind, FunctionRecord, Functions, Machine, Refusal, Remark,
    Source,
};
use super::producer;
use super::sections::{Bytes, CodeSection, Sections};
use super::sframe;
use object::read::ReadCache;
use std::io::{Read, Seek};

/// A gap between functions shorter than this can be padding; 64 bytes is the largest alignment compilers here use.
const MAX_PADDING_BYTES: u64 = 64;
/// Smallest alignment of a function for which the gap before it counts as padding.
const LEAST_ALIGNMENT: u64 = 16;

/// Fewest leaf functions to draw a conclusion from.
const MIN_LEAVES: u64 = 20;

/// Less code than this is what the linker adds to every file (`_init`, `_fini`), and does not warrant a remark.
const MIN_CODE_BYTES: u64 = 1024;

/// What to examine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuditOptions {
    /// Also decode every function, and compare (x86-64; takes ten times as long).
    pub disassemble: bool,
    /// Keep the functions one by one.
    pub records: bool,
    /// Keep the class of every byte.
    pub ranges: bool,
}

/// Audits one file: reads its headers, its unwind information, and its code once.
///
/// Reads stay within what the file has; memory is bounded by the size of its unwind information (at most 128 MB).
///
/// # Errors
/// [`Refusal`] says why a file is not audited. Anything merely missing or odd is a [`Remark`].
pub fn examine<R: Read + Seek>(file: R, options: AuditOptions) -> Result<FileAudit, Refusal> {
    let cache = ReadCache::new(file);
    let sections = Sections::read(&cache)?;
    let (source, mut found) = rows(&sections, options);
    let addresses = Addresses::new(&sections, &found.records);
    let (producers, debug_remark) = producer::producers(&cache, &sections.debug);
    let mut remarks = std::mem::take(&mut found.remarks);
    remarks.extend(debug_remark);
    let mut audit = FileAudit {
        machine: sections.machine,
        build_id: sections.build_id,
        tally: CodeTally {
            sizes: sections.sizes,
            sframe_code: sections
                .sframe
                .map_or(0, |section| sframe::covered(section, &sections.code, sections.machine)),
            ..CodeTally::default()
        },
        source,
        sframe: sections.sframe.map(|section| sframe::version(section.bytes)),
        go: sections.go,
        compilers: sections.compilers,
        producers,
        disassembled: None,
        records: Vec::new(),
        ranges: Vec::new(),
        remarks: sections.remarks,
    };
    audit.remarks.append(&mut remarks);
    let code = sections.code;
    read_code(cache.into_inner(), options, &addresses, &mut found, &mut audit);
    audit.tally.functions = count_functions(&found.records);
    audit.tally.code = count_code(&code, &found.records, audit.go);
    conclude(&mut audit);
    if options.records {
        audit.records = found.records;
    }
    if options.ranges {
        audit.ranges = found.ranges;
    }
    Ok(audit)
}

fn rows(sections: &Sections<'_>, options: AuditOptions) -> (Source, Found) {
    let spec = spec(sections.machine);
    let keep_ranges = options.ranges || options.disassemble && sections.machine == Machine::X86_64;
    let mut found = match sections.eh_frame {
        Some(bytes) => entries::eh_frame(sections, bytes, spec, keep_ranges),
        None => Found::default(),
    };
    let has_eh_frame = !found.records.is_empty();
    // Go's has no rules for the frame pointer, though its code keeps one.
    let added = match sections.debug_frame.as_ref().filter(|_| !sections.go) {
        // Nothing in it is relative to its own address: it is not loaded.
        Some(bytes) => found.add_debug_frame(sections, Bytes { svma: 0, bytes }, spec, keep_ranges),
        None => 0,
    };
    match (has_eh_frame, added) {
        (true, 0) => (Source::EhFrame, found),
        (true, added) => {
            found.remarks.push(Remark::OnlyDebugFrame(added));
            (Source::EhFrame, found)
        }
        (false, 0) => (Source::None, found),
        (false, _) => (Source::DebugFrame, found),
    }
}

fn read_code<R: Read + Seek>(
    file: R,
    options: AuditOptions,
    addresses: &Addresses,
    found: &mut Found,
    audit: &mut FileAudit,
) {
    let spec = spec(audit.machine);
    let mut check = (options.disassemble && audit.machine == Machine::X86_64).then(|| Check::new(&found.ranges));
    let complete = read_functions(file, audit.machine, spec, addresses, &mut found.records, |record, code| {
        if let Some(check) = &mut check {
            check.function(record, code);
        }
    });
    audit.disassembled = check.map(|check| check.counts());
    unframe_ranges(&found.records, &mut found.ranges);
    if !complete {
        audit.remarks.push(Remark::CodeCut);
    }
}

/// Makes the classes of bytes those of their functions that keep no frame pointer, by their code.
fn unframe_ranges(records: &[FunctionRecord], ranges: &mut [ByteRange]) {
    for range in ranges.iter_mut().filter(|range| range.class == Class::Ok) {
        let above = records.partition_point(|record| record.start <= range.start);
        let record = above.checked_sub(1).and_then(|at| records.get(at));
        if record.is_some_and(|record| record.ok == 0) {
            range.class = Class::BreaksChain;
        }
    }
}

fn count_functions(records: &[FunctionRecord]) -> Functions {
    let mut functions = Functions::default();
    for record in records {
        match record.kind {
            FunctionKind::Function => functions += count_function(record),
            FunctionKind::Part => functions.parts += 1,
            FunctionKind::Stubs => functions.stubs += 1,
            FunctionKind::Root | FunctionKind::Signal | FunctionKind::Unreadable => functions.others += 1,
        }
    }
    functions
}

fn count_function(record: &FunctionRecord) -> Functions {
    let framed = u64::from(record.framed);
    let if_leaf = |leaf: bool| u64::from(record.leaf == Some(leaf));
    Functions {
        total: 1,
        framed,
        non_leaf: if_leaf(false),
        non_leaf_framed: if_leaf(false) * framed,
        leaf: if_leaf(true),
        leaf_framed: if_leaf(true) * framed,
        unread: u64::from(record.leaf.is_none()),
        late: u64::from(record.late),
        realigned: u64::from(record.realigned),
        saves_others: u64::from(record.saves_others),
        ..Functions::default()
    }
}

/// Bytes of code by what a frame-pointer walk does. Every byte of an executable section is counted once.
fn count_code(sections: &[CodeSection], records: &[FunctionRecord], go: bool) -> Code {
    let mut code = Code::default();
    let mut records = records.iter().peekable();
    for section in sections {
        code.executable = code.executable.saturating_add(section.svma.end - section.svma.start);
        let mut at = section.svma.start;
        while let Some(record) = records.next_if(|record| record.start < section.svma.end) {
            if record.start < section.svma.start {
                continue;
            }
            let gap = record.start.saturating_sub(at);
            if gap < MAX_PADDING_BYTES && record.start % LEAST_ALIGNMENT == 0 {
                code.padding += gap;
            } else {
                uncovered(&mut code, gap, go);
            }
            code.ok += record.ok;
            code.drops_caller += record.drops_caller;
            code.breaks_chain += record.breaks_chain;
            // Rows may end before their FDE does; the bytes after them are not covered either.
            let judged = record.ok + record.drops_caller + record.breaks_chain;
            uncovered(&mut code, record.len.saturating_sub(judged), go);
            at = record.start.saturating_add(record.len);
        }
        uncovered(&mut code, section.svma.end.saturating_sub(at), go);
    }
    code
}

fn uncovered(code: &mut Code, n: u64, go: bool) {
    let field = if go { &mut code.go } else { &mut code.no_cfi };
    *field = field.saturating_add(n);
}

fn conclude(audit: &mut FileAudit) {
    let functions = &audit.tally.functions;
    if audit.source == Source::None && audit.tally.code.no_cfi >= MIN_CODE_BYTES && !audit.go {
        audit.remarks.push(Remark::NoUnwindInformation);
    }
    // Clang keeps frame pointers in leaf functions even with optimisation, so these alone prove nothing. Without
    // optimisation the other callee-saved registers are hardly used: in 6 to 11 functions of 100 (libslang2,
    // libdevmapper of Debian 12), against 88 at -O2 (postgres).
    let unoptimised = functions.leaf >= MIN_LEAVES
        && at_least(functions.leaf_framed, functions.leaf, 95)
        && at_least(functions.non_leaf_framed, functions.non_leaf, 95)
        && !at_least(functions.saves_others, functions.non_leaf.max(1), 25);
    if unoptimised {
        audit.remarks.push(Remark::LooksUnoptimised);
    }
}

fn at_least(part: u64, whole: u64, percent: u64) -> bool {
    u128::from(part) * 100 >= u128::from(whole) * u128::from(percent)
}
