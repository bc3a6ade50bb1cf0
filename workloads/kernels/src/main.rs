//! Boots kernels of several Debian releases in QEMU, emulated, and checks `fpprof` in each: whether it records, by
//! which collector, whether every tick is accounted for, whether a program's stacks are the known ones, and whether
//! nothing is left behind.
//!
//! The guest's whole file system is generated and in memory; results are sent through a serial port and judged on this
//! machine. Only counts and verdicts are checked: times mean nothing in an emulator.
#![forbid(unsafe_code)]

mod boot;
mod chain;
mod checks;
mod fetch;
mod guest;
mod kernels;
mod results;
mod run;
mod steps;
mod table;

use anyhow::{Context as _, ensure};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use kernels::{Arch, KERNELS, Kernel};
use results::Results;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use table::Row;

/// Boots other kernels in QEMU and checks fpprof in each; one table at the end, exit status 1 if a check fails.
#[derive(Debug, Parser)]
struct Args {
    /// The kernels; all by default
    #[arg(value_parser = PossibleValuesParser::new(KERNELS.iter().map(|kernel| kernel.name)))]
    kernels: Vec<String>,
    /// The fpprof that records, on x86-64, and judges [default: release/fpprof in cargo's target directory]
    #[arg(long)]
    fpprof: Option<PathBuf>,
    /// The fpprof that records on arm64 [default: aarch64-unknown-linux-gnu/release/fpprof there]
    #[arg(long)]
    fpprof_arm64: Option<PathBuf>,
    /// Where kernels are kept, and what each run left [default: kernels there]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The mirror of Debian that kernels are fetched from
    #[arg(long, default_value = "http://deb.debian.org/debian")]
    mirror: String,
    /// Seconds a guest may take
    #[arg(long, default_value_t = 600)]
    limit: u64,
}

/// The arguments with defaults filled in.
#[derive(Debug)]
struct Config {
    fpprof: PathBuf,
    fpprof_arm64: PathBuf,
    dir: PathBuf,
    mirror: String,
    limit: Duration,
}

impl Config {
    fn new(args: &Args) -> anyhow::Result<Self> {
        // This program is in the folder of a cargo profile, such as `release`, in the target directory.
        let this = std::env::current_exe()?;
        let target = this.ancestors().nth(2).context("this program has no target directory")?;
        let or_there = |given: &Option<PathBuf>, usual: &str| given.clone().unwrap_or_else(|| target.join(usual));
        let fpprof = or_there(&args.fpprof, "release/fpprof");
        let dir = or_there(&args.dir, "kernels");
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        Ok(Self {
            fpprof: fpprof.canonicalize().with_context(|| format!("finding {}; build it first", fpprof.display()))?,
            fpprof_arm64: or_there(&args.fpprof_arm64, "aarch64-unknown-linux-gnu/release/fpprof"),
            dir: dir.canonicalize()?,
            mirror: args.mirror.clone(),
            limit: Duration::from_secs(args.limit),
        })
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let config = Config::new(&args)?;
    let mut rows = Vec::new();
    let is_chosen = |kernel: &&Kernel| args.kernels.is_empty() || args.kernels.iter().any(|name| name == kernel.name);
    for kernel in KERNELS.iter().filter(is_chosen) {
        let began = Instant::now();
        let mut row = check(kernel, &config);
        row.seconds = began.elapsed().as_secs();
        write!(std::io::stderr(), "{}", table::details(&row))?;
        rows.push(row);
    }
    write!(std::io::stdout(), "{}", table::table(&rows))?;
    Ok(if rows.iter().all(Row::is_good) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Boots and checks one kernel. An error goes to its row, so that the other kernels are still booted.
fn check(kernel: &Kernel, config: &Config) -> Row {
    let dir = config.dir.join("runs").join(kernel.name);
    let results = Results { fpprof: config.fpprof.clone(), root: dir.join("root"), dir: dir.join("results") };
    let mut row = Row::new(kernel);
    row.cell("boot", boot(kernel, config, &results).map(|()| "ok".to_owned()));
    if row.is_good() {
        row.release = results::text_or_nothing(&results.dir.join("release")).trim().to_owned();
        for check in checks::CHECKS.iter().filter(|check| (check.applies)(kernel.expects)) {
            row.cell(check.name, (check.judge)(&results, kernel.expects));
        }
    }
    row.console = results::tail(&results::text_or_nothing(&dir.join("console.log")), 20);
    row
}

fn boot(kernel: &Kernel, config: &Config, results: &Results) -> anyhow::Result<()> {
    let dir = config.dir.join("runs").join(kernel.name);
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    let fpprof = match kernel.arch {
        Arch::X86_64 => &config.fpprof,
        Arch::Aarch64 => &config.fpprof_arm64,
    };
    let arch = kernel.arch.debian();
    ensure!(fpprof.exists(), "{} is missing: build fpprof for {arch} first", fpprof.display());
    let fetched = fetch::fetched(kernel, &config.mirror, &config.dir)?;
    let files = boot::Files {
        image: fetched.image,
        packed: dir.join("initramfs"),
        console: dir.join("console.log"),
        tar: dir.join("results.tar"),
        results: results.dir.clone(),
    };
    guest::build(kernel, fpprof, &fetched.busybox, &results.root, &files.packed)?;
    boot::boot(kernel, &files, config.limit)
}
