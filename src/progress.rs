//! One line on the terminal while a recording runs.

use crate::output::print_message;
use crate::values::mode_name;
use fpprof_collector::{ModeChoice, Progress, Update};
use std::io::{self, IsTerminal as _, Write};

/// What of stacks is recorded, in words.
pub(crate) fn mode_choice(ModeChoice { mode, why }: &ModeChoice) -> String {
    format!("--call-graph {}: {why}", mode_name(*mode))
}

/// The line.
#[derive(Debug)]
pub(crate) struct Line {
    is_shown: bool,
    is_quiet: bool,
    is_dirty: bool,
}

impl Line {
    /// A line that is only drawn where somebody sees it.
    pub(crate) fn new(is_quiet: bool) -> Self {
        Self { is_shown: !is_quiet && io::stderr().is_terminal(), is_quiet, is_dirty: false }
    }

    /// Shows what is heard of a recording.
    pub(crate) fn update(&mut self, update: Update<'_>) {
        match update {
            Update::Fallback(fallback) => print_message(&format!("fpprof: {fallback}")),
            Update::Mode(choice) if !self.is_quiet => print_message(&format!("fpprof: {}", mode_choice(choice))),
            Update::Mode(_) => {}
            Update::Progress(now) => self.show(now),
        }
    }

    /// Draws it anew.
    #[expect(clippy::cast_precision_loss, reason = "a rate for the eye")]
    fn show(&mut self, now: &Progress) {
        if !self.is_shown {
            return;
        }
        let seconds = now.elapsed.as_secs_f64();
        let rate = if seconds > 0.0 { now.bytes_written as f64 / 1e6 / seconds } else { 0.0 };
        let gone = now.lost.saturating_add(now.dropped);
        let line = format!("{seconds:7.1} s  {} samples  {gone} lost  {rate:.2} MB/s", now.samples);
        // A closed stderr leaves nobody to tell.
        let _ = write!(io::stderr().lock(), "\r\x1b[K{line}");
        self.is_dirty = true;
    }

    /// Takes it away.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_dirty) {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}
