//! Plain text for a terminal, also to be pasted into a mail.

use super::figures::{
    against_text, code_rows, function_rows, leaf_share, metric, producers, remark, right_words, sframe_words, size_rows,
};
use super::lists::{FpUsage, Listing, outliers, packages_with};
use super::weight::weight;
use crate::escape::shown;
use crate::figures::{byte_count, count, plural, share};
use crate::terminal::{Cell, Column, Paragraph, Style, Table, Tone};
use fpprof_analysis::audit::{CodeTally, FileRow, FunctionKind, Survey, SurveyMetric};
use std::io::{self, Write};

/// Column at which prose begins.
const INDENT: usize = 10;

/// Writes a survey: what was audited, the figures of all files together, packages by their usage of frame pointers,
/// outliers, files.
///
/// # Errors
/// If the writer fails.
pub fn text(survey: &Survey, listing: Listing, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    if survey.looked_at > 0 || survey.weighed.is_none() {
        audited(survey, style, out)?;
    }
    if let Some(weighed) = &survey.weighed {
        weight(weighed, listing, style, out)?;
    }
    if survey.files.is_empty() {
        return Ok(());
    }
    functions(&survey.total, style, out)?;
    code(&survey.total, style, out)?;
    sizes(survey, style, out)?;
    packages(survey, listing, style, out)?;
    files(survey, listing, style, out)?;
    outlier_lists(survey, listing, style, out)?;
    flags(survey, listing, style, out)?;
    disassembled(survey, style, out)?;
    if listing.functions {
        for file in &survey.files {
            records(file, style, out)?;
        }
    }
    Ok(())
}

fn audited(survey: &Survey, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut line = Paragraph::new("audited", INDENT);
    let files = survey.files.len() as u64;
    let looked_at = survey.looked_at;
    line.part(Tone::Strong, format!("{} ELF file{}", count(files), plural(files)))
        .part(Tone::Plain, format!("in {} file{}", count(looked_at), plural(looked_at)))
        .part(Tone::Plain, format!("· {} functions", count(survey.total.functions.total)))
        .part(Tone::Plain, format!("· {} of code", byte_count(survey.total.code.executable)));
    if survey.other_names > 0 {
        line.part(
            Tone::Dim,
            format!(
                "· {} more name{} (links) of the same files",
                count(survey.other_names),
                plural(survey.other_names)
            ),
        );
    }
    line.write(style, out)?;
    if survey.total.code.executable > 0 {
        let mut line = Paragraph::new("walks", INDENT);
        line.words(Tone::Plain, &format!("{}.", right_words(&survey.total)));
        line.write(style, out)?;
    }
    let mut refused: Vec<_> =
        survey.refused.iter().map(|(reason, n)| format!("{} × {}", count(*n), shown(reason))).collect();
    if survey.archives > 0 {
        refused.push(format!("{} × static archive", count(survey.archives)));
    }
    if !refused.is_empty() {
        let mut line = Paragraph::new("ignored", INDENT);
        line.words(Tone::Plain, &refused.join(" · "));
        line.write(style, out)?;
    }
    if survey.n_unreadable > 0 {
        let mut line = Paragraph::new("unread", INDENT);
        let named: Vec<_> = survey.unreadable.iter().take(3).map(|what| shown(what).into_owned()).collect();
        line.words(
            Tone::Bad,
            &format!("{} file{}: {}", count(survey.n_unreadable), plural(survey.n_unreadable), named.join("; ")),
        );
        line.write(style, out)?;
    }
    Ok(())
}

fn functions(tally: &CodeTally, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    style.heading("Functions and frame pointers", out)?;
    let mut table = Table::new(vec![
        Column::left("functions"),
        Column::right("count"),
        Column::right("of"),
        Column::right("share"),
        Column::left(""),
    ]);
    for (index, (name, part, whole, meaning)) in function_rows(tally).into_iter().enumerate() {
        let tone = if index == 0 { Tone::Strong } else { Tone::Plain };
        table.row(vec![
            Cell::new(tone, name),
            Cell::new(tone, count(part)),
            count(whole).into(),
            Cell::new(tone, share(part, whole)),
            Cell::new(Tone::Dim, meaning),
        ]);
    }
    table.write(style, out)?;
    let functions = &tally.functions;
    let mut line = Paragraph::new("", 2);
    line.words(
        Tone::Dim,
        &format!(
            "Not functions: {} split-off parts (.cold), {} blocks of linkage stubs, {} entry points and trampolines.",
            count(functions.parts),
            count(functions.stubs),
            count(functions.others)
        ),
    );
    if functions.unread > 0 {
        line.words(Tone::Warn, &format!("Unknown whether {} functions call.", count(functions.unread)));
    }
    line.write(style, out)
}

