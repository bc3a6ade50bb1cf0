//! One frame of a stack that is shown beside others.

use super::{Style, Tone};
use crate::escape::shown;
use fpprof_analysis::oracle::ShownFrame;
use std::io::{self, Write};

/// Writes the frame's address, CFA and name on one line.
pub(crate) fn frame_line(frame: &ShownFrame, tone: Tone, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let cfa = frame.cfa.map_or_else(|| format!("{:>14}", "–"), |cfa| format!("{cfa:>#14x}"));
    let text = format!("{:#14x}  cfa {cfa}  {}", frame.address, shown(&frame.name));
    writeln!(out, "    {}", style.paint(tone, &text))
}
