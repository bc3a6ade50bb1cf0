//! Disagreements one by one: the place, the row, and every stack.

use crate::escape::shown;
use crate::figures::count;
use crate::terminal::{Paragraph, Style, Tone, frame_line};
use fpprof_analysis::oracle::{JudgedStack, Mismatch, Verification};
use std::io::{self, Write};

/// The most frames shown of a stack.
const MAX_FRAMES: usize = 12;

pub(super) fn disagreements(verification: &Verification, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    for disagreement in &verification.disagreements {
        let title = format!("Instruction {}: {}", count(disagreement.instruction), shown(&disagreement.strategy));
        style.heading(&title, out)?;
        let mut line = Paragraph::new("  in", 8);
        line.part(Tone::Plain, shown(&disagreement.place));
        line.write(style, out)?;
        let mut line = Paragraph::new("  at", 8);
        line.part(Tone::Strong, shown(&disagreement.culprit))
            .part(Tone::Dim, format!("{:#x} of", disagreement.culprit_svma))
            .part(Tone::Dim, shown(&disagreement.culprit_file));
        line.write(style, out)?;
        let mut line = Paragraph::new("  row", 8);
        line.words(Tone::Plain, &shown(&disagreement.row));
        line.write(style, out)?;
        writeln!(out, "  true")?;
        for frame in disagreement.truth.iter().take(MAX_FRAMES) {
            frame_line(frame, Tone::Plain, style, out)?;
        }
        rest(disagreement.truth.len(), out)?;
        for stack in &disagreement.stacks {
            stack_lines(stack, disagreement, style, out)?;
        }
    }
    Ok(())
}

fn stack_lines(stack: &JudgedStack, disagreement: &Mismatch, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let tone = match stack.class.as_str() {
        "exact" => Tone::Good,
        "wrong" => Tone::Bad,
        _ => Tone::Warn,
    };
    let words = format!("{} {}", stack.class, stack.reason);
    writeln!(out, "  {} {}", shown(&stack.strategy), style.paint(tone, shown(words.trim_end()).as_ref()))?;
    if stack.class == "exact" {
        return Ok(());
    }
    for (index, frame) in stack.frames.iter().take(MAX_FRAMES).enumerate() {
        let is_right = disagreement.truth.get(index).is_some_and(|truth| truth.address == frame.address);
        frame_line(frame, if is_right { Tone::Dim } else { Tone::Bad }, style, out)?;
    }
    rest(stack.frames.len(), out)
}

fn rest(n: usize, out: &mut dyn Write) -> io::Result<()> {
    match n.checked_sub(MAX_FRAMES) {
        None | Some(0) => Ok(()),
        Some(more) => writeln!(out, "    and {more} more"),
    }
}
