//! Takes over the terminal for the view, and restores it.

use anyhow::Context as _;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The terminal while the view uses it. Dropping it restores the terminal, also in a panic.
///
/// The profiled command has the same standard streams, and would write over the view and read its keys. So they are
/// redirected to `/dev/null` meanwhile; the view is drawn to a copy, and keys are read from `/dev/tty`.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(crate) terminal: Terminal<CrosstermBackend<File>>,
    // Dropped after the terminal, which complains to stderr if it is gone.
    streams: Streams,
}

/// The standard streams, put back on drop.
#[derive(Debug)]
struct Streams([OwnedFd; 3]);

impl Screen {
    /// Takes over the terminal.
    ///
    /// # Errors
    /// If there is no terminal.
    pub(crate) fn take() -> anyhow::Result<Self> {
        let copy = || std::io::stdout().as_fd().try_clone_to_owned().context("copying stdout");
        let streams = Streams([
            std::io::stdin().as_fd().try_clone_to_owned().context("copying stdin")?,
            copy()?,
            std::io::stderr().as_fd().try_clone_to_owned().context("copying stderr")?,
        ]);
        let terminal = Terminal::new(CrosstermBackend::new(File::from(copy()?))).context("drawing on the terminal")?;
        let mut screen = Self { terminal, streams };
        let nowhere = File::options().read(true).write(true).open("/dev/null").context("opening /dev/null")?;
        rustix::stdio::dup2_stdin(&nowhere).context("detaching stdin")?;
        rustix::stdio::dup2_stdout(&nowhere).context("detaching stdout")?;
        rustix::stdio::dup2_stderr(&nowhere).context("detaching stderr")?;
        enable_raw_mode().context("taking the terminal")?;
        execute!(screen.terminal.backend_mut(), EnterAlternateScreen, Hide).context("taking the terminal")?;
        Ok(screen)
    }

    /// The terminal's file descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        let Streams([_, stdout, _]) = &self.streams;
        stdout.as_fd()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Errors are ignored: a terminal that is gone needs no restoring, and there is nowhere to report them.
        let _ = execute!(self.terminal.backend_mut(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        let Self([stdin, stdout, stderr]) = self;
        let _ = rustix::stdio::dup2_stdin(stdin);
        let _ = rustix::stdio::dup2_stdout(stdout);
        let _ = rustix::stdio::dup2_stderr(stderr);
    }
}
