//! One file of a recording: how it is created, and what is printed at its end.

use super::args::Args;
use crate::closing::{Destination, print_outcome, write_failure};
use crate::exit::{DONE, FAILED, error_chain};
use crate::output::{RecordingFile, print_message};
use fpprof_collector::{Error, Outcome, Request, StopFlag, TargetStatus, Update};
use fpprof_recording::model::{CpuCounters, EndReason};
use std::path::Path;

/// Records into a file; the file is removed if nothing was recorded.
///
/// # Errors
/// As [`fpprof_collector::record`].
pub(super) fn record_file(
    request: &Request,
    path: &Path,
    stop: &'static StopFlag,
    update: &mut dyn FnMut(Update<'_>),
) -> Result<Outcome, Error> {
    let file = RecordingFile::until(path, stop);
    let undo = file.undo();
    fpprof_collector::record(request, file, stop, update).inspect_err(|_error| undo.undo())
}

/// Prints why nothing was recorded to `file`. Returns the exit status; for a command that did not start, it is that of a
/// shell.
pub(super) fn refused(error: Error, file: &Path) -> u8 {
    let status = error.exit_status();
    let of_file = if matches!(error, Error::Recording(_)) { format!("{}: ", file.display()) } else { String::new() };
    print_message(&format!("fpprof: {of_file}{}", error_chain(&error.into())));
    status
}

/// Prints the outcome, and returns the exit status.
///
/// # Errors
/// If stderr cannot be written.
pub(super) fn closed(args: &Args, outcome: &Outcome, file: &Path) -> anyhow::Result<u8> {
    if !args.quiet {
        print_outcome(outcome, args.tick_s(), Destination::Recording(file))?;
    }
    if let Some(failure) = write_failure(outcome, file) {
        print_message(&failure);
        return Ok(FAILED);
    }
    Ok(exit_status(args, outcome))
}

/// The exit status: the command's, or a failure, which is printed.
pub(super) fn exit_status(args: &Args, outcome: &Outcome) -> u8 {
    let status = match outcome.target_status {
        Some(TargetStatus::Exited(status)) => u8::try_from(status & 0xff).unwrap_or(FAILED),
        Some(TargetStatus::Killed(signal)) => {
            u8::try_from(signal).map_or(FAILED, |signal| 128_u8.saturating_add(signal))
        }
        None => DONE,
    };
    if outcome.samples == 0 {
        print_no_samples(args, outcome.end.reason);
        return status.max(FAILED);
    }
    if let Some(failure) = args.max_lost.and_then(|max| lost_failure(outcome, max)) {
        print_message(&format!("fpprof: {failure}"));
        return status.max(FAILED);
    }
    status
}

/// Prints why there may be no samples: an empty profile must not look like a good one.
pub(super) fn print_no_samples(args: &Args, reason: EndReason) {
    print_message(if reason == EndReason::MaxSize {
        "fpprof: no samples: the recording reached --max-size before the first sample; pass a larger size"
    } else if args.counts_occurrences() {
        "fpprof: no samples: the event did not happen in what was recorded, or fewer times than -c N; pass a smaller -c, or record more processes"
    } else {
        "fpprof: no samples: the target used no CPU time, or ended before the first tick; try a higher -F, or a smaller -c"
    });
}

fn lost_failure(outcome: &Outcome, most_percent: f64) -> Option<String> {
    let lost = |cpu: &CpuCounters| cpu.lost.values().fold(cpu.dropped, |sum, &n| sum.saturating_add(n));
    let cpus = &outcome.end.cpus;
    // Per event: many samples of one event must not hide the losses of another.
    let mut events: Vec<u16> = cpus.iter().map(|cpu| cpu.event).collect();
    events.sort_unstable();
    events.dedup();
    let failure = |event| {
        let of_event = || cpus.iter().filter(|cpu| cpu.event == event);
        let recorded = of_event().map(|cpu| cpu.recorded).fold(0, u64::saturating_add);
        let missing = if event == 0 { outcome.end.uncounted.ticks } else { 0 };
        crate::gate::lost_failure(of_event().map(lost).fold(missing, u64::saturating_add), recorded, most_percent)
    };
    events.into_iter().find_map(failure)
}
