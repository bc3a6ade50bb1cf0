//! Draws the view on a screen.

use super::table::{Count, Ends, Key};
use super::view::View;
use fpprof_analysis::statistics;
use fpprof_reports::escape::shown;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Wrap};

const KEYS: &str = "q quit  f/d fp or CFI  p by process  t sort by total  / filter  Esc clear  ↑↓ scroll";

/// Draws the whole view. Names come from the profiled programs: their control characters are escaped.
pub(crate) fn draw(view: &mut View, frame: &mut Frame<'_>) {
    let areas = Layout::vertical([Constraint::Length(4), Constraint::Min(2), Constraint::Length(1)]);
    let [head, body, foot] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(head_lines(view)).wrap(Wrap { trim: true }), head);
    view.page = usize::from(body.height.saturating_sub(1));
    let rows = view.rows();
    frame.render_widget(table(view, &rows), body);
    let typed = format!("/{}", shown(&view.filter));
    let line = match (view.is_typing, view.filter.is_empty()) {
        (true, _) => {
            Line::from(vec![Span::raw(typed), Span::styled(" ", Style::new().add_modifier(Modifier::REVERSED))])
        }
        (false, true) => Line::from(Span::styled(KEYS, dim())),
        (false, false) => Line::from(vec![Span::raw(typed), Span::styled(format!("  {KEYS}"), dim())]),
    };
    frame.render_widget(Paragraph::new(line), foot);
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn head_lines(view: &View) -> Vec<Line<'_>> {
    let progress = &view.progress;
    let seconds = progress.elapsed.as_secs();
    let warn = Style::new().add_modifier(Modifier::BOLD);
    let gone = progress.lost.saturating_add(progress.dropped);
    let mut counts = vec![
        Span::raw(format!("{seconds} s  {} samples  ", progress.samples)),
        Span::styled(
            format!("{} lost  {} dropped", progress.lost, progress.dropped),
            if gone > 0 { warn } else { dim() },
        ),
        Span::raw(format!(
            "  own cost {:.1} % of a CPU, {:.0} MB",
            view.cost.cpu_percent,
            view.cost.rss_bytes as f64 / 1e6
        )),
    ];
    if view.left_out > 0 {
        counts.push(Span::styled(format!("  {} blocks skipped: too much data", view.left_out), warn));
    }
    let stacks = view.strategies.iter().flat_map(|name| strategy_spans(view, name)).collect::<Vec<_>>();
    let last = match &view.failure {
        Some(words) => Line::from(Span::styled(shown(words).into_owned(), warn)),
        None if view.strategies.is_empty() => Line::from(Span::styled("waiting for the first samples …", dim())),
        None => Line::from(stacks),
    };
    let title = format!("fpprof top  {}", shown(&view.target));
    vec![
        Line::from(vec![Span::styled(title, warn), Span::styled(format!("  {}", shown(&view.how)), dim())]),
        Line::from(counts),
        last,
    ]
}

fn strategy_spans<'a>(view: &View, name: &str) -> [Span<'a>; 2] {
    let Ends { samples, complete, truncated, broken } = view.ends(name);
    let share = |part: u64| percent(part, samples);
    let words = format!(
        "{}: complete {}, truncated {}, broken {}",
        shown(name),
        share(complete),
        share(truncated),
        share(broken)
    );
    let style = if view.strategy == name { Style::new().add_modifier(Modifier::REVERSED) } else { dim() };
    [Span::styled(words, style), Span::raw("   ")]
}

