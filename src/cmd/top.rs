//! `fpprof top`: the hottest functions, live.

use crate::exit::{DONE, FAILED, Usage, told};
use crate::output::say;
use crate::top::{self, ViewConfig};
use crate::values;
use anyhow::Context as _;
use fpprof_collector::{Request, StopFlag, Target};
use fpprof_recording::model::Sampling;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;

/// Show the hottest functions live, by either kind of stack
///
/// Self and total shares of the last seconds, how many stacks are complete, truncated and broken, what was lost, and what
/// all of this costs. Every second anew. Nothing is kept unless -o says where.
///
/// Keys: q quit · f, d stacks by frame pointers or by DWARF · p processes apart · t order by total · / filter (Enter to
/// keep, Esc to drop it) · arrows, Page Up, Page Down, Home to scroll.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof top                          the whole machine
  fpprof top -p 1234
  fpprof top -F 199 -- ./program      what the program prints is thrown away; keep it: -- sh -c './program > log'")]
pub(crate) struct Args {
    /// Samples a second and CPU
    #[arg(short = 'F', long = "freq", value_name = "HZ", default_value_t = 199, value_parser = values::rate)]
    freq: u64,
    /// Every process of the machine; with a command, for as long as it runs. The default without -p and CMD
    #[arg(short = 'a', long, conflicts_with = "pid")]
    all_cpus: bool,
    /// These running processes and their future children
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pid: Vec<u32>,
    /// How stacks are taken: fp, dwarf[,BYTES] or both[,BYTES]
    #[arg(long, value_name = "MODE", default_value = "both", value_parser = values::sized_call_graph)]
    call_graph: values::CallGraph,
    /// Leave out kernel stacks
    #[arg(long)]
    no_kernel_stacks: bool,
    /// Show the last so many seconds
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=300))]
    window: u16,
    /// Keep a recording of all that was shown
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the subcommand; gives the exit status.
///
/// # Errors
/// If there is no terminal, or nothing can be recorded.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    if !std::io::stdout().is_terminal() {
        say("fpprof: top draws on a terminal, and stdout is none; `fpprof record` and `fpprof report` need none");
        return Ok(FAILED);
    }
    let (target, words) = target(args)?;
    let request = Request {
        sampling: Sampling::FrequencyHz(args.freq),
        mode: args.call_graph.up_to(u32::MAX),
        kernel_stacks: !args.no_kernel_stacks,
        ..Request::new(target)
    };
    let stop = StopFlag::on_signals().context("watching for signals")?;
    let window_seconds = usize::from(args.window);
    let config = ViewConfig { request, target: words, window_seconds, output: args.output.as_deref() };
    let (recorded, fallback) = top::run(&config, stop)?;
    if let Some(fallback) = fallback {
        say(&format!("fpprof: {fallback}"));
    }
    match recorded {
        Ok(outcome) => {
            if let Some(file) = &args.output {
                let tick_s = Some(1.0 / f64::from(u32::try_from(args.freq).unwrap_or(u32::MAX)));
                crate::closing::say_outcome(&outcome, tick_s, file)?;
            }
            Ok(DONE)
        }
        Err(error) => {
            let status = error.exit_status();
            say(&format!("fpprof: {}", told(&error.into())));
            Ok(status)
        }
    }
}

/// Whom, and in words.
fn target(args: &Args) -> anyhow::Result<(Target, String)> {
    let argv = args.command.clone();
    let words = argv.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let usage = |text: &str| anyhow::Error::new(Usage(text.to_owned()));
    match (argv.is_empty(), args.pid.is_empty()) {
        (false, false) => Err(usage("give a command or -p PID, not both")),
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
