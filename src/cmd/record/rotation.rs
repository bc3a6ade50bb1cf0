//! `--switch-output`: one recording after another, each a file of its own.

use super::args::Args;
use super::file::{closed, record_file, refused, say_no_samples};
use crate::closing::say_outcome;
use crate::exit::{DONE, FAILED, told};
use crate::output::{remove_recording, say};
use crate::progress::Line;
use crate::values::Switch;
use fpprof_collector::{Error, Outcome, Request, StopFlag, Update};
use fpprof_recording::model::EndReason;
use jiff::Timestamp;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// So often a file is tried that cannot be made.
const TRY_AGAIN_MS: u16 = 1000;

/// Records into one file after the other until the time is over, the target has ended or `stop` is set.
///
/// # Errors
/// If what is to be said cannot be.
pub(super) fn run(
    args: &Args,
    mut request: Request,
    switch: Switch,
    stop: &'static StopFlag,
    line: &mut Line,
) -> anyhow::Result<u8> {
    let ends = args.duration.map(|duration| Instant::now() + duration);
    let mut files = Files { path: &args.output, most: args.switch_max_files, complete: VecDeque::new() };
    let (mut status, mut samples) = (DONE, 0_u64);
    let (mut has_fallen_back, mut is_without_file) = (false, false);
    let is_over = || stop.signal().is_some() || ends.is_some_and(|ends| ends <= Instant::now());
    loop {
        let left = ends.map(|ends| ends.saturating_duration_since(Instant::now()));
        (request.duration, request.max_bytes) = match switch {
            Switch::After(time) => (Some(left.map_or(time, |left| left.min(time))), None),
            Switch::AtBytes(bytes) => (left, Some(bytes)),
        };
        let file = files.next(Timestamp::now());
        let recorded = record_file(&request, &file, stop, &mut |update| match update {
            // It is the same for all files.
            Update::Fallback(_) if std::mem::replace(&mut has_fallen_back, true) => {}
            update => line.hear(update),
        });
        line.clear();
        let outcome = match recorded {
            Ok(outcome) => outcome,
            // It was removed between two files.
            Err(Error::NoSuchCgroup { .. }) if !files.complete.is_empty() => break,
            // The disk may be full, or away for a while.
            Err(error @ Error::Recording(_)) if !files.complete.is_empty() => {
                status = FAILED;
                if !std::mem::replace(&mut is_without_file, true) {
                    say(&format!("fpprof: {}; nothing is recorded until there is a file", told(&error.into())));
                }
                pause(stop)?;
                if is_over() {
                    break;
                }
                continue;
            }
            Err(error) => return Ok(refused(error)),
        };
        is_without_file = false;
        samples = samples.saturating_add(outcome.samples);
        status = status.max(said(args, &outcome, &file)?);
        files.complete(file);
        let is_target_gone = outcome.end.reason == EndReason::TargetsGone;
        if is_target_gone || is_over() {
            break;
        }
    }
    if samples == 0 {
        say_no_samples(args, EndReason::Duration);
        return Ok(status.max(FAILED));
    }
    Ok(status)
}

/// Until a file is tried again, or the recording is to end.
fn pause(stop: &StopFlag) -> anyhow::Result<()> {
    let flag = PollFd::new(stop.as_fd(), PollFlags::POLLIN);
    match poll(&mut [flag], TRY_AGAIN_MS) {
        // A signal is what it waits for.
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Says how a file closed, and gives its exit status. One without samples is no failure: others may have some.
fn said(args: &Args, outcome: &Outcome, file: &Path) -> anyhow::Result<u8> {
    if outcome.samples > 0 || matches!(outcome.end.reason, EndReason::WriteFailed(_)) {
        return closed(args, outcome, file);
    }
    if !args.quiet {
        say_outcome(outcome, args.tick_s(), file)?;
    }
    Ok(DONE)
}

/// The files of a recording.
#[derive(Debug)]
struct Files<'a> {
    /// What their names begin with.
    path: &'a Path,
    most: Option<NonZeroUsize>,
    complete: VecDeque<PathBuf>,
}

impl Files<'_> {
    /// The path of the file that begins now: the time, in UTC, and a number where that of the file before is the same.
    fn next(&self, now: Timestamp) -> PathBuf {
        let mut name = OsString::from(self.path);
        name.push(now.strftime(".%Y%m%dT%H%M%SZ").to_string());
        let plain = PathBuf::from(&name);
        let numbered = (2_u64..).map(|n| {
            let mut name = name.clone();
            name.push(format!("-{n}"));
            PathBuf::from(name)
        });
        let mut names = std::iter::once(plain).chain(numbered);
        names.find(|name| !self.complete.contains(name) && !name.exists()).unwrap_or_default()
    }

    /// Takes note of a file that is complete, and removes the oldest if they are too many.
    fn complete(&mut self, file: PathBuf) {
        self.complete.push_back(file);
        while self.most.is_some_and(|most| self.complete.len() > most.get())
            && let Some(oldest) = self.complete.pop_front()
        {
            if let Err(error) = remove_recording(&oldest) {
                say(&format!("fpprof: cannot remove the oldest recording {}: {error:#}", oldest.display()));
            }
        }
    }
}
