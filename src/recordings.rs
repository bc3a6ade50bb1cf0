//! Opens and analyses a recording: shared by all subcommands that read one.

use crate::debuginfod::{self, Fetcher, local_files};
use crate::exit::Usage;
use crate::output::print_message;
use crate::unwinding::Unwinding;
use crate::worker::{Files, Modules, open_input};
use anyhow::{Context as _, anyhow};
use fpprof_analysis::filter::{Filter, TimeRange};
use fpprof_analysis::modules::Resolver;
use fpprof_analysis::strategy::Strategy;
use fpprof_analysis::summary::Summary;
use fpprof_analysis::symbols::Detail;
use fpprof_analysis::{Analysis, Options, analyse};
use fpprof_recording::Recording;
use fpprof_recording::model::Meta;
use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which recording, and where its modules are found.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Source {
    /// The recording
    #[arg(value_name = "FILE", default_value = "fpprof.fpprof")]
    pub(crate) file: PathBuf,
    /// Show only this event, such as off-cpu [default: all events but off-cpu]
    #[arg(long, value_name = "EVENT")]
    pub(crate) event: Option<String>,
    /// Look for the recorded machine's files under DIR first, and use those whose build ids match
    #[arg(long, value_name = "DIR")]
    pub(crate) symfs: Option<PathBuf>,
    /// Fetch programs and debug information that are missing here from the servers in `DEBUGINFOD_URLS`
    #[arg(long)]
    pub(crate) debuginfod: bool,
    /// Do not show inlined functions; faster, as it needs no debug information
    #[arg(long)]
    pub(crate) no_inline: bool,
    /// Add file and line to function names: `read_block (disk.c:120)`
    #[arg(long, conflicts_with = "no_inline")]
    pub(crate) lines: bool,
    #[command(flatten)]
    pub(crate) only: Only,
    #[command(flatten)]
    pub(crate) unwinding: Unwinding,
}

/// Heading of these options in the help.
const FILTERS: &str = "Filters";

/// Which samples.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Only {
    /// Only threads with this name when they were sampled; repeat for more names
    #[arg(long, value_name = "NAME", help_heading = FILTERS)]
    comm: Vec<String>,
    /// Only processes in this control group or below it, such as /system.slice/nginx.service; repeat for more groups
    #[arg(long, value_name = "PATH", help_heading = FILTERS)]
    cgroup: Vec<String>,
    /// Only these processes
    #[arg(long, value_name = "PID", value_delimiter = ',', help_heading = FILTERS)]
    pid: Vec<u32>,
    /// Only these threads
    #[arg(long, value_name = "TID", value_delimiter = ',', help_heading = FILTERS)]
    tid: Vec<u32>,
    /// Only samples between these seconds after the start: 2.5..10, 2.5.. or ..10
    #[arg(long, value_name = "FROM..TO", value_parser = time_range, help_heading = FILTERS)]
    time: Option<TimeRange>,
}

impl Only {
    /// Which samples.
    pub(crate) fn filter(&self) -> Filter {
        let Self { comm, cgroup, pid, tid, time } = self;
        Filter {
            comms: comm.clone(),
            cgroups: cgroup.clone(),
            pids: pid.clone(),
            tids: tid.clone(),
            time: time.unwrap_or_default(),
            copied: false,
        }
    }

    /// Whether a range of time is given.
    pub(crate) fn has_time(&self) -> bool {
        self.time.is_some()
    }
}

fn time_range(text: &str) -> Result<TimeRange, String> {
    let wrong = || "expected seconds after the start, such as 2.5..10, 2.5.. or ..10".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let seconds = |text: &str| match text {
        "" => Ok(None),
        text => {
            let duration = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok()).ok_or_else(wrong)?;
            u64::try_from(duration.as_nanos()).map(Some).map_err(|_| wrong())
        }
    };
    let range = TimeRange { from_ns: seconds(from)?, to_ns: seconds(to)? };
    match (range.from_ns, range.to_ns) {
        (None, None) => Err(wrong()),
        (Some(from), Some(to)) if from >= to => Err("the range is empty: FROM must be less than TO".to_owned()),
        _ => Ok(range),
    }
}

