//! Reads the samples that `fpprof export` writes from a store.

use crate::exit::Usage;
use crate::output::print_message;
use crate::serve;
use anyhow::Context as _;
use fpprof_analysis::filter::Filter;
use fpprof_analysis::profile::Profile;
use fpprof_analysis::strategy::Strategy;
use jiff::Timestamp;
use std::path::Path;

/// Heading of these options in the help.
const FILTERS: &str = "Filters of a store";

/// Which rows of a store.
#[derive(Debug, clap::Args)]
pub(super) struct Rows {
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
    /// The first of these options that was given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let Self { from, to, conditions } = self;
        let given = [(from.is_some(), "--from"), (to.is_some(), "--to"), (!conditions.is_empty(), "--where")];
        given.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }
}

/// The samples of a store that pass the filters: of one event and strategy, those of the filters or else the store's best.
/// Prints which they are, and which files cannot be read.
///
/// # Errors
/// If a filter is invalid, or the store cannot be read or has no such samples.
pub(super) fn profile(
    path: &Path,
    rows: &Rows,
    (event, strategy): (Option<String>, Option<Strategy>),
    only: &Filter,
) -> anyhow::Result<Profile> {
    let given = [
        ("from", rows.from.clone()),
        ("to", rows.to.clone()),
        ("event", event),
        ("strategy", strategy.map(|strategy| strategy.to_string())),
    ];
    let given = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let pairs: Vec<(String, String)> = given.chain(rows.conditions.iter().cloned()).collect();
    let filter = serve::filter(&pairs).map_err(|error| {
        let is_own = ["from:", "to:", "event:", "strategy:"].iter().any(|name| error.starts_with(name));
        Usage(format!("{}{error}", if is_own { "--" } else { "--where " }))
    })?;
    let files = serve::Files::store(path).with_context(|| path.display().to_string())?;
    let (profile, unread) = serve::profile(&files, &filter, only)?;
    for why in unread {
        print_message(&format!("warning  {why}: samples are missing"));
    }
    let profile = profile.with_context(|| format!("{}: no samples match", path.display()))?;
    print_message(&format!("fpprof: {}", summary(&profile)));
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