fn code(tally: &CodeTally, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    style.heading("Bytes of code, by what a frame-pointer walk does there", out)?;
    let mut table = Table::new(vec![
        Column::left("bytes"),
        Column::right("count"),
        Column::right("of all"),
        Column::right("of covered"),
        Column::left(""),
    ]);
    let judged = tally.code.judged();
    for (index, (name, bytes, meaning)) in code_rows(tally).into_iter().enumerate() {
        let of_covered = if index < 3 { share(bytes, judged) } else { String::new() };
        table.row(vec![
            name.into(),
            byte_count(bytes).into(),
            share(bytes, tally.code.executable).into(),
            of_covered.into(),
            Cell::new(Tone::Dim, meaning),
        ]);
    }
    table.write(style, out)
}

fn sizes(survey: &Survey, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    style.heading("Sections", out)?;
    let mut table = Table::new(vec![
        Column::left("section"),
        Column::right("bytes"),
        Column::right("against .text"),
        Column::left(""),
    ]);
    for (name, bytes) in size_rows(&survey.total) {
        let note = if name == ".sframe" { sframe_words(survey) } else { String::new() };
        let ratio = if name == ".text" { String::new() } else { against_text(bytes, &survey.total) };
        table.row(vec![name.into(), byte_count(bytes).into(), ratio.into(), Cell::new(Tone::Dim, note)]);
    }
    table.write(style, out)
}

fn packages(survey: &Survey, listing: Listing, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    if survey.packages.is_empty() {
        return Ok(());
    }
    if survey.packages.len() > 1 {
        style.heading("Packages, by the share of non-leaf functions that keep a frame pointer", out)?;
        let mut table = Table::new(vec![Column::left("frame pointers"), Column::right("packages")]);
        for usage in FpUsage::ALL {
            table.row(vec![usage.name().into(), count(packages_with(survey, usage).len() as u64).into()]);
        }
        table.write(style, out)?;
    }
    let order = [FpUsage::Everywhere, FpUsage::Framed, FpUsage::Mixed, FpUsage::Some, FpUsage::None, FpUsage::TooSmall];
    let rows: Vec<_> = order.into_iter().flat_map(|usage| packages_with(survey, usage)).collect();
    style.heading("Packages", out)?;
    let mut table = Table::new(columns("package"));
    for row in rows.iter().take(listing.rows) {
        let mut cells = vec![shown(&row.name).into(), count(row.files).into()];
        cells.extend(tally_cells(&row.tally));
        table.row(cells);
    }
    table.write(style, out)?;
    more(rows.len(), listing.rows, "packages", out)
}

fn files(survey: &Survey, listing: Listing, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    if survey.files.len() > listing.rows {
        return Ok(());
    }
    style.heading("Files", out)?;
    let mut titles = columns("file");
    titles.remove(1);
    let mut table = Table::new(titles);
    for file in &survey.files {
        let mut cells = vec![shown(&file.path).into()];
        cells.extend(tally_cells(&file.audit.tally));
        table.row(cells);
        for text in file.audit.remarks.iter().map(remark) {
            let mut note = Paragraph::new("", 4);
            note.words(Tone::Warn, &shown(&text));
            table.note(note);
        }
    }
    table.write(style, out)
}

fn columns(what: &str) -> Vec<Column> {
    vec![
        Column::left(what).shrinking(20),
        Column::right("files"),
        Column::right("functions"),
        Column::right("non-leaf FP"),
        Column::right("leaf FP"),
        Column::right("ok"),
        Column::right("drops"),
        Column::right("breaks"),
        Column::right("no CFI"),
        Column::right("eh_frame"),
    ]
}

/// The cells of a tally. Shares of code are relative to all executable bytes, so that a file without unwind information
/// does not look good.
fn tally_cells(tally: &CodeTally) -> [Cell; 8] {
    let all = tally.code.executable;
    let tone = match FpUsage::of(tally) {
        FpUsage::Framed | FpUsage::Everywhere => Tone::Good,
        FpUsage::Mixed => Tone::Warn,
        FpUsage::None | FpUsage::Some | FpUsage::TooSmall => Tone::Plain,
    };
    [
        count(tally.functions.total).into(),
        Cell::new(tone, metric(SurveyMetric::NonLeaf, tally)),
        leaf_share(tally).into(),
        share(tally.code.ok, all).into(),
        share(tally.code.drops_caller, all).into(),
        share(tally.code.breaks_chain, all).into(),
        share(tally.code.no_cfi, all).into(),
        against_text(tally.sizes.eh_frame, tally).into(),
    ]
}

