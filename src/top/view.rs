//! The state of the view, and the effect of keys on it. Independent of any terminal.

use super::analyst::ViewUpdate;
use super::table::{Count, Ends, Key, Window};
use fpprof_collector::Progress;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Everything that is on the screen.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) target: String,
    pub(crate) how: String,
    pub(crate) progress: Progress,
    pub(crate) cost: Cost,
    /// The available strategies, including the one shown.
    pub(crate) strategies: Vec<String>,
    pub(crate) strategy: String,
    pub(crate) by_process: bool,
    pub(crate) sorts_by_total: bool,
    pub(crate) filter: String,
    /// Whether the filter is being typed.
    pub(crate) is_typing: bool,
    /// Index of the first row on the screen.
    pub(crate) first: usize,
    pub(crate) left_out: u64,
    pub(crate) failure: Option<String>,
    window: Window,
    /// Number of rows that fit, at the last draw.
    pub(crate) page: usize,
}

/// The resource use of this process and its workers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Cost {
    /// Per cent of one CPU over the last second.
    pub(crate) cpu_percent: f64,
    pub(crate) rss_bytes: u64,
}

/// What a key requests beyond a change of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Nothing,
    Quit,
}

impl View {
    pub(crate) fn new(target: String, window_seconds: usize) -> Self {
        Self {
            target,
            how: String::new(),
            progress: Progress::default(),
            cost: Cost::default(),
            strategies: Vec::new(),
            strategy: String::new(),
            by_process: false,
            sorts_by_total: false,
            filter: String::new(),
            is_typing: false,
            first: 0,
            left_out: 0,
            failure: None,
            window: Window::new(window_seconds),
            page: 0,
        }
    }

    /// Updates the view with the results of a second.
    pub(crate) fn update(&mut self, update: ViewUpdate) {
        match update {
            ViewUpdate::Counted { by_strategy, left_out, how } => {
                self.strategies = by_strategy.keys().cloned().collect();
                if !self.strategies.contains(&self.strategy) {
                    self.strategy = self.strategies.first().cloned().unwrap_or_default();
                    self.choose_by_cfi();
                }
                self.window.push(by_strategy);
                self.left_out = self.left_out.saturating_add(left_out);
                (self.how, self.failure) = (how, None);
            }
            ViewUpdate::Failed(words) => self.failure = Some(words),
        }
    }

