//! The output of `fpprof diff` for two profiles. Its JSON is the model itself ([`crate::json::value`]).

use crate::escape::shown;
use crate::figures::{count, plural, share};
use crate::terminal::{Cell, Column, Paragraph, Style, Table, Tone};
use fpprof_analysis::changes::{Change, Changes, Shift, Side};
use std::io::{self, Write};

/// The most functions listed; the JSON has all.
const MAX_FUNCTIONS: usize = 24;
/// Changes smaller than this many percentage points are not listed.
const MIN_POINTS: f64 = 0.05;
/// Column in which the text after a label starts.
const INDENT: usize = 10;

/// Writes which profile is before and which after, and the functions that changed; growth has a plus sign.
///
/// # Errors
/// If the writer fails.
pub fn terminal(changes: &Changes, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    side("before", &changes.before).write(style, out)?;
    side("after", &changes.after).write(style, out)?;
    let is_large = |change: &&Change| {
        [change.self_samples, change.total_samples].iter().any(|shift| shift.points.abs() >= MIN_POINTS)
    };
    let large: Vec<&Change> = changes.functions.iter().filter(is_large).collect();
    if large.is_empty() {
        writeln!(out, "\nno function's share changed by {MIN_POINTS} percentage points or more")?;
    } else {
        style.heading("Functions by change of their share (after minus before, in percentage points)", out)?;
        table(&large).write(style, out)?;
        note(changes, large.len()).write(style, out)?;
    }
    style.list_warnings(&changes.warnings, out)
}

fn side(label: &str, side: &Side) -> Paragraph {
    let mut line = Paragraph::new(label, INDENT);
    line.part(Tone::Strong, shown(&side.label))
        .part(Tone::Plain, format!("· {}", shown(&side.strategy)))
        .part(Tone::Plain, format!("· {} sample{}", count(side.samples), plural(side.samples)))
        .part(Tone::Plain, format!("· {} of the stacks complete", share(side.complete, side.stacks())));
    if side.no_stack > 0 {
        let (n, s) = (count(side.no_stack), plural(side.no_stack));
        line.part(Tone::Plain, format!("· {n} sample{s} without a user stack"));
    }
    line
}

fn table(changes: &[&Change]) -> Table {
    let mut table = Table::new(vec![
        Column::right("self before"),
        Column::right("after"),
        Column::right("change"),
        Column::right("total before"),
        Column::right("after"),
        Column::right("change"),
        Column::left("function").shrinking(20),
        Column::left("file").shrinking(8),
    ]);
    for change in changes.iter().take(MAX_FUNCTIONS) {
        let mut cells: Vec<Cell> = Vec::new();
        for shift in [&change.self_samples, &change.total_samples] {
            cells.extend([percent(shift.before_percent).into(), percent(shift.after_percent).into(), points(shift)]);
        }
        cells.extend([shown(&change.name).into(), Cell::new(Tone::Dim, shown(&change.module))]);
        table.row(cells);
    }
    table
}

/// Explains the figures, and counts the functions that are not listed.
fn note(changes: &Changes, n_large: usize) -> Paragraph {
    let mut note = Paragraph::new("", 2);
    let has_interval = changes.functions.iter().any(|change| change.total_samples.interval.is_some());
    note.words(
        Tone::Dim,
        match has_interval {
            true => {
                "[]: the 95 % interval of sampling alone; changes whose interval has 0 are dim, and of twenty functions \
                 without a change one is not. Two runs can differ by more."
            }
            false => "Both sides are the same samples, unwound differently.",
        },
    );
    let n_more = changes.functions.len().saturating_sub(n_large.min(MAX_FUNCTIONS));
    if n_more > 0 {
        note.words(Tone::Dim, &format!("{n_more} more with --json."));
    }
    note
}

