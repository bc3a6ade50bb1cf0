//! `fpprof export`: writes the stacks of a recording or a store for other tools.

use super::import;
use crate::exit::{DONE, Usage, refuse_terminal};
use crate::output::{self, print_message};
use crate::positioned::Positioned;
use crate::recordings::{Source, print_times, print_warnings};
use crate::stored::{self, Rows, is_store, refuse_of_recordings};
use crate::worker::Files;
use anyhow::{Context as _, bail};
use fpprof_analysis::import::perf_events;
use fpprof_analysis::profile::{Grouping, Profiles};
use fpprof_analysis::strategy::Strategy;
use fpprof_analysis::{PerfStacks, fold_perf_data};
use fpprof_reports::folded;
use fpprof_reports::parquet;
use fpprof_reports::profile::{firefox, otlp, perf_script, pprof, speedscope};
use fpprof_reports::store::folded as folded_profile;
use std::io::{self, BufReader};
use std::path::PathBuf;

/// Bytes of a perf.data file read at a time, when samples are skipped and when their stacks are read.
const EVENT_BYTES: usize = 64;
const SAMPLE_BYTES: usize = 512;

/// Write the stacks of a recording or a store for other tools
///
/// FILE may also be a perf.data file: its samples are unwound and folded as they are read, which is faster than importing
/// it first. Or it is the directory of a store, whose intervals are added up: as folded, pprof, speedscope or otlp, selected by
/// --from, --to and --where.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  fpprof export run.fpprof --format pprof -o run.pb.gz          # go tool pprof -http : run.pb.gz
  fpprof export run.fpprof --format firefox -o run.json         # load it in https://profiler.firefox.com
  fpprof export run.fpprof --format parquet -o run.parquet      # duckdb -c \"FROM 'run.parquet'\"
  fpprof export run.fpprof --format speedscope -o run.json      # load it in https://www.speedscope.app
  fpprof export run.fpprof --format folded | inferno-flamegraph > run.svg
  fpprof export perf.data --no-inline | inferno-flamegraph > perf.svg
  fpprof export run.fpprof --event off-cpu          # counts nanoseconds blocked, not samples
  fpprof export /var/lib/fpprof --where service=nginx.service --from 2026-11-26T14:00:00Z --format pprof -o nginx.pb.gz")]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    rows: Rows,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Folded)]
    format: Format,
    /// Strategy to unwind with: fp, dwarf, dwarf@BYTES, cfi, sframe, elfutils or libunwind
    #[arg(long, value_name = "S")]
    strategy: Option<Strategy>,
    /// Output file, `-` for stdout
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One line per distinct stack: frames from the root, separated by `;`, then samples (off-cpu: nanoseconds)
    Folded,
    /// For `go tool pprof`, Pyroscope and others: profile.proto, compressed by gzip
    Pprof,
    /// For the Firefox Profiler: JSON, every sample with its time
    Firefox,
    /// For speedscope: JSON, the stacks of each thread in order of time
    Speedscope,
    /// What `perf script` prints, for tools that read its text
    PerfScript,
    /// OpenTelemetry profiles (v1development): the message `ProfilesData`
    Otlp,
    /// For databases and engines such as `DuckDB`: Apache Parquet, a row for each process, stack and strategy
    Parquet,
}

impl Args {
    /// The files it may read and write.
    pub(crate) fn files(&self) -> Files {
        let files = self.source.files([self.output.as_path()], self.strategy.as_slice());
        // Those of a store are found by the process that parses them.
        Files { reads: files.reads || is_store(&self.source.file), ..files }
    }
}

