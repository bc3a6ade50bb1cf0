//! The survey as one page that works offline: no script, no request, every name escaped by the template.

use super::figures::{
    against_text, code_rows, function_rows, leaf_share, metric, producers, remark, right_words, sframe_words, size_rows,
};
use super::lists::{FpUsage, outliers, packages_with};
use super::marks::{bar, histogram};
use super::weight;
use crate::escape::shown;
use crate::figures::{byte_count, count, share};
use crate::shell::{self, BASE, Head, POLICY};
use fpprof_analysis::audit::{CodeTally, FileRow, Histogram, Survey, SurveyMetric};
use maud::{Markup, html};
use std::io::{self, Write};

/// The most rows in a list of files; all packages are shown.
const MAX_ROWS: usize = 200;

/// What was audited, when and where.
#[derive(Debug, Clone, Default)]
pub struct Audited {
    /// What the user asked to audit, in one line.
    pub what: String,
    /// The date of the audit.
    pub date: String,
    /// The distribution that the files belong to; empty if unknown.
    pub distribution: String,
}

/// Writes the page.
///
/// # Errors
/// If the writer fails.
pub fn html(survey: &Survey, audited: &Audited, out: &mut dyn Write) -> io::Result<()> {
    let title = &audited.what;
    let body = html! {
        header {
            p.over { "fpprof audit" }
            h1 { "Frame pointers and unwind information of ELF files" }
            p.command { code { (shown(title)) } }
            p.soft { (shown(&made(audited))) }
        }
        main {
            (verdict(survey))
            (weighed(survey))
            (code(&survey.total))
            (distribution(survey))
            (packages(survey))
            (outlier_tables(survey))
            (sections(survey))
            (flags(survey))
            (method())
        }
    };
    let head =
        Head { title: &format!("fpprof audit: {title}"), policy: POLICY, styles: &[BASE, include_str!("style.css")] };
    shell::write(&head, &body, out)
}

fn made(audited: &Audited) -> String {
    let version = format!("fpprof {}", env!("CARGO_PKG_VERSION"));
    let parts = [audited.date.as_str(), &audited.distribution, &version];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
}

fn verdict(survey: &Survey) -> Markup {
    let total = &survey.total;
    html! {
        section.card {
            p.headline {
                b { (metric(SurveyMetric::NonLeaf, total)) } " of the functions that make calls keep a frame pointer; "
                 (right_words(total)) "."
            }
            p.soft {
                (count(survey.files.len() as u64)) " ELF files of " (count(survey.looked_at)) " files, "
                (count(total.functions.total)) " functions, " (byte_count(total.code.executable)) " of code."
                @if !survey.refused.is_empty() || survey.archives > 0 {
                    " Ignored: "
                    @for (reason, n) in &survey.refused { (count(*n)) " × " (shown(reason)) ". " }
                    @if survey.archives > 0 { (count(survey.archives)) " × static archive. " }
                }
                @if survey.n_unreadable > 0 { b { " " (count(survey.n_unreadable)) " files are unreadable." } }
            }
            div.wrap { table {
                thead { tr { th { "functions" } th.n { "count" } th.n { "of" } th.n { "share" } th { "" } } }
                tbody {
                    @for (name, part, whole, meaning) in function_rows(total) {
                        tr { td { (name) } td.n { (count(part)) } td.n { (count(whole)) } td.n { (share(part, whole)) } td { (meaning) } }
                    }
                }
            } }
        }
    }
}

const CLASSES: [&str; 6] = ["ok", "drops", "breaks", "blind", "go", "padding"];

fn code(total: &CodeTally) -> Markup {
    let rows = code_rows(total);
    let parts: Vec<_> = CLASSES.iter().zip(rows).map(|(class, (name, bytes, _))| (*class, name, bytes)).collect();
    html! {
        h2 { "Bytes of code, by what a frame-pointer walk does there" }
        (bar(&parts))
        div.wrap { table {
            tbody {
                @for (class, (name, bytes, meaning)) in CLASSES.iter().zip(rows) {
                    tr {
                        td { span class={ "key " (class) } {} (name) }
                        td.n { (byte_count(bytes)) } td.n { (share(bytes, total.code.executable)) } td { (meaning) }
                    }
                }
            }
        } }
    }
}

fn weighed(survey: &Survey) -> Markup {
    html! {
        @if let Some(weighed) = &survey.weighed {
            h2 { "Samples, by the first step of a frame-pointer walk" }
            div.wrap { table { tbody { @for (name, n, meaning) in weight::rows(&weighed.total) {
                tr { td { (name) } td.n { (count(n)) } td.n { (share(n, weighed.total.samples)) } td { (meaning) } }
            } } } }
        }
    }
}

fn distribution(survey: &Survey) -> Markup {
    let files = Histogram::of(survey.files.iter().map(|file| &file.audit.tally));
    let packages = Histogram::of(survey.packages.iter().map(|package| &package.tally));
    html! {
        h2 { "Files by the share of non-leaf functions that keep a frame pointer" }
        (histogram(&files, "files by share"))
        p.soft { (count(files.too_small)) " files have fewer than 20 non-leaf functions and are not shown." }
        @if survey.packages.len() > 1 {
            h2 { "Packages by the share of non-leaf functions that keep a frame pointer" }
            (histogram(&packages, "packages by share"))
            p.soft { (count(packages.too_small)) " packages are too small." }
        }
    }
}

