//! `fpprof agent`: profiles the machine continuously.

use crate::agent::{self, Config, Outlook};
use crate::exit::DONE;
use crate::output::print_message;
use crate::worker::{self, Files};
use std::path::PathBuf;

/// Profile the machine continuously, into a store of Parquet files
///
/// Samples all processes at a low rate, unwinds in memory, and writes a table of stacks and one of counters for each interval.
/// No stack bytes reach the disk. Any engine that reads Parquet can query the store; profiles can be sent to an OpenTelemetry
/// collector, to Grafana Pyroscope, or into a bucket of an S3-compatible store as well. Metrics for Prometheus are served at
/// 127.0.0.1:7474, path /metrics; health at /-/healthy.
///
/// SIGHUP reads the configuration again; SIGTERM writes what is left and ends.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof agent --config /etc/fpprof/agent.toml
  fpprof agent --config agent.toml --check
  duckdb -c \"SELECT process, sum(samples) FROM '/var/lib/fpprof/stacks/*/*.parquet' WHERE strategy <> 'fp' GROUP BY ALL\"")]
pub(crate) struct Args {
    /// Configuration, TOML; every key has a default
    ///
    /// [default: /etc/fpprof/agent.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the configuration, print how the agent would sample as this user, and exit; the status is 0 if the
    /// configuration is valid, even if this user cannot sample
    #[arg(long)]
    check: bool,
}

/// Runs the subcommand; returns the exit status.
///
/// # Errors
/// If the configuration is wrong, or nothing can be recorded.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    if worker::is_worker() {
        let files = Files { max_file_bytes: Some(agent::MAX_TABLE_BYTES), goes_on: true, ..Files::default() };
        return worker::run(&files, agent::run_analyst);
    }
    let config = Config::read(args.config.as_deref())?;
    if args.check {
        agent::check_push(&config.push)?;
        print_message(&format!("fpprof: the configuration is valid: {}", config.summary()?));
        let Outlook { sampling, store } = agent::outlook(&config)?;
        match sampling {
            Ok(words) => {
                let mode = words.first().map(|mode| format!("as this user it would sample by {mode}"));
                let lines = mode.iter().chain(words.iter().skip(1));
                lines.for_each(|line| print_message(&format!("fpprof: {line}")));
            }
            Err(error) => print_message(&format!("fpprof: as this user it cannot record: {error}")),
        }
        print_message(&format!("fpprof: as this user it {}", store.unwrap_or_else(|error| error)));
        return Ok(DONE);
    }
    agent::run(args.config.as_deref(), config)
}