impl Source {
    /// A recording of this machine, with default options.
    pub(crate) fn here(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            event: None,
            symfs: None,
            debuginfod: false,
            no_inline: false,
            lines: false,
            only: Only::default(),
            unwinding: Unwinding::default(),
        }
    }

    /// Analyses the recording under `strategies`; an empty slice means its defaults.
    ///
    /// # Errors
    /// If the file cannot be read or is not a recording, or does not support a strategy.
    pub(crate) fn analyse(&self, strategies: &[Strategy]) -> anyhow::Result<Analysis> {
        self.analyse_for(strategies, |_| {})
    }

    /// Like [`Self::analyse`], with options changed by `ask`.
    ///
    /// # Errors
    /// Those of [`Self::analyse`].
    pub(crate) fn analyse_for(
        &self,
        strategies: &[Strategy],
        ask: impl FnOnce(&mut Options<'_>),
    ) -> anyhow::Result<Analysis> {
        let mut recording = self.open()?;
        let modules = self.modules();
        let mut options = self.options(&modules, recording.meta());
        options.strategies = strategies.to_vec();
        ask(&mut options);
        let analysis = analyse(&mut recording, &options).with_context(|| self.file.display().to_string())?;
        if self.only.has_time() {
            print_times(&analysis.summary);
        }
        Ok(analysis)
    }

    /// The options of an analysis, for a recording with this metadata.
    pub(crate) fn options<'a>(&self, modules: &'a dyn Resolver, meta: &Meta) -> Options<'a> {
        let mut options = Options::new(modules);
        options.detail = self.detail();
        options.event = self.event.clone();
        options.filter = self.only.filter();
        options.unwinding = self.unwinding.options();
        options.is_this_machine = self.is_this_machine(meta);
        options
    }

    /// The first given option that is for recordings alone, not for stores.
    pub(crate) fn of_recordings(&self) -> Option<&'static str> {
        let Self { symfs, debuginfod, no_inline, lines, only, unwinding, .. } = self;
        let given = [
            (symfs.is_some(), "--symfs"),
            (*debuginfod, "--debuginfod"),
            (*no_inline, "--no-inline"),
            (*lines, "--lines"),
            (only.time.is_some(), "--time"),
            (!only.tid.is_empty(), "--tid"),
            (*unwinding != Unwinding::default(), "--fallback, --max-depth or --budget"),
        ];
        given.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }

    /// The detail of symbols.
    pub(crate) fn detail(&self) -> Detail {
        match (self.no_inline, self.lines) {
            (true, _) => Detail::Symbols,
            (_, true) => Detail::Lines,
            _ => Detail::Inlines,
        }
    }

    /// Whether the recording was made on this machine, judged by its kernel release.
    pub(crate) fn is_this_machine(&self, meta: &Meta) -> bool {
        self.symfs.is_none() && is_this_kernel(&meta.host.kernel)
    }

    /// Like [`Self::analyse`], for views that count samples. Waits are refused: their samples stand for different
    /// durations.
    ///
    /// # Errors
    /// Those of [`Self::analyse`], and if the samples are waits.
    pub(crate) fn analyse_counted(&self, strategies: &[Strategy], page: bool) -> anyhow::Result<Analysis> {
        let analysis = self.analyse_for(strategies, |options| options.page = page)?;
        if analysis.summary.blocked_ns.is_some() {
            let words = "this view counts samples, but off-cpu samples stand for times; \
                         use `fpprof report` (without --html), `flamegraph` or `export` with --event off-cpu";
            return Err(Usage(words.to_owned()).into());
        }
        Ok(analysis)
    }

    /// The places to look for modules.
    pub(crate) fn modules(&self) -> Modules {
        let modules = Modules::new(match &self.symfs {
            Some(root) => local_files().with_root(root).from_another_machine(),
            None => local_files(),
        });
        modules.with_debuginfod(self.fetcher())
    }

    /// The files that the worker may open under these strategies, and the `outputs` it may write.
    pub(crate) fn files<'a>(&'a self, outputs: impl IntoIterator<Item = &'a Path>, strategies: &[Strategy]) -> Files {
        let reads = strategies.iter().any(|strategy| matches!(strategy, Strategy::Elfutils | Strategy::Libunwind));
        Files { reads, debuginfod: self.fetcher(), ..Files::new([self.file.as_path()], outputs) }
    }

    fn fetcher(&self) -> Option<Fetcher> {
        self.debuginfod.then(Fetcher::of_environment).flatten()
    }

    /// Opens the recording.
    ///
    /// # Errors
    /// If it cannot be opened or is not a recording.
    pub(crate) fn open(&self) -> anyhow::Result<Recording<BufReader<File>>> {
        if self.debuginfod {
            debuginfod::check()?;
        }
        if let Some(root) = self.symfs.as_ref().filter(|root| !root.is_dir()) {
            let words = if root.exists() { "not a directory" } else { "no such directory" };
            anyhow::bail!("--symfs {}: {words}", root.display());
        }
        let context = || self.file.display().to_string();
        let file =
            open_input(&self.file).map_err(|error| match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(io::ErrorKind::NotFound) => {
                    anyhow!(
                        "{}: no such recording; make one with `fpprof record -- COMMAND`, or pass its name",
                        context()
                    )
                }
                _ => error.context(context()),
            })?;
        let kind = file.metadata().with_context(context)?.file_type();
        if kind.is_dir() {
            anyhow::bail!(
                "{}: a directory; stores are read by `fpprof serve`, `export`, `flamegraph` and `query`",
                context()
            );
        }
        if kind.is_fifo() || kind.is_char_device() {
            anyhow::bail!("{}: not a regular file; write the recording to a file first", context());
        }
        Recording::open(BufReader::new(file)).with_context(context)
    }
}

/// Prints how far the times of samples can be off, for what shows or selects single moments.
pub(crate) fn print_times(summary: &Summary) {
    if let Some(words) = summary.environment.times() {
        print_message(&format!("times    {words}"));
    }
}

/// Prints damage and warnings, for commands whose output is not the summary.
pub(crate) fn print_warnings(summary: &Summary) {
    for damage in &summary.damage {
        print_message(&format!("damaged  {damage}"));
    }
    for warning in &summary.warnings {
        print_message(&format!("warning  {warning}"));
    }
}

/// Whether this kernel release is running here.
fn is_this_kernel(release: &str) -> bool {
    rustix::system::uname().release().to_bytes() == release.as_bytes()
}
