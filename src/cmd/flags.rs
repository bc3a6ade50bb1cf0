//! `fpprof flags`: measures the cost and benefit of compiler flags.

use crate::exit::{DONE, FAILED, Usage};
use crate::flags::{Manifest, SUPERVISE, Store, TEMPLATE, collect, run as run_evaluation, serve};
use crate::output::{self, print_message};
use clap::Subcommand;
use fpprof_analysis::flags::{Evaluation, evaluate};
use fpprof_reports::flags;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Measure what compiler flags cost: build, time, record and audit programs
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof flags init flags.toml
  setsid -w fpprof flags run flags.toml -o results
  fpprof flags report results")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a commented manifest to start from
    Init {
        /// File to create
        #[arg(default_value = "flags.toml")]
        file: PathBuf,
    },
    /// Build and measure everything in a manifest; continues an interrupted run
    Run {
        /// Manifest with programs and flag sets
        manifest: PathBuf,
        /// Directory for builds and results
        #[arg(short, long, value_name = "DIR", default_value = "flags-results")]
        output: PathBuf,
        /// Only these flag sets, and the baselines they are compared with
        #[arg(long, value_name = "NAME", value_delimiter = ',')]
        flags: Vec<String>,
        /// Only these programs
        #[arg(long, value_name = "NAME", value_delimiter = ',')]
        programs: Vec<String>,
    },
    /// Run benchmarks for `run`, which starts this
    #[command(name = SUPERVISE, hide = true)]
    Keep,
    /// Report the results so far; also writes report.txt, report.html and report.json to DIR
    Report {
        /// Directory with results
        dir: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the subcommand; returns the exit status.
///
/// # Errors
/// If the manifest is wrong, or nothing could be built or measured.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    match &args.command {
        Command::Init { file } => init(file)?,
        Command::Run { manifest, output, flags, programs } => {
            let read = Manifest::read(manifest).and_then(|read| read.only(flags, programs));
            let read = read.map_err(|error| Usage(format!("{error:#}")))?;
            let faults = run_evaluation(manifest, &read, &Store::create(output)?)?;
            report(output, false)?;
            if !faults.is_empty() {
                faults.iter().for_each(|fault| print_message(&format!("fpprof: {fault}")));
                print_message("fpprof: run the same command again to continue");
                return Ok(FAILED);
            }
        }
        Command::Keep => serve()?,
        Command::Report { dir, json } => report(dir, *json)?,
    }
    Ok(DONE)
}

fn init(path: &Path) -> anyhow::Result<()> {
    use anyhow::Context as _;
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| file.write_all(TEMPLATE.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))?;
    print_message(&format!("wrote {}; edit it, then run `fpprof flags run {}`", path.display(), path.display()));
    Ok(())
}

fn report(dir: &Path, json: bool) -> anyhow::Result<()> {
    let store = Store::open(dir)?;
    let evaluation: Evaluation = evaluate(&collect(&store)?);
    output::write_whole(&store.path("report.txt"), |mut out| flags::text(&evaluation, &mut out))?;
    output::write_whole(&store.path("report.html"), |mut out| flags::html(&evaluation, &mut out))?;
    output::write_whole(&store.path("report.json"), |mut out| flags::json(&evaluation, &mut out))?;
    output::write_whole(Path::new("-"), |mut out| match json {
        true => flags::json(&evaluation, &mut out),
        false => flags::text(&evaluation, &mut out),
    })
}