fn table<'a>(view: &View, rows: &[(Key, Count)]) -> Table<'a> {
    let samples = view.ends(&view.strategy).samples;
    let row = |(key, count): &(Key, Count)| {
        let mut cells = vec![
            Cell::from(format!("{:>7}", percent(count.own, samples))),
            Cell::from(format!("{:>7}", percent(count.total, samples))),
        ];
        if view.by_process {
            // The rest is grouped by process name, without a pid.
            let pid = if key.pid == 0 { String::new() } else { format!("{} ", key.pid) };
            cells.push(Cell::from(format!("{pid}{}", shown(&key.comm))));
        }
        cells.push(Cell::from(shown(&key.name).into_owned()));
        cells.push(Cell::from(shown(&key.module).into_owned()));
        Row::new(cells)
    };
    let (own, total) = if view.sorts_by_total { ("   self", " total▼") } else { ("  self▼", "  total") };
    let mut names = vec![own, total];
    let mut widths = vec![Constraint::Length(7), Constraint::Length(7)];
    if view.by_process {
        names.push("process");
        widths.push(Constraint::Length(24));
    }
    names.extend(["function", "module"]);
    widths.extend([Constraint::Fill(3), Constraint::Fill(1)]);
    let header = Row::new(names).style(Style::new().add_modifier(Modifier::UNDERLINED));
    Table::new(rows.iter().skip(view.first).take(view.page).map(row), widths).header(header)
}

fn percent(part: u64, whole: u64) -> String {
    statistics::percent(part, whole).map_or("–".to_owned(), |percent| format!("{percent:.1} %"))
}

#[cfg(test)]
#[path = "../../reports/tests/support/names.rs"]
mod names;

#[cfg(test)]
mod tests {
    use super::names::hostile;
    use super::*;
    use crate::top::analyst::ViewUpdate;
    use crate::top::table::{Counts, OwnedKey};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::collections::BTreeMap;

    fn screen(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        terminal.draw(|frame| draw(view, frame)).expect("it can be drawn on");
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
    }

    fn view(name: &str) -> View {
        let mut view = View::new("prog \u{1b}[2J".to_owned(), 10);
        let key = OwnedKey { name: name.to_owned(), module: "lib\n".to_owned(), comm: "c\u{7}".to_owned(), pid: 42 };
        let ends = Ends { samples: 200, complete: 150, truncated: 40, broken: 10 };
        let counts = Counts { rows: vec![(key, Count { own: 100, total: 180 })], ends };
        let by_strategy = BTreeMap::from([("dwarf".to_owned(), counts)]);
        view.update(ViewUpdate::Counted { by_strategy, left_out: 0, how: "both,65536".to_owned() });
        view
    }

    /// Check that shares, losses, own cost and the broken share are on the screen.
    #[test]
    fn everything_is_shown() {
        let mut view = view("hot_function");
        view.progress.lost = 3;
        view.by_process = true;
        let text = screen(&mut view, 120, 12);
        let row = text.lines().find(|line| line.contains("hot_function")).expect("a row");
        assert!(row.contains("50.0 %") && row.contains("90.0 %") && row.contains("42 c"), "{row}");
        for words in ["3 lost", "own cost", "complete 75.0 %, truncated 20.0 %, broken 5.0 %", "both,65536", "q quit"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    /// Check that names cannot control the terminal: no control character reaches the screen, and its escape is
    /// readable.
    #[test]
    fn control_characters_are_harmless() {
        let mut view = view("a\u{1b}]0;title\u{7}b\u{9b}31mc\u{202e}d");
        view.failure = Some("x\u{1b}[H".to_owned());
        view.by_process = true;
        let text = screen(&mut view, 150, 12);
        assert!(!text.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')), "{text:?}");
        assert!(text.contains("\\u{1b}]0;title"), "{text}");
    }

    /// Check that a hostile name affects only its own row.
    #[test]
    fn hostile_names_stay_in_their_rows() {
        let rows = |name: &str| {
            let mut view = view(name);
            view.failure = Some(name.to_owned());
            view.by_process = true;
            let text = screen(&mut view, 150, 12);
            let nonprinting =
                |c: char| matches!(u32::from(c), 0x61C | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0xFEFF);
            assert!(!text.chars().any(|c| c != '\n' && (c.is_control() || nonprinting(c))), "{name:?}: {text:?}");
            text.lines().filter(|line| line.contains("50.0 %")).count()
        };
        hostile().iter().for_each(|name| assert_eq!(rows(name), rows("name"), "{name:?}"));
    }

    /// Check that no screen size is too small.
    #[test]
    fn any_size_will_do() {
        for (width, height) in [(1, 1), (3, 4), (10, 5), (300, 6)] {
            screen(&mut view("f"), width, height);
        }
    }
}