    /// Handles a key.
    pub(crate) fn handle_key(&mut self, key: KeyEvent) -> Wanted {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Wanted::Quit } else { Wanted::Nothing };
        }
        if self.is_typing {
            self.type_filter(key.code);
            return Wanted::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return Wanted::Quit,
            KeyCode::Char('f') => self.choose("fp"),
            KeyCode::Char('d') => self.choose_by_cfi(),
            KeyCode::Char('p') => self.by_process = !self.by_process,
            KeyCode::Char('t') => self.sorts_by_total = !self.sorts_by_total,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::Down => self.first = self.first.saturating_add(1),
            KeyCode::PageUp => self.first = self.first.saturating_sub(self.page),
            KeyCode::PageDown => self.first = self.first.saturating_add(self.page),
            KeyCode::Home => self.first = 0,
            _ => {}
        }
        Wanted::Nothing
    }

    /// Chooses the strategy by call frame information, in user space or in the kernel: only one of them exists.
    fn choose_by_cfi(&mut self) {
        ["dwarf", "cfi"].into_iter().for_each(|strategy| self.choose(strategy));
    }

    fn choose(&mut self, strategy: &str) {
        if self.strategies.iter().any(|name| name == strategy) {
            strategy.clone_into(&mut self.strategy);
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            // A filter longer than the screen is wide is useless.
            KeyCode::Char(c) if self.filter.len() < 256 => self.filter.push(c),
            _ => {}
        }
        self.first = 0;
    }

    /// How stacks ended under a strategy, over the window.
    pub(crate) fn ends(&self, strategy: &str) -> Ends {
        self.window.ends(strategy)
    }

    /// The rows, sorted and filtered; keeps `first` within them.
    pub(crate) fn rows(&mut self) -> Vec<(Key, Count)> {
        let mut rows = self.window.rows(&self.strategy, self.by_process);
        let filter = self.filter.to_lowercase();
        let is_in = |text: &str| text.to_lowercase().contains(&filter);
        rows.retain(|(key, _)| filter.is_empty() || is_in(&key.name) || is_in(&key.module) || is_in(&key.comm));
        let weight = |count: &Count| match self.sorts_by_total {
            true => (count.total, count.own),
            false => (count.own, count.total),
        };
        rows.sort_unstable_by(|(a, x), (b, y)| weight(y).cmp(&weight(x)).then_with(|| a.cmp(b)));
        self.first = self.first.min(rows.len().saturating_sub(1));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::table::{Counts, OwnedKey};
    use std::collections::BTreeMap;

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    fn counts(names: &[(&str, u64, u64)]) -> Counts {
        let row = |&(name, own, total): &(&str, u64, u64)| {
            let key = OwnedKey { name: name.to_owned(), module: "lib".to_owned(), comm: "prog".to_owned(), pid: 7 };
            (key, Count { own, total })
        };
        Counts { rows: names.iter().map(row).collect(), ends: Ends::default() }
    }

    fn view() -> View {
        let mut view = View::new("prog".to_owned(), 10);
        let by_strategy = BTreeMap::from([
            ("dwarf".to_owned(), counts(&[("main", 1, 100), ("hot", 90, 90), ("warm", 9, 95)])),
            ("fp".to_owned(), counts(&[("hot", 100, 100)])),
        ]);
        view.update(ViewUpdate::Counted { by_strategy, left_out: 0, how: "both".to_owned() });
        view
    }

    fn names(view: &mut View) -> Vec<String> {
        view.rows().iter().map(|(key, _)| key.name.to_string()).collect()
    }

    /// Check that keys choose the strategy, the order and the grouping, and that `q` requests the end.
    #[test]
    fn keys_do_what_they_say() {
        let mut view = view();
        assert_eq!(view.strategy, "dwarf");
        assert_eq!(names(&mut view), ["hot", "warm", "main"]);
        view.handle_key(key(KeyCode::Char('t')));
        assert_eq!(names(&mut view), ["main", "warm", "hot"]);
        view.handle_key(key(KeyCode::Char('f')));
        assert_eq!(names(&mut view), ["hot"]);
        assert!(view.rows()[0].0.comm.is_empty());
        view.handle_key(key(KeyCode::Char('p')));
        assert_eq!((&*view.rows()[0].0.comm, view.rows()[0].0.pid), ("prog", 7));
        view.handle_key(key(KeyCode::Char('d')));
        assert_eq!(view.strategy, "dwarf");
        assert_eq!(view.handle_key(key(KeyCode::Char('q'))), Wanted::Quit);
        assert_eq!(view.handle_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Wanted::Quit);
    }

    /// Check that a filter can be typed and cleared, that its letters are no commands, and that scrolling stays in
    /// range.
    #[test]
    fn rows_are_filtered_and_scrolled() {
        let mut view = view();
        for code in ['/', 'W', 'a', 'q'].map(KeyCode::Char) {
            assert_eq!(view.handle_key(key(code)), Wanted::Nothing);
        }
        view.handle_key(key(KeyCode::Backspace));
        assert_eq!(names(&mut view), ["warm"]);
        view.handle_key(key(KeyCode::Enter));
        assert_eq!(view.handle_key(key(KeyCode::Char('q'))), Wanted::Quit);
        view.handle_key(key(KeyCode::Esc));
        assert_eq!(names(&mut view).len(), 3);
        for _ in 0..9 {
            view.handle_key(key(KeyCode::Down));
        }
        view.rows();
        assert_eq!(view.first, 2);
        view.handle_key(key(KeyCode::Up));
        assert_eq!(view.first, 1);
        view.handle_key(key(KeyCode::Home));
        assert_eq!(view.first, 0);
    }

    /// Check that an unavailable strategy cannot be chosen, and that a failure is shown until the next second.
    #[test]
    fn what_is_not_there_is_not_shown() {
        let mut view = View::new("prog".to_owned(), 1);
        assert!(view.rows().is_empty());
        view.handle_key(key(KeyCode::Char('f')));
        assert!(view.strategy.is_empty());
        view.update(ViewUpdate::Failed("broken".to_owned()));
        assert_eq!(view.failure.as_deref(), Some("broken"));
        let by_strategy = BTreeMap::from([("fp".to_owned(), counts(&[("a", 1, 1)]))]);
        view.update(ViewUpdate::Counted { by_strategy, left_out: 2, how: String::new() });
        assert_eq!((view.strategy.as_str(), view.left_out, view.failure.as_deref()), ("fp", 2, None));
    }
}
