//! `fpprof record`: runs a command or attaches, samples, and prints what was lost and what it cost.

mod args;
mod file;
mod live;
mod plan;
mod rotation;

use crate::exit::DONE;
use crate::output::Patient;
use crate::worker;
use anyhow::Context as _;
pub(crate) use args::Args;
use file::{closed, record_file, refused};
use fpprof_collector::StopFlag;
use std::path::Path;

/// Runs the subcommand; returns the exit status.
///
/// # Errors
/// If nothing could be recorded.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let mut request = args.request()?;
    if args.verbose {
        fpprof_collector::print_libbpf_messages();
    }
    if args.dry_run {
        plan::print(&request, args.output(), args.live)?;
        return Ok(DONE);
    }
    let stop = StopFlag::on_signals().context("watching for signals")?;
    let mut line = crate::progress::Line::new(args.quiet);
    if let Some(switch) = args.switch_output {
        return rotation::run(args, request, switch, stop, &mut line);
    }
    if let Some(interval) = args.live {
        return live::run(args, request, interval, stop, &mut line);
    }
    request.parser = worker::parser(request.mode)?;
    let recorded = if args.output() == Path::new("-") {
        let stdout = Patient::stdout(stop).context("writing to stdout")?;
        fpprof_collector::record(&request, stdout, stop, &mut |update| line.update(update))
    } else {
        record_file(&request, args.output(), stop, &mut |update| line.update(update))
    };
    line.clear();
    match recorded {
        Ok(outcome) => closed(args, &outcome, args.output()),
        Err(error) => Ok(refused(error, args.output())),
    }
}
