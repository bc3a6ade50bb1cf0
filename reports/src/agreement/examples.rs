//! Disagreements one by one: the place, the rows, and both stacks.

use super::words::{name, verdict_name};
use crate::escape::shown;
use crate::terminal::{Paragraph, Style, Tone, frame_line};
use fpprof_analysis::agreement::{Disagreement, Evidence, Example, ShownStack};
use std::io::{self, Write};

pub(super) fn examples(report: &Disagreement, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    for reason in &report.reasons {
        for example in &reason.examples {
            // The time format of `perf script`.
            let (s, ns) = (example.time_ns / 1_000_000_000, example.time_ns % 1_000_000_000);
            let title = format!("{}: thread {} at {s}.{ns:09} s", name(reason.relation), example.tid);
            style.heading(&title, out)?;
            one(report, example, style, out)?;
        }
    }
    Ok(())
}

fn one(report: &Disagreement, example: &Example, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut line = Paragraph::new("  at", 8);
    line.part(Tone::Strong, shown(&example.place)).part(Tone::Dim, format!("frame {}", example.frame));
    line.write(style, out)?;
    let mut line = Paragraph::new("  row", 8);
    line.words(Tone::Plain, &shown(&example.row));
    line.write(style, out)?;
    if let Some(row) = &example.other_row {
        let mut line = Paragraph::new("  rule", 8);
        line.words(Tone::Plain, &shown(row)).part(Tone::Dim, format!("({})", shown(&report.agreement.other)));
        line.write(style, out)?;
    }
    let mut line = Paragraph::new("  right", 8);
    line.part(Tone::Strong, verdict_name(example.verdict, report));
    for (name, evidence) in
        [(&report.agreement.reference, example.reference_evidence), (&report.agreement.other, example.other_evidence)]
    {
        line.words(Tone::Dim, &format!("· {}: return address {}", shown(name), evidence_words(evidence)));
    }
    line.write(style, out)?;
    stack(&report.agreement.reference, &example.reference, &example.other, style, out)?;
    stack(&report.agreement.other, &example.other, &example.reference, style, out)
}

fn stack(name: &str, stack: &ShownStack, against: &ShownStack, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  {} {}", style.paint(Tone::Strong, &shown(name)), shown(&stack.end))?;
    more(stack.n_before, out)?;
    for frame in &stack.frames {
        let is_shared = against.frames.iter().any(|other| other.address == frame.address);
        frame_line(frame, if is_shared { Tone::Dim } else { Tone::Warn }, style, out)?;
    }
    more(stack.n_more, out)
}

fn more(n: usize, out: &mut dyn Write) -> io::Result<()> {
    if n > 0 { writeln!(out, "    … {n} more") } else { Ok(()) }
}

fn evidence_words(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::NoCall => "does not follow a call",
        Evidence::Unknown => "unknown",
        Evidence::Call => "follows a call",
        Evidence::CallOfCallee => "follows a call of the function",
    }
}