fn packages(survey: &Survey) -> Markup {
    html! {
        @if !survey.packages.is_empty() {
            h2 { "Packages" }
            @for usage in [FpUsage::Everywhere, FpUsage::Framed, FpUsage::Mixed, FpUsage::Some, FpUsage::None, FpUsage::TooSmall] {
                @let rows = packages_with(survey, usage);
                @if !rows.is_empty() {
                    details open[matches!(usage, FpUsage::Mixed | FpUsage::Framed | FpUsage::Everywhere)] {
                        summary { (usage.name()) ": " (count(rows.len() as u64)) }
                        div.wrap { table {
                            (titles("package"))
                            tbody { @for row in rows { (tally_row(&row.name, &row.tally, &[])) } }
                        } }
                    }
                }
            }
        }
    }
}

fn outlier_tables(survey: &Survey) -> Markup {
    html! {
        h2 { "Outliers" }
        @for (title, files) in outliers(survey) {
            @if !files.is_empty() {
                details open {
                    summary { (title) ": " (count(files.len() as u64)) }
                    div.wrap { table { (titles("file")) tbody { @for file in files.iter().take(MAX_ROWS) { (file_row(file)) } } } }
                    @if let Some(rest) = files.len().checked_sub(MAX_ROWS).filter(|rest| *rest > 0) {
                        p.soft { "and " (count(rest as u64)) " more, in the JSON" }
                    }
                }
            }
        }
        @if survey.files.len() <= MAX_ROWS {
            details open {
                summary { "All files: " (count(survey.files.len() as u64)) }
                div.wrap { table { (titles("file")) tbody { @for file in &survey.files { (file_row(file)) } } } }
            }
        }
    }
}

fn titles(what: &str) -> Markup {
    html! {
        thead { tr {
            th { (what) } th.n { "functions" } th.n { "non-leaf FP" } th.n { "leaf FP" } th.bars { "code" } th.n { "ok" }
            th.n { "drops caller" } th.n { "breaks chain" } th.n { "no CFI" } th.n { ".eh_frame" } th.n { "code bytes" }
        } }
    }
}

fn file_row(file: &FileRow) -> Markup {
    let remarks: Vec<_> = file.audit.remarks.iter().map(remark).collect();
    tally_row(&file.path, &file.audit.tally, &remarks)
}

fn tally_row(name: &str, tally: &CodeTally, remarks: &[String]) -> Markup {
    let code = &tally.code;
    let all = code.executable;
    let parts: Vec<_> = CLASSES.iter().zip(code_rows(tally)).map(|(class, (name, n, _))| (*class, name, n)).collect();
    html! {
        tr {
            td.name { (shown(name)) @for remark in remarks { div.remark { (shown(remark)) } } }
            td.n { (count(tally.functions.total)) }
            td.n { (metric(SurveyMetric::NonLeaf, tally)) }
            td.n { (leaf_share(tally)) }
            td.bars { (bar(&parts)) }
            td.n { (share(code.ok, all)) }
            td.n { (share(code.drops_caller, all)) }
            td.n { (share(code.breaks_chain, all)) }
            td.n { (share(code.no_cfi, all)) }
            td.n { (against_text(tally.sizes.eh_frame, tally)) }
            td.n { (byte_count(code.executable)) }
        }
    }
}

fn sections(survey: &Survey) -> Markup {
    html! {
        h2 { "Sections" }
        div.wrap { table {
            tbody {
                @for (name, bytes) in size_rows(&survey.total) {
                    tr {
                        td { (name) } td.n { (byte_count(bytes)) } td.n { (against_text(bytes, &survey.total)) }
                        td { @if name == ".sframe" { (sframe_words(survey)) } }
                    }
                }
            }
        } }
    }
}

fn flags(survey: &Survey) -> Markup {
    let rows = producers(survey);
    html! {
        @if !rows.is_empty() {
            h2 { "Compilers and flags, where debug information records them" }
            div.wrap { table { tbody { @for (producer, units) in rows.iter().take(MAX_ROWS) {
                tr { td.n { (count(*units)) } td.name { (shown(producer)) } }
            } } } }
        }
    }
}

fn method() -> Markup {
    html! {
        h2 { "Method" }
        p.soft {
            "Every byte of code is judged by its row of .eh_frame: would a frame-pointer walk find the caller if a "
            "sample fell there? How it goes on depends on the callers' code. Functions are frame description entries that begin as functions do; split-off parts, \
             linkage "
            "stubs and entry points are not counted. A leaf calls nothing. GCC leaves leaf functions without a frame "
            "even when asked for frame pointers, so the share among non-leaf functions says how a file was built, and "
            "the share among leaf functions tells code that was not optimised. Functions without unwind information are "
            "not counted. Shares of code bytes are not shares of time; for those, use --weight RECORDING."
        }
    }
}
