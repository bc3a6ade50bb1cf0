//! `fpprof top`: shows the hottest functions live.

use crate::closing::{Destination, print_outcome, write_failure};
use crate::exit::{DONE, FAILED, Usage, error_chain};
use crate::output::print_message;
use crate::top::{self, ViewConfig};
use crate::values;
use crate::worker::{self, Files};
use anyhow::Context as _;
use fpprof_collector::{Request, StopFlag, Target};
use fpprof_recording::model::Sampling;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;

/// Show the hottest functions live
///
/// Updates every second: self and total shares of the last seconds, complete, truncated and broken stacks, lost samples,
/// and the cost of sampling. Writes no file unless -o is given.
///
/// Keys: q quit · f, d stacks by frame pointers or by call frame information (DWARF) · p by process · t sort by total · / filter (Enter
/// applies it, Esc removes it) · arrows, Page Up, Page Down, Home scroll.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof top                          the whole machine
  fpprof top -p 1234
  fpprof top -F 199 -- ./program      discards the program's output")]
pub(crate) struct Args {
    /// Samples per second on each CPU
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value_t = 199, value_parser = values::rate)]
    freq: u64,
    /// Sample all processes; with a command, for as long as it runs [default without -p and CMD]
    #[arg(short = 'a', long, conflicts_with = "pid")]
    all_cpus: bool,
    /// Sample running processes and the children they start
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// How to take stacks, as in `record`
    #[arg(long, value_name = "MODE", default_value = "auto,fp", value_parser = values::sized_call_graph)]
    call_graph: values::CallGraph,
    /// Do not record kernel stacks
    #[arg(long)]
    no_kernel_stacks: bool,
    /// Show the last S seconds
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=300))]
    window: u16,
    /// Also write a recording to FILE
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the subcommand; returns the exit status.
///
/// # Errors
/// If there is no terminal, or nothing can be recorded.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    if worker::is_worker() {
        return worker::run(&Files { goes_on: true, ..Files::default() }, top::run_worker);
    }
    if !std::io::stdout().is_terminal() {
        print_message("fpprof: `top` requires a terminal; without one, use `fpprof record` and `fpprof report`");
        return Ok(FAILED);
    }
    let (target, words) = target(args)?;
    let request = Request {
        sampling: Sampling::FrequencyHz(args.freq),
        mode: args.call_graph.up_to(u32::MAX),
        else_mode: args.call_graph.else_mode(),
        kernel_stacks: !args.no_kernel_stacks,
        only_user: fpprof_collector::user_of_file_capabilities(),
        ..Request::new(target)
    };
    let stop = StopFlag::on_signals().context("watching for signals")?;
    let window_seconds = usize::from(args.window);
    let config = ViewConfig { request, target: words, window_seconds, output: args.output.as_deref() };
    let (recorded, choices) = top::run(&config, stop)?;
    choices.iter().for_each(|choice| print_message(&format!("fpprof: {choice}")));
    match recorded {
        Ok(outcome) => {
            if let Some(file) = &args.output {
                let tick_s = Some(1.0 / f64::from(u32::try_from(args.freq).unwrap_or(u32::MAX)));
                print_outcome(&outcome, tick_s, Destination::Recording(file))?;
                if let Some(failure) = write_failure(&outcome, file) {
                    print_message(&failure);
                    return Ok(FAILED);
                }
            }
            Ok(DONE)
        }
        Err(error) => {
            let status = error.exit_status();
            print_message(&format!("fpprof: {}", error_chain(&error.into())));
            Ok(status)
        }
    }
}

/// The target, and its description in words.
fn target(args: &Args) -> anyhow::Result<(Target, String)> {
    let argv = args.command.clone();
    let words = argv.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let usage = |text: &str| anyhow::Error::new(Usage(text.to_owned()));
    match (argv.is_empty(), args.pid.is_empty()) {
        (false, false) => Err(usage("a command cannot be used with -p PID")),
        (false, true) if args.all_cpus => {
            Ok((Target::SystemWhile { argv }, format!("the machine, while {words} runs")))
        }
        (false, true) => Ok((Target::Command { argv }, words)),
        (true, true) => Ok((Target::System, "the machine".to_owned())),
        (true, false) => {
            let pids: Vec<String> = args.pid.iter().map(u32::to_string).collect();
            Ok((Target::Pids(args.pid.clone()), format!("process {}", pids.join(", "))))
        }
    }
}