fn outlier_lists(survey: &Survey, listing: Listing, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    if survey.files.len() <= listing.rows {
        return Ok(());
    }
    let rows = listing.rows.min(12);
    for (title, files) in outliers(survey).into_iter().filter(|(_, files)| !files.is_empty()) {
        style.heading(&format!("{title}: {}", count(files.len() as u64)), out)?;
        let mut table = Table::new(vec![
            Column::left("file").shrinking(20),
            Column::right("code"),
            Column::right("no CFI"),
            Column::right("non-leaf FP"),
            Column::right("leaf FP"),
        ]);
        for file in files.iter().take(rows) {
            let tally = &file.audit.tally;
            table.row(vec![
                shown(&file.path).into(),
                byte_count(tally.code.executable).into(),
                byte_count(tally.code.no_cfi).into(),
                metric(SurveyMetric::NonLeaf, tally).into(),
                leaf_share(tally).into(),
            ]);
        }
        table.write(style, out)?;
        more(files.len(), rows, "files", out)?;
    }
    Ok(())
}

fn flags(survey: &Survey, listing: Listing, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let rows = producers(survey);
    if rows.is_empty() {
        return Ok(());
    }
    style.heading("Compilers and flags, where debug information records them", out)?;
    let limit = listing.rows.min(12);
    let mut table = Table::new(vec![Column::right("units"), Column::left("producer").shrinking(20)]);
    for (producer, units) in rows.iter().take(limit) {
        table.row(vec![count(*units).into(), shown(producer).into()]);
    }
    table.write(style, out)?;
    more(rows.len(), limit, "producers", out)
}

fn disassembled(survey: &Survey, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let Some(seen) = survey.disassembled else { return Ok(()) };
    style.heading("Disassembly compared with unwind information", out)?;
    let rows = [
        ("with a prologue", seen.prologues, "push %rbp, then mov %rsp,%rbp, neither register written in between"),
        ("and framed by the rows", seen.prologues_framed, "agreement"),
        (
            "prologue without framed rows",
            seen.prologues.saturating_sub(seen.prologues_framed),
            "a false alarm of either",
        ),
        ("framed rows without prologue", seen.framed_only, "another way to set up the frame"),
        ("write an untouched register", seen.writes_untouched, "the rows are wrong: a walk breaks there"),
    ];
    let mut table = Table::new(vec![
        Column::left("functions"),
        Column::right("count"),
        Column::right("of decoded"),
        Column::left(""),
    ]);
    for (name, n, meaning) in rows {
        table.row(vec![name.into(), count(n).into(), share(n, seen.functions).into(), Cell::new(Tone::Dim, meaning)]);
    }
    table.write(style, out)
}

fn records(file: &FileRow, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    style.heading(&format!("Functions of {}", shown(&file.path)), out)?;
    let mut table = Table::new(vec![
        Column::right("svma"),
        Column::right("bytes"),
        Column::left("kind"),
        Column::left("leaf"),
        Column::left("frame"),
        Column::right("ok"),
        Column::right("drops"),
        Column::right("breaks"),
    ]);
    for record in &file.audit.records {
        let kind = match record.kind {
            FunctionKind::Function => "function",
            FunctionKind::Part => "part",
            FunctionKind::Stubs => "stubs",
            FunctionKind::Root => "root",
            FunctionKind::Signal => "signal",
            FunctionKind::Unreadable => "unread",
        };
        let leaf = record.leaf.map_or("–", |leaf| if leaf { "leaf" } else { "calls" });
        let frame = match (record.framed, record.late) {
            (true, true) => "late",
            (true, false) => "yes",
            (false, _) => "no",
        };
        table.row(vec![
            format!("{:x}", record.start).into(),
            count(record.len).into(),
            kind.into(),
            leaf.into(),
            frame.into(),
            count(record.ok).into(),
            count(record.drops_caller).into(),
            count(record.breaks_chain).into(),
        ]);
    }
    table.write(style, out)
}

fn more(n: usize, shown: usize, what: &str, out: &mut dyn Write) -> io::Result<()> {
    match n.checked_sub(shown) {
        None | Some(0) => Ok(()),
        Some(rest) => writeln!(out, "  and {} more {what}", count(rest as u64)),
    }
}
