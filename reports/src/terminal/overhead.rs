//! The parts of the cost of recording.

use super::paint::INDENT;
use super::{Paragraph, Style, Tone};
use crate::figures::{byte_count, count, nanoseconds, seconds};
use fpprof_analysis::overhead::Overhead;
use std::io::{self, Write};

/// Writes the parts, their sum as shares of the machine and of the target, and the bytes written.
pub(super) fn overhead(overhead: &Overhead, style: &Style, out: &mut dyn Write) -> io::Result<()> {
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

/// The same parts and sum on one line.
pub(crate) fn overhead_words(overhead: &Overhead) -> String {
    parts(overhead).text()
}

/// The share of the machine. A very short recording may take longer to close than it lasted; then there is no
/// meaningful share.
fn machine(overhead: &Overhead, least: &str) -> String {
    if overhead.percent_of_machine > 100.0 {
        format!("· more than the machine's {}", seconds(overhead.machine_s))
    } else {
        format!("· {least}{:.2} % of the machine", overhead.percent_of_machine)
    }
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
        .part(Tone::Plain, machine(overhead, least));
    if let Some((percent, all)) = overhead.percent_of_target.zip(overhead.target_s) {
        let all = seconds(all);
        let share = if percent > 100.0 {
            format!("· more than the target's {all}")
        } else {
            format!("· {least}{percent:.2} % of the target's {all} without interrupts elsewhere")
        };
        line.part(Tone::Strong, share);
    }
    if let Some(percent) = overhead.on_target_percent {
        line.part(Tone::Plain, format!("({percent:.2} % on the target itself)"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a very short recording, whose cost is more than all CPU time available, has no shares above 100 %.
    #[test]
    fn moments_have_no_shares() {
        let words = |of_machine, of_target| {
            overhead_words(&Overhead {
                interrupts: 3,
                interrupt_ns: None,
                interrupts_s: None,
                programs_s: None,
                collector_s: 0.04,
                all_s: 0.04,
                machine_s: 0.02,
                target_s: Some(0.01),
                percent_of_machine: of_machine,
                percent_of_target: Some(of_target),
                on_target_percent: None,
                written_bytes: None,
                to_disk_bytes: None,
            })
        };
        let moment = words(200.0, 400.0);
        assert!(moment.ends_with("· more than the machine's 0.02 s · more than the target's 0.01 s"), "{moment}");
        let longer = words(2.0, 4.0);
        assert!(
            longer.ends_with(
                "· at least 2.00 % of the machine · at least 4.00 % of the target's 0.01 s without interrupts elsewhere"
            ),
            "{longer}"
        );
    }
}
