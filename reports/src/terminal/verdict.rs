//! The verdict above the tables of `fpprof report`.

use super::paint::INDENT;
use super::{Paragraph, Style, Tone};
use crate::escape::{shown, visible};
use crate::finding::{Finding, Judgement, Piece};
use crate::verdict::{Case, RULE, advice, headline, names};
use fpprof_analysis::Analysis;
use std::io::{self, Write};

/// Writes which way to take stacks is good enough for the workload; writes nothing for an analysis without
/// [`Analysis::detail`].
///
/// # Errors
/// If the writer fails.
pub fn verdict(analysis: &Analysis, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let Some(detail) = &analysis.detail else { return Ok(()) };
    let (all, names) = names(analysis, detail);
    let case = Case::new(analysis, detail, &all, &names);
    let headline = headline(&case);
    let tone = if headline.judgement == Judgement::Bad { Tone::Bad } else { Tone::Strong };
    line("verdict", tone, &headline).write(style, out)?;
    if let Some(advice) = advice(&case) {
        line("", Tone::Plain, &advice).write(style, out)?;
    }
    Ok(())
}

/// Writes the rule of [`verdict`], if that writes anything.
///
/// # Errors
/// If the writer fails.
pub fn rule(analysis: &Analysis, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    if analysis.detail.is_none() {
        return Ok(());
    }
    style.heading("Rule of the verdict", out)?;
    let mut rule = Paragraph::new("  ", 2);
    rule.words(Tone::Dim, RULE).write(style, out)
}

fn line(label: &'static str, tone: Tone, finding: &Finding) -> Paragraph {
    let text = finding.pieces.iter().map(|piece| match piece {
        Piece::Words(words) => visible(words).into_owned(),
        Piece::Name(name) => shown(name).into_owned(),
    });
    let mut line = Paragraph::new(label, INDENT);
    line.words(tone, &text.collect::<String>());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a name in a sentence cannot control the terminal.
    #[test]
    fn words_are_escaped() {
        let finding = Finding::new(Judgement::Bad).words("of \u{1b}[31mevil only 3 % reach their root");
        let mut out = Vec::new();
        line("", Tone::Plain, &finding).write(&Style { width: None, colors: false }, &mut out).unwrap();
        assert!(out.ends_with(b"of \\u{1b}[31mevil only 3 % reach their root\n"), "{}", out.escape_ascii());
    }
}