fn percent(percent: f64) -> String {
    match percent {
        0.0 => "–".to_owned(),
        small if small < 0.05 => "<0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

/// A cell such as `+12.3 [+11.2, +13.5]`, dim if the change is not significant.
fn points(shift: &Shift) -> Cell {
    if shift.points.abs() < MIN_POINTS {
        return Cell::new(Tone::Dim, "0.0");
    }
    let signed = |points: f64| format!("{points:+.1}").replace('-', "−");
    // The interval of a small share is not symmetric.
    let interval = shift.interval.map_or(String::new(), |i| format!(" [{}, {}]", signed(i.low), signed(i.high)));
    let tone = match shift.points > 0.0 {
        _ if !shift.differs() => Tone::Dim,
        true => Tone::Bad,
        false => Tone::Good,
    };
    Cell::new(tone, format!("{}{interval}", signed(shift.points)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_analysis::statistics::Interval;

    fn shift(before: f64, after: f64, half: Option<f64>) -> Shift {
        let points = after - before;
        let interval = half.map(|half| Interval { low: points - half, high: points + half });
        Shift { before: 0, after: 0, before_percent: before, after_percent: after, points, interval }
    }

    fn changes(half: Option<f64>) -> Changes {
        let change = |name: &str, own: (f64, f64), total: (f64, f64)| Change {
            name: name.to_owned(),
            module: "prog".to_owned(),
            self_samples: shift(own.0, own.1, half),
            total_samples: shift(total.0, total.1, half),
        };
        let side = |label: &str, samples| Side {
            label: label.to_owned(),
            strategy: "dwarf".to_owned(),
            samples,
            no_stack: 0,
            complete: samples - 1,
        };
        Changes {
            before: side("old.fpprof", 1_000),
            after: side("new\x1b[31m.fpprof", 2_000),
            functions: vec![
                change("grew", (10.0, 40.0), (10.0, 41.0)),
                change("shrank", (50.0, 20.04), (60.0, 60.01)),
                change("noise", (0.0, 1.0), (0.02, 1.0)),
                change("still", (0.0, 0.01), (100.0, 100.0)),
            ],
            warnings: vec!["gone".to_owned()],
        }
    }

    fn text(changes: &Changes) -> String {
        let mut out = Vec::new();
        terminal(changes, &Style::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    const EXPECTED: &str = "\
before    old.fpprof · dwarf · 1,000 samples · 99.9 % of the stacks complete
after     new\\u{1b}[31m.fpprof · dwarf · 2,000 samples · 99.9 % of the stacks complete

Functions by change of their share (after minus before, in percentage points)
  self before   after                change  total before   after                change  function  file
       10.0 %  40.0 %  +30.0 [+28.5, +31.5]        10.0 %  41.0 %  +31.0 [+29.5, +32.5]  grew      prog
       50.0 %  20.0 %  −30.0 [−31.5, −28.5]        60.0 %  60.0 %                   0.0  shrank    prog
            –   1.0 %     +1.0 [−0.5, +2.5]        <0.1 %   1.0 %     +1.0 [−0.5, +2.5]  noise     prog
  []: the 95 % interval of sampling alone; changes whose interval has 0 are dim, and of twenty functions without a \
change one is not. Two runs can differ by more. 1 more with --json.
  ! gone
";

    /// Check the whole text: growth has a plus, "before" comes before "after", hostile labels are escaped.
    #[test]
    fn growth_has_a_plus() {
        assert_eq!(text(&changes(Some(1.5))), EXPECTED);
    }

    /// Check that two views of the same samples have no interval, and that the text explains it.
    #[test]
    fn views_have_no_interval() {
        let text = text(&changes(None));
        assert!(!text.contains(" [") && text.contains("+30.0 ") && text.contains("unwound differently"), "{text}");
    }

    /// Check that the text says so if nothing changed.
    #[test]
    fn no_change_is_reported() {
        let none = Changes { functions: Vec::new(), ..changes(None) };
        assert!(text(&none).contains("no function's share changed"));
    }
}
