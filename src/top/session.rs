//! Records, handles keys and the analyst's updates, and draws, until one of them ends the session.

use super::analyst::{ViewUpdate, work};
use super::draw::draw;
use super::remote;
use super::screen::Screen;
use super::view::{Cost, View, Wanted};
use crate::live;
use crate::output::RecordingFile;
use crate::progress::mode_choice;
use crate::worker::{self, cpu_time, is_privileged, rss_bytes};
use anyhow::Context as _;
use fpprof_collector::{Error, Outcome, Progress, Request, StopFlag, Update};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use ratatui::crossterm::event::{Event, KeyEventKind, poll, read};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Settings of the view.
#[derive(Debug)]
pub(crate) struct ViewConfig<'a> {
    pub(crate) request: Request,
    /// The profiled target in words.
    pub(crate) target: String,
    pub(crate) window_seconds: usize,
    /// The file of the recording, if it is to be kept.
    pub(crate) output: Option<&'a Path>,
}

/// Maximum delay before a key is handled, or an update is displayed.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The screen is redrawn this often without an update: time and losses continue.
const DRAW_EVERY: Duration = Duration::from_secs(1);

/// Shows the view until `q`, a signal, or the end of the target. The terminal is restored before this returns; notices
/// of automatic choices are therefore part of the result.
///
/// # Errors
/// The outer error if there is no terminal to draw on; the inner one if nothing can be recorded.
pub(crate) fn run(
    config: &ViewConfig<'_>,
    stop: &'static StopFlag,
) -> anyhow::Result<(Result<Outcome, Error>, Vec<String>)> {
    let file = config.output.map(|path| RecordingFile::until(path, stop));
    let undo = file.as_ref().map(RecordingFile::undo);
    let (sink, feed) = live::pair(file);
    let (sender, updates) = channel();
    let progress = Mutex::new(Progress::default());
    let choices = Mutex::new(Vec::new());
    let (mut worker, remote) = is_privileged().then(remote::start).transpose()?.unzip();
    let worker_pid = worker.as_ref().map(Child::id);
    let request = Request {
        worker_pid,
        parser: worker::parser(config.request.mode)?,
        drop_privileges: true,
        ..config.request.clone()
    };
    let mut screen = Screen::take()?;
    let (shown, recorded) = std::thread::scope(|scope| {
        let analyst = feed.clone();
        scope.spawn(move || match remote {
            Some(remote) => remote.work(&analyst, &sender),
            None => work(|| analyst.next().map(Into::into), |update| sender.send(update).is_ok()),
        });
        let recorder = scope.spawn(|| {
            let mut on_update = |update: Update<'_>| match update {
                Update::Progress(now) => *progress.lock().unwrap_or_else(PoisonError::into_inner) = *now,
                Update::Fallback(reason) => {
                    choices.lock().unwrap_or_else(PoisonError::into_inner).push(reason.to_string());
                }
                // The view shows the mode, but not why the first choice was not used.
                Update::Mode(choice) if choice.mode != request.mode => {
                    choices.lock().unwrap_or_else(PoisonError::into_inner).push(mode_choice(choice));
                }
                Update::Mode(_) => {}
            };
            fpprof_collector::record(&request, sink, stop, &mut on_update)
        });
        let mut view = View::new(config.target.clone(), config.window_seconds);
        let mut meter = Meter::new(request.parser.pids().into_iter().chain(worker_pid).collect());
        let shown = show(&mut view, &mut screen, &mut meter, &updates, &progress, || recorder.is_finished());
        stop.stop(nix::libc::SIGTERM);
        let recorded = recorder.join();
        // Its further results would not be displayed.
        if let Some(worker) = &mut worker {
            let _ = worker.kill();
            let _ = worker.wait();
        }
        (shown, recorded)
    });
    drop(screen);
    let recorded = recorded.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    if let (Err(_), Some(undo)) = (&recorded, undo) {
        undo.undo();
    }
    shown?;
    Ok((recorded, choices.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

fn show(
    view: &mut View,
    screen: &mut Screen,
    meter: &mut Meter,
    updates: &Receiver<ViewUpdate>,
    progress: &Mutex<Progress>,
    is_over: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let mut drawn: Option<Instant> = None;
    while !is_over() {
        let mut is_new = drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_EVERY);
        while let Ok(one) = updates.try_recv() {
            view.update(one);
            is_new = true;
        }
        if is_new {
            view.progress = *progress.lock().unwrap_or_else(PoisonError::into_inner);
            view.cost = meter.cost(view.cost);
            screen.terminal.draw(|frame| draw(view, frame)).context("drawing")?;
            drawn = Some(Instant::now());
        }
        let has_event = poll(LOOK_EVERY);
        if is_gone(screen.fd())? {
            return Ok(());
        }
        if !has_event.context("waiting for a key")? {
            continue;
        }
        match read().context("reading a key")? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                if view.handle_key(key) == Wanted::Quit {
                    return Ok(());
                }
                drawn = None;
            }
            Event::Resize(..) => drawn = None,
            _ => {}
        }
    }
    Ok(())
}

/// Whether the terminal was closed. Crossterm reports nothing then, or an error.
fn is_gone(terminal: BorrowedFd<'_>) -> anyhow::Result<bool> {
    // The kernel reports these three without being asked.
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    let mut terminal = [PollFd::new(terminal, PollFlags::empty())];
    match nix::poll::poll(&mut terminal, PollTimeout::ZERO) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error).context("polling the terminal"),
    }
    Ok(terminal.iter().filter_map(PollFd::revents).any(|seen| seen.intersects(gone)))
}

/// Measures the resource use of this process and its workers.
struct Meter {
    workers: Vec<u32>,
    at: Instant,
    cpu: Duration,
}

impl Meter {
    fn new(workers: Vec<u32>) -> Self {
        Self { at: Instant::now(), cpu: cpu(&workers), workers }
    }

    /// The cost since the previous call, if enough time has passed; else `last`.
    fn cost(&mut self, last: Cost) -> Cost {
        let elapsed = self.at.elapsed();
        if elapsed < DRAW_EVERY / 2 {
            return last;
        }
        let now = cpu(&self.workers);
        let used = now.saturating_sub(self.cpu);
        (self.at, self.cpu) = (Instant::now(), now);
        let pids = ["self".to_owned()].into_iter().chain(self.workers.iter().map(u32::to_string));
        Cost {
            cpu_percent: 100.0 * used.as_secs_f64() / elapsed.as_secs_f64(),
            rss_bytes: pids.filter_map(|pid| rss_bytes(&pid)).sum(),
        }
    }
}

/// CPU time since the start. Ended workers no longer count.
fn cpu(workers: &[u32]) -> Duration {
    [std::process::id()].iter().chain(workers).copied().map(cpu_time).sum()
}
