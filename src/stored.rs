//! The samples of a store, for `fpprof export` and `fpprof flamegraph`.

use crate::exit::Usage;
use crate::output::print_message;
use crate::recordings::Source;
use crate::serve;
use anyhow::Context as _;
use fpprof_analysis::folded::Unit;
use fpprof_analysis::profile::Profile;
use fpprof_analysis::strategy::Strategy;
use jiff::Timestamp;
use std::path::Path;

/// Heading of these options in the help.
const FILTERS: &str = "Filters of a store";

/// Which rows of a store.
#[derive(Debug, clap::Args)]
pub(crate) struct Rows {
    /// Only intervals that began at this time or later: 2026-11-26T14:05:00Z, or seconds since 1970
    #[arg(long, value_name = "TIME", help_heading = FILTERS)]
    from: Option<String>,
    /// Only intervals that began before this time
    #[arg(long, value_name = "TIME", help_heading = FILTERS)]
    to: Option<String>,
    /// Only rows with this host, service, container, pod, process or label.NAME; repeat for more values or columns
    #[arg(long = "where", value_name = "COLUMN=VALUE", value_parser = condition, help_heading = FILTERS)]
    conditions: Vec<(String, String)>,
}

fn condition(text: &str) -> Result<(String, String), String> {
    let (column, value) = text.split_once('=').ok_or("expected COLUMN=VALUE, such as service=nginx.service")?;
    Ok((column.to_owned(), value.to_owned()))
}

impl Rows {
    /// Refuses these options for a recording.
    ///
    /// # Errors
    /// If one is given.
    pub(crate) fn refuse(&self) -> anyhow::Result<()> {
        let Self { from, to, conditions } = self;
        let given = [(from.is_some(), "--from"), (to.is_some(), "--to"), (!conditions.is_empty(), "--where")];
        let Some((_, option)) = given.into_iter().find(|(is_given, _)| *is_given) else { return Ok(()) };
        let words = format!("{option} is for stores; a recording has --time, --comm, --cgroup, --pid and --tid");
        Err(Usage(words).into())
    }

    /// The conditions as text.
    pub(crate) fn conditions(&self) -> String {
        let conditions = self.conditions.iter().map(|(column, value)| format!(" {column}={value}"));
        conditions.collect()
    }
}

/// Whether this is the directory of a store.
pub(crate) fn is_store(path: &Path) -> bool {
    path.is_dir()
}

/// Refuses options that only recordings have.
///
/// # Errors
/// If one is given.
pub(crate) fn refuse_of_recordings(source: &Source) -> anyhow::Result<()> {
    let words = match source.of_recordings() {
        None => return Ok(()),
        Some("--time") => "--time is for recordings; a store has --from and --to".to_owned(),
        Some(option) => format!("{option} is for recordings: the stacks of a store are unwound already"),
    };
    Err(Usage(words).into())
}

/// The samples of a store that pass the filters: of one event and strategy, those of the filters or else the store's best.
/// Prints which they are, and which files cannot be read.
///
/// # Errors
/// If a filter is invalid, or the store cannot be read or has no such samples.
pub(crate) fn profile(source: &Source, rows: &Rows, strategy: Option<Strategy>) -> anyhow::Result<Profile> {
    let (path, event) = (&source.file, source.event.clone());
    let given = [
        ("from", rows.from.clone()),
        ("to", rows.to.clone()),
        ("event", event),
        ("strategy", strategy.map(|strategy| strategy.to_string())),
    ];
    let given = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let given: Vec<(String, String)> = given.collect();
    let pairs: Vec<(String, String)> = given.iter().chain(&rows.conditions).cloned().collect();
    let filter = serve::filter(&pairs).map_err(|error| {
        let is_own = ["from:", "to:", "event:", "strategy:"].iter().any(|name| error.starts_with(name));
        Usage(format!("{}{error}", if is_own { "--" } else { "--where " }))
    })?;
    let files = serve::Files::store(path).with_context(|| path.display().to_string())?;
    let (profile, missing) = serve::profile(&files, &filter, &source.only.filter())?;
    for why in missing {
        print_message(&format!("warning  {why}: samples are missing"));
    }
    let profile = profile.with_context(|| {
        let options = given.iter().map(|(name, value)| format!("--{name} {value}"));
        let conditions = rows.conditions.iter().map(|(column, value)| format!("--where {column}={value}"));
        let only = source.only.filter();
        let only = (!only.is_all()).then(|| only.to_string());
        let asked: Vec<String> = options.chain(conditions).chain(only).collect();
        match asked.as_slice() {
            [] => format!("{}: the store has no samples", path.display()),
            asked => format!("{}: no samples match {}: change or remove one of these", path.display(), asked.join(" ")),
        }
    })?;
    print_message(&format!("fpprof: {}", summary(&profile)));
    if profile.unit == Unit::CpuNs {
        print_message("note  samples stand for different amounts of CPU time: amounts are nanoseconds, not samples");
    }
    Ok(profile)
}

fn summary(profile: &Profile) -> String {
    let samples: u64 = profile.samples.iter().map(|sample| sample.samples).sum();
    let event = profile.events.first().map_or("", |event| &event.name);
    let start = i64::try_from(profile.recorded.start_unix_ns / 1000).unwrap_or(i64::MAX);
    let start = Timestamp::from_microsecond(start).unwrap_or_default();
    let end = start.saturating_add(profile.duration).unwrap_or(start);
    format!("{samples} samples of {event}, unwound with {}, in intervals from {start:.0} to {end:.0}", profile.strategy)
}
