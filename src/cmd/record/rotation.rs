//! `--switch-output`: consecutive recordings, each in a file of its own.

use super::args::Args;
use super::file::{closed, print_no_samples, record_file, refused};
use crate::closing::{Destination, print_outcome};
use crate::exit::{DONE, FAILED, print_failure};
use crate::output::{print_message, remove_recording};
use crate::progress::Line;
use crate::values::Switch;
use crate::worker;
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

/// Time between attempts to create a file.
const TRY_AGAIN_MS: u16 = 1000;

/// Records into one file after another until the time is over, the target has ended or `stop` is set.
///
/// # Errors
/// If stderr cannot be written.
pub(super) fn run(
    args: &Args,
    mut request: Request,
    switch: Switch,
    stop: &'static StopFlag,
    line: &mut Line,
) -> anyhow::Result<u8> {
    let ends = args.duration.map(|duration| Instant::now() + duration);
    let mut files = Files { path: args.output(), most: args.switch_max_files, complete: VecDeque::new() };
    let (mut status, mut samples) = (DONE, 0_u64);
    let (mut has_fallen_back, mut has_chosen, mut is_waiting) = (false, false, false);
    let is_over = || stop.signal().is_some() || ends.is_some_and(|ends| ends <= Instant::now());
    loop {
        let left = ends.map(|ends| ends.saturating_duration_since(Instant::now()));
        (request.duration, request.max_bytes) = match switch {
            Switch::After(time) => (Some(left.map_or(time, |left| left.min(time))), None),
            Switch::AtBytes(bytes) => (left, Some(bytes)),
        };
        // A new parser per file, because its counts and CPU time belong to one recording.
        request.parser = worker::parser(request.mode)?;
        let file = files.next(Timestamp::now());
        let recorded = record_file(&request, &file, stop, &mut |update| match update {
            // The same for all files; printed once.
            Update::Fallback(_) if std::mem::replace(&mut has_fallen_back, true) => {}
            Update::Mode(_) if std::mem::replace(&mut has_chosen, true) => {}
            update => line.update(update),
        });
        line.clear();
        let outcome = match recorded {
            Ok(outcome) => outcome,
            // The cgroup was removed between two files.
            Err(Error::NoSuchCgroup { .. }) if !files.complete.is_empty() => break,
            // The disk may be temporarily full or unmounted.
            Err(error @ Error::Recording(_)) if !files.complete.is_empty() => {
                status = FAILED;
                if !std::mem::replace(&mut is_waiting, true) {
                    let error = anyhow::Error::from(error).context(file.display().to_string());
                    print_failure(&error, "not recording, trying again every second");
                }
                pause(stop)?;
                if is_over() {
                    break;
                }
                continue;
            }
            Err(error) => return Ok(refused(error, &file)),
        };
        is_waiting = false;
        samples = samples.saturating_add(outcome.samples);
        status = status.max(close(args, &outcome, &file)?);
        if !files.add(file, outcome.end.reason) {
            pause(stop)?;
        }
        if outcome.samples == 0 && outcome.end.reason == EndReason::MaxSize {
            print_message(
                "fpprof: no samples: a file reached --switch-output before the first sample; pass a larger size",
            );
            return Ok(FAILED);
        }
        let is_target_gone = outcome.end.reason == EndReason::TargetsGone;
        if is_target_gone || is_over() {
            break;
        }
    }
    // If a file could not be written, that is the reason.
    if samples == 0 && status == DONE {
        print_no_samples(args, EndReason::Duration);
        return Ok(FAILED);
    }
    Ok(status)
}

/// Waits until the next attempt, or until the recording is to end.
fn pause(stop: &StopFlag) -> anyhow::Result<()> {
    let flag = PollFd::new(stop.as_fd(), PollFlags::POLLIN);
    match poll(&mut [flag], TRY_AGAIN_MS) {
        // A signal also ends the wait.
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Prints how a file closed, and returns its exit status. A file without samples is no failure: others may have some.
fn close(args: &Args, outcome: &Outcome, file: &Path) -> anyhow::Result<u8> {
    if outcome.samples > 0 || matches!(outcome.end.reason, EndReason::WriteFailed(_)) {
        return closed(args, outcome, file);
    }
    if !args.quiet {
        print_outcome(outcome, args.tick_s(), Destination::Recording(file))?;
    }
    Ok(DONE)
}

/// The files of a recording.
#[derive(Debug)]
struct Files<'a> {
    /// The prefix of their names.
    path: &'a Path,
    most: Option<NonZeroUsize>,
    complete: VecDeque<PathBuf>,
}

impl Files<'_> {
    /// The path of the file that begins now: with the time in UTC, and a number if that file exists.
    fn next(&self, now: Timestamp) -> PathBuf {
        let mut name = OsString::from(self.path);
        name.push(now.strftime(".%Y%m%dT%H%M%SZ").to_string());
        let (mut path, mut n) = (PathBuf::from(&name), 1_u64);
        while self.complete.contains(&path) || path.exists() {
            n += 1;
            let mut numbered = name.clone();
            numbered.push(format!("-{n}"));
            path = PathBuf::from(numbered);
        }
        path
    }

    /// Adds a file, and removes the oldest if there are too many. One that could not be written to its end goes before the others:
    /// while the disk fails, the recordings from before stay. Returns whether it could.
    fn add(&mut self, file: PathBuf, reason: EndReason) -> bool {
        let is_whole = !matches!(reason, EndReason::WriteFailed(_));
        match is_whole {
            true => self.complete.push_back(file),
            false => self.complete.push_front(file),
        }
        while self.most.is_some_and(|most| self.complete.len() > most.get())
            && let Some(oldest) = self.complete.pop_front()
        {
            if let Err(error) = remove_recording(&oldest) {
                print_message(&format!("fpprof: cannot remove the oldest recording {}: {error:#}", oldest.display()));
            }
        }
        is_whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the oldest file goes first, and before it one that could not be written to its end.
    #[test]
    fn whole_files_stay_while_the_disk_fails() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut files = Files { path: dir.path(), most: NonZeroUsize::new(2), complete: VecDeque::new() };
        let mut add = |name: &str, is_whole| {
            let path = dir.path().join(name);
            std::fs::write(&path, "").expect("written");
            let reason = if is_whole { EndReason::Duration } else { EndReason::WriteFailed(28) };
            assert_eq!(files.add(path, reason), is_whole);
            ["a", "b", "c", "d"].into_iter().filter(|name| dir.path().join(name).exists()).collect::<String>()
        };
        assert_eq!([add("a", true), add("b", true), add("c", false), add("d", true)], ["a", "ab", "ab", "bd"]);
    }
}
