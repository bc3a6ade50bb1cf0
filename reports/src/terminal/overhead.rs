//! Where the cost of recording went.

use super::closing::INDENT;
use super::{Paragraph, Style, Tone};
use crate::figures::{byte_count, count, nanoseconds, seconds};
use fpprof_analysis::overhead::Overhead;
use std::io::{self, Write};

/// Writes the parts, their sum as shares of the machine and of the target, and the bytes written.
pub(super) fn overhead(overhead: &Overhead, style: &Style, out: &mut impl Write) -> io::Result<()> {
    parts(overhead).write(style, out)?;
    let mut line = Paragraph::new("written", INDENT);
    match (overhead.written_bytes, overhead.to_disk_bytes) {
        (Some(written), Some(to_disk)) => {
            line.part(Tone::Plain, byte_count(written))
                .part(Tone::Plain, format!("· {} to disk, in whole pages", byte_count(to_disk)));
            line.write(style, out)
        }
        _ => Ok(()),
    }
}

/// The same parts and sum on one line of text.
pub(crate) fn overhead_words(overhead: &Overhead) -> String {
    parts(overhead).text()
}

fn parts(overhead: &Overhead) -> Paragraph {
    let mut line = Paragraph::new("overhead", INDENT);
    match overhead.interrupt_ns.zip(overhead.interrupts_s) {
        Some((ns, all)) => {
            #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
            let each = nanoseconds(ns as f64);
            let times = format!("interrupts {} ({} × {each})", seconds(all), count(overhead.interrupts));
            line.part(Tone::Plain, times);
        }
        None => _ = line.part(Tone::Dim, "interrupts unknown"),
    }
    match overhead.programs_s {
        Some(programs) => line.part(Tone::Plain, format!("+ BPF {}", seconds(programs))),
        None => line.part(Tone::Dim, "+ BPF unknown"),
    };
    let least = if overhead.is_partial() { "at least " } else { "" };
    line.part(Tone::Plain, format!("+ collector {}", seconds(overhead.collector_s)))
        .part(Tone::Strong, format!("= {least}{}", seconds(overhead.all_s)))
        .part(Tone::Plain, format!("· {least}{:.2} % of the machine", overhead.percent_of_machine));
    if let Some((percent, target)) = overhead.percent_of_target.zip(overhead.target_s) {
        line.part(Tone::Strong, format!("· {least}{percent:.1} % of the target's {}", seconds(target)));
    }
    if let Some(percent) = overhead.on_target_percent {
        line.part(Tone::Plain, format!("({percent:.1} % on the target itself)"));
    }
    line
}
