//! The progress line on the terminal while a recording runs.

use crate::output::{draw, print_message};
use crate::values::mode_name;
use fpprof_collector::{ModeChoice, Progress, Update};
use std::io::{self, IsTerminal as _};

/// Describes the chosen mode and why it was chosen.
pub(crate) fn mode_choice(ModeChoice { mode, why }: &ModeChoice) -> String {
    format!("--call-graph {}: {why}", mode_name(*mode))
}

/// The progress line.
#[derive(Debug)]
pub(crate) struct Line {
    is_shown: bool,
    is_quiet: bool,
    is_dirty: bool,
}

impl Line {
    /// Creates the line, which is only drawn if stderr is a terminal and `is_quiet` is not set.
    pub(crate) fn new(is_quiet: bool) -> Self {
        Self { is_shown: !is_quiet && io::stderr().is_terminal(), is_quiet, is_dirty: false }
    }

    /// Shows an update of a recording.
    pub(crate) fn update(&mut self, update: Update<'_>) {
        match update {
            Update::Fallback(fallback) => print_message(&format!("fpprof: {fallback}")),
            Update::Mode(choice) if !self.is_quiet => print_message(&format!("fpprof: {}", mode_choice(choice))),
            Update::Mode(_) => {}
            Update::Progress(now) => self.show(now),
        }
    }

    /// Redraws the line.
    #[expect(clippy::cast_precision_loss, reason = "a rate for the eye")]
    fn show(&mut self, now: &Progress) {
        if !self.is_shown {
            return;
        }
        let seconds = now.elapsed.as_secs_f64();
        let rate = if seconds > 0.0 { now.bytes_written as f64 / 1e6 / seconds } else { 0.0 };
        let gone = now.lost.saturating_add(now.dropped);
        let line = format!("{seconds:7.1} s  {} samples  {gone} lost  {rate:.2} MB/s", now.samples);
        draw(&format!("\r\x1b[K{line}"));
        self.is_dirty = true;
    }

    /// Erases the line.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_dirty) {
            draw("\r\x1b[K");
        }
    }
}
