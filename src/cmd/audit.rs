//! `fpprof audit`: which code keeps frame pointers and which can be unwound, from the files alone.

mod gate;
mod packages;
mod root;
mod scan;
mod walk;

use crate::exit::{DONE, FAILED, Usage};
use crate::output::{self, print_message};
use crate::recordings::Source;
use crate::worker::{Files, confine};
use anyhow::Context as _;
use fpprof_analysis::audit::{AuditOptions, Survey, weigh};
use fpprof_reports::audit::{self, Audited, Listing};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use gate::MetricName;
use packages::Packages;
use root::Root;

/// Check ELF files for frame pointers and unwind information
///
/// Uses the unwind information of every byte of code to tell whether a frame-pointer walk that starts there finds
/// the function's caller, drops it, or breaks; how it goes on depends on the callers. Works on stripped files. Reads files, and never runs or maps them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof audit /usr/lib/x86_64-linux-gnu/libc.so.6
  fpprof audit /usr --html audit.html
  fpprof audit --package postgresql-15
  fpprof audit --root /mnt/image --json > image.json
  fpprof audit --weight run.fpprof
  fpprof audit build/ --fail-under 95 --metric nonleaf")]
pub(crate) struct Args {
    /// Files and directories; symbolic links inside directories are not followed
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Files of installed packages (Debian and RPM)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    package: Vec<String>,
    /// Look up paths and packages inside an image or chroot; without either, check all of it
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Also decode every function, and compare it with the unwind information (x86-64 only; ten times the CPU time)
    #[arg(long)]
    disassemble: bool,
    /// List every function
    #[arg(long)]
    functions: bool,
    /// Also weight the files by the samples of a recording; without PATH, only the files it names
    #[arg(long, value_name = "RECORDING")]
    weight: Option<PathBuf>,
    /// Maximum number of rows per list
    #[arg(long, value_name = "N", default_value_t = 40)]
    rows: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write an HTML page with histograms and outliers
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Fail if --metric is below PERCENT
    #[arg(long, value_name = "PERCENT", value_parser = crate::gate::percent)]
    fail_under: Option<f64>,
    /// Metric that --fail-under checks
    #[arg(long, value_name = "METRIC", default_value = "nonleaf", requires = "fail_under")]
    metric: MetricName,
    /// Check --fail-under for every package (or file without a package) instead of all together
    #[arg(long, requires = "fail_under")]
    each: bool,
    /// Number of threads [default: one per CPU]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Print no progress and no notes
    #[arg(short, long)]
    quiet: bool,
}

impl Args {
    /// The files it may read and write; it opens audited files itself.
    pub(crate) fn files(&self) -> Files {
        let files = Files::new(self.weight.as_deref(), self.html.as_deref());
        Files { confines_itself: true, ..files }
    }
}

/// Runs the subcommand; returns the exit status.
///
/// # Errors
/// If a path or package does not exist, or output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let root = Root::open(args.root.as_deref())?;
    let packages = Packages::open(&root)?;
    let paths = paths(args, &root, &packages)?;
    let distribution = root.distribution();
    packages.read(&root);
    confine(true)?;
    let files = walk::files(&root, &paths);
    let options = AuditOptions { disassemble: args.disassemble, records: args.functions, ranges: false };
    let jobs = args.jobs.and_then(|jobs| NonZeroUsize::new(usize::from(jobs)));
    let jobs = jobs.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let mut survey = scan::survey(&root, &packages, files, options, jobs.get(), args.quiet)?;
    if let Some(path) = &args.weight {
        let source = Source { symfs: args.root.clone(), ..Source::here(path) };
        let weighed = weigh(&mut source.open()?, &source.modules(), jobs);
        survey.weighed = Some(weighed.with_context(|| path.display().to_string())?);
    }
    print(args, distribution, &survey)?;
    let mut failures = match args.fail_under {
        Some(least) => gate::failures(&survey, args.metric, least, args.each),
        None => Vec::new(),
    };
    if let Some(words) = gate::not_judged(&survey.total).filter(|_| args.fail_under.is_some() && !args.quiet) {
        print_message(&format!("fpprof: --fail-under: {words}"));
    }
    // A package may contain no ELF file, even if its name is right.
    if survey.files.is_empty() && !args.paths.is_empty() {
        let refused: String = survey.refused.iter().map(|(why, n)| format!("; {why}: {n}")).collect();
        let unreadable = match survey.n_unreadable {
            0 => String::new(),
            n => format!("; unreadable: {n}"),
        };
        failures.push(format!("no ELF file to check{refused}{unreadable}"));
    }
    for failure in &failures {
        print_message(&format!("fpprof: {failure}"));
    }
    Ok(if failures.is_empty() { DONE } else { FAILED })
}

/// The requested files and directories, as paths of this machine.
fn paths(args: &Args, root: &Root, packages: &Packages) -> anyhow::Result<Vec<PathBuf>> {
    if args.paths.is_empty() && args.package.is_empty() && args.root.is_none() && args.weight.is_none() {
        anyhow::bail!(Usage(
            "nothing to audit: pass files or directories, --package NAME, --root DIR, or --weight RECORDING".to_owned()
        ));
    }
    let mut paths = Vec::new();
    for path in &args.paths {
        paths.push(root.resolve(path)?);
    }
    for name in &args.package {
        paths.extend(packages.files_of(root, name)?);
    }
    if args.paths.is_empty() && args.package.is_empty() && args.weight.is_none() {
        paths.push(root.resolve(Path::new("/"))?);
    }
    Ok(paths)
}

fn print(args: &Args, distribution: String, survey: &Survey) -> anyhow::Result<()> {
    if let Some(path) = &args.html {
        let audited = Audited { what: title(args), date: now(), distribution };
        output::write_whole(path, |mut out| audit::html(survey, &audited, &mut out))?;
    }
    let listing = Listing { rows: args.rows, functions: args.functions };
    output::write_whole(Path::new("-"), |mut out| match args.json {
        true => audit::json(survey, &mut out),
        false => audit::text(survey, listing, &output::style(), &mut out),
    })
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// A description of what was audited, on one line.
fn title(args: &Args) -> String {
    let root = args.root.iter().map(|root| format!("root {}", root.display()));
    let packages = args.package.iter().map(|name| format!("package {name}"));
    let paths = args.paths.iter().map(|path| path.display().to_string());
    root.chain(packages).chain(paths).collect::<Vec<_>>().join(", ")
}
