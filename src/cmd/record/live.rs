//! `--live`: a store of unwound stacks instead of a recording.

use super::args::Args;
use super::file::{exit_status, refused};
use crate::agent::{self, NOT_WRITTEN, Recorded};
use crate::closing::{Destination, print_outcome};
use crate::exit::FAILED;
use crate::gate::lost_failure;
use crate::output::print_message;
use crate::progress::Line;
use crate::worker;
use fpprof_collector::{Request, StopFlag};
use std::path::Path;
use std::time::Duration;

/// Records into the store until the target has ended or `stop` is set; returns the exit status.
///
/// # Errors
/// If there can be no store, or stderr cannot be written.
pub(super) fn run(
    args: &Args,
    mut request: Request,
    interval: Duration,
    stop: &'static StopFlag,
    line: &mut Line,
) -> anyhow::Result<u8> {
    request.parser = worker::parser(request.mode)?;
    let recorded = agent::record_once(&request, args.output(), interval, stop, &mut |update| line.update(update));
    line.clear();
    match recorded? {
        Ok(recorded) => closed(args, recorded, args.output()),
        Err(error) => Ok(refused(error, args.output())),
    }
}

fn closed(args: &Args, recorded: Recorded, store: &Path) -> anyhow::Result<u8> {
    let Recorded { mut outcome, bytes, cpu, discarded } = recorded;
    // The blocks of the recording were only in memory.
    outcome.bytes_written = bytes;
    outcome.end.own_cost.written_bytes = None;
    if !args.quiet {
        print_outcome(&outcome, args.tick_s(), Destination::Store(store))?;
        let (cpu_s, duration_s) = (cpu.as_secs_f64(), outcome.duration.as_secs_f64());
        // Most of the cost of a moment is that of the start.
        let share =
            if duration_s < 1.0 { String::new() } else { format!(" ({:.1} % of one CPU)", 100.0 * cpu_s / duration_s) };
        print_message(&format!("in all    {cpu_s:.2} s CPU with unwinding{share}"));
    }
    let status = exit_status(args, &outcome);
    let n_discarded: u64 = discarded.values().sum();
    if n_discarded == 0 {
        return Ok(status);
    }
    let causes: Vec<String> = discarded.iter().map(|(cause, samples)| format!("{cause} {samples}")).collect();
    print_message(&format!(
        "fpprof: {n_discarded} of {} recorded samples are not in the store ({})",
        outcome.samples,
        causes.join(", ")
    ));
    let failure = args
        .max_lost
        .and_then(|most| lost_failure(n_discarded, outcome.samples - n_discarded.min(outcome.samples), most));
    if let Some(failure) = &failure {
        print_message(&format!("fpprof: {failure}"));
    }
    // A store without any sample is no success, and neither is one that could not be written to its end.
    let has_failed = failure.is_some() || n_discarded >= outcome.samples || discarded.contains_key(NOT_WRITTEN);
    Ok(if has_failed { status.max(FAILED) } else { status })
}