/// Runs the subcommand; returns the exit status.
///
/// # Errors
/// If the recording cannot be read or the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    if args.format.is_binary() {
        refuse_terminal(&args.output)?;
    }
    if args.source.lines && matches!(args.format, Format::Firefox | Format::PerfScript | Format::Parquet) {
        let words = "--lines is for --format folded, pprof, speedscope and otlp: the others have no place for lines";
        return Err(Usage(words.to_owned()).into());
    }
    let is_of_store = is_store(&args.source.file);
    if !is_of_store {
        args.rows.refuse()?;
    }
    let wanted: Vec<Strategy> = args.strategy.iter().copied().collect();
    let (folded, profiles) = if is_of_store {
        refuse_for_store(args)?;
        let profile = stored::profile(&args.source, &args.rows, args.strategy)?;
        (folded_profile(&profile), vec![profile])
    } else if import::is_of_perf(&args.source.file)? {
        let stacks = of_perf(args, wanted)?;
        (stacks.folded, stacks.profiles)
    } else {
        let mut analysis = args.source.analyse_for(&wanted, |options| options.profiles = args.format.profiles())?;
        print_warnings(&analysis.summary);
        if args.format.profiles() == Profiles::OfDefault(Grouping::Each) && !args.source.only.has_time() {
            print_times(&analysis.summary);
        }
        let folded = analysis.folded.remove(&analysis.default_strategy).context("the strategy was analysed")?;
        (folded, analysis.profiles)
    };
    output::write_whole(&args.output, |mut out| match (args.format, profiles.as_slice()) {
        (Format::Pprof, [profile]) => pprof::write(profile, &mut out),
        (Format::Firefox, [profile]) => firefox::write(profile, &mut out),
        (Format::Speedscope, [profile]) => speedscope::write(profile, &mut out),
        (Format::PerfScript, [profile]) => perf_script::write(profile, &mut out),
        (Format::Otlp, [profile]) => otlp::write(profile, &mut out),
        (Format::Parquet, profiles) => parquet::stacks::write(profiles, &mut out),
        (Format::Folded, _) => folded::write(&folded, &mut out),
        (_, _) => Err(io::Error::other("the analysis made no profile")),
    })?;
    Ok(DONE)
}

/// Refuses what a store does not have.
fn refuse_for_store(Args { source, format, .. }: &Args) -> anyhow::Result<()> {
    let refused = |words: &str| Err(Usage(words.to_owned()).into());
    match format {
        Format::Firefox => {
            refused("--format firefox needs the time of each sample, and a store has sums; try speedscope")
        }
        Format::PerfScript => refused("--format perf-script needs each sample, and a store has sums; try folded"),
        Format::Parquet => refused("the files of a store are Apache Parquet: read them, or use `fpprof query`"),
        Format::Folded | Format::Pprof | Format::Speedscope | Format::Otlp => refuse_of_recordings(source),
    }
}

impl Format {
    /// The sample data that the format needs; none for folded stacks, which have neither threads nor times.
    fn profiles(self) -> Profiles {
        match self {
            Self::Folded => Profiles::None,
            Self::Pprof => Profiles::OfDefault(Grouping::Summed),
            Self::Firefox | Self::Speedscope | Self::PerfScript | Self::Otlp => Profiles::OfDefault(Grouping::Each),
            Self::Parquet => Profiles::OfEach(Grouping::Summed),
        }
    }

    fn is_binary(self) -> bool {
        matches!(self, Self::Pprof | Self::Otlp | Self::Parquet)
    }
}

/// Unwinds the stacks of a perf.data file.
fn of_perf(Args { source, format, .. }: &Args, strategies: Vec<Strategy>) -> anyhow::Result<PerfStacks> {
    let context = || source.file.display().to_string();
    if !import::is_file_mode(&source.file)? {
        bail!("{}: perf wrote this into a pipe, so it must be converted first: `fpprof import`", context());
    }
    let positioned = || anyhow::Ok(Positioned::new(import::open(&source.file)?));
    if source.only.has_time() {
        let words = "--time needs a recording: convert the file first with `fpprof import`";
        return Err(Usage(words.to_owned()).into());
    }
    // Only the headers of samples are read here.
    let events = perf_events(&mut BufReader::with_capacity(EVENT_BYTES, positioned()?));
    let events = events.with_context(context)?;
    let modules = source.modules();
    let mut options = source.options(&modules, &events.0);
    options.strategies = strategies;
    options.profiles = format.profiles();
    let mut samples = BufReader::with_capacity(SAMPLE_BYTES, positioned()?);
    let stacks = fold_perf_data(events, &mut samples, &options).with_context(context)?;
    import::print_imported(&stacks.imported);
    stacks.warnings.iter().for_each(|warning| print_message(&format!("warning  {warning}")));
    Ok(stacks)
}
