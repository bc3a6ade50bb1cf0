//! Figures that are the same in every format.

use crate::figures::{byte_count, count, plural, share};
use fpprof_analysis::audit::{CodeTally, Producer, Remark, SframeVersion, Survey, SurveyMetric};
use std::collections::BTreeMap;

/// A metric in per cent, as text.
pub(super) fn metric(metric: SurveyMetric, tally: &CodeTally) -> String {
    let (part, whole) = metric.of(tally);
    share(part, whole)
}

/// The share of bytes where a frame-pointer walk finds the caller: of all code, and of the code that could be judged.
pub(super) fn right_words(tally: &CodeTally) -> String {
    let code = &tally.code;
    let go = if code.go > 0 {
        format!(
            "; {} more is code of Go, which keeps frame pointers by its own convention, except in leaf functions without a \
             frame",
            share(code.go, code.executable)
        )
    } else {
        String::new()
    };
    format!(
        "a frame-pointer walk is known to find the caller in {} of all code: in {} of the {} with unwind information{go}; whether it \
         finds theirs depends on the code of the callers",
        share(code.ok, code.executable),
        share(code.ok, code.judged()),
        share(code.judged(), code.executable)
    )
}

/// The share of leaf functions that set up a frame pointer.
pub(super) fn leaf_share(tally: &CodeTally) -> String {
    share(tally.functions.leaf_framed, tally.functions.leaf)
}

/// The size of a section relative to `.text`.
pub(super) fn against_text(size: u64, tally: &CodeTally) -> String {
    share(size, tally.sizes.text)
}

/// Rows for code bytes: name, bytes, meaning. They add up to all executable bytes.
pub(super) fn code_rows(tally: &CodeTally) -> [(&'static str, u64, &'static str); 6] {
    let code = &tally.code;
    [
        ("ok", code.ok, "a frame-pointer walk finds the function's caller"),
        ("drops caller", code.drops_caller, "it goes on without the function's caller"),
        ("breaks chain", code.breaks_chain, "the register holds something else"),
        ("no CFI", code.no_cfi, "unknown: no unwind information (assembly, or stripped)"),
        ("Go", code.go, "framed by Go's convention, no unwind information"),
        ("padding", code.padding, "between functions"),
    ]
}

/// Sections other than code: name and bytes.
pub(super) fn size_rows(tally: &CodeTally) -> [(&'static str, u64); 5] {
    let sizes = &tally.sizes;
    [
        (".text", sizes.text),
        (".eh_frame", sizes.eh_frame),
        (".eh_frame_hdr", sizes.eh_frame_hdr),
        (".sframe", sizes.sframe),
        (".debug_frame", sizes.debug_frame),
    ]
}

/// Rows for functions: name, count, total, meaning.
pub(super) fn function_rows(tally: &CodeTally) -> [(&'static str, u64, u64, &'static str); 5] {
    let functions = &tally.functions;
    [
        ("non-leaf functions", functions.non_leaf_framed, functions.non_leaf, "keep a frame pointer"),
        ("leaf functions", functions.leaf_framed, functions.leaf, "keep one (with GCC: not optimised)"),
        ("all functions", functions.framed, functions.total, "keep one"),
        ("framed functions", functions.late, functions.framed, "set it up late, after 16 bytes (shrink-wrapped)"),
        ("framed functions", functions.realigned, functions.framed, "realign their stack"),
    ]
}

/// The versions of `.sframe` in words; empty if there is none.
pub(super) fn sframe_words(survey: &Survey) -> String {
    let versions = survey.sframe_versions();
    let words: Vec<_> = versions
        .iter()
        .map(|(version, files)| match version {
            SframeVersion::Version(number) => format!("version {number} in {} file{}", count(*files), plural(*files)),
            SframeVersion::Unknown => format!("unreadable in {} file{}", count(*files), plural(*files)),
        })
        .collect();
    let mixed = if versions.len() > 1 { "; no single reader supports all of them" } else { "" };
    let tally = &survey.total;
    let rows = match versions.is_empty() {
        true => String::new(),
        false => format!(
            "; rows for {} of all code, call frame information for {}",
            share(tally.sframe_code, tally.code.executable),
            share(tally.code.judged(), tally.code.executable)
        ),
    };
    words.join(", ") + mixed + &rows
}

/// Producer flags over all files: (compiler and flags, number of units).
pub(super) fn producers(survey: &Survey) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for Producer { compiler, flags, units } in survey.files.iter().flat_map(|file| &file.audit.producers) {
        let text = if flags.is_empty() { compiler.clone() } else { format!("{compiler} {}", flags.join(" ")) };
        let sum = sums.entry(text).or_default();
        *sum = sum.saturating_add(*units);
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    rows
}

/// A remark in words.
pub(super) fn remark(remark: &Remark) -> String {
    match remark {
        Remark::LooksUnoptimised => "probably compiled without optimisation (-O0)".to_owned(),
        Remark::NoUnwindInformation => "code without unwind information, which DWARF cannot unwind either".to_owned(),
        Remark::OnlyDebugFrame(bytes) => format!(
            "{} of code have unwind information in .debug_frame alone: once stripped, DWARF cannot unwind them",
            byte_count(*bytes)
        ),
        Remark::BadEntries(n) => format!("{} entries with corrupt rows", count(*n)),
        Remark::Overlaps(n) => format!("{} entries overlap others; counted once", count(*n)),
        Remark::SectionLeftOut(name) => format!("section {name} ignored: outside the file, or too large"),
        Remark::CodeCut => "the file is truncated: leaf functions unknown".to_owned(),
        Remark::CompressedDebugInfo => "compressed debug information: flags not read".to_owned(),
        Remark::UnitsLeftOut(n) => format!("flags read from the first {} compilation units only", count(*n)),
        other => format!("{other:?}"),
    }
}
