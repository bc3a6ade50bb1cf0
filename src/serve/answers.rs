//! Answers queries of the page, one function for each, and adds up profiles for export.

use super::files::{Files, Unread};
use super::parameters::{Asked, More, parse};
use crate::tables::Table;
use fpprof_analysis::profile::Profile;
use fpprof_reports::store::{
    Choice, Cost, Facet, Facets, FacetsAnswer, Filter, GoesOn, Quality, Rows, Stacks, StoreError, StoreProfile, Unit,
    compared, flamegraph, functions,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time limit of a query.
const LIMIT: Duration = Duration::from_secs(60);
/// How often a query begins anew because a file was gone that had been listed: the agent merges files.
const MAX_TRIES: usize = 10;
/// The most unreadable files named in an answer; all are counted.
const MAX_NAMED: usize = 20;

/// Why a query failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// A parameter is invalid; the message names it.
    #[error("{0}")]
    Parameter(String),
    /// No such query.
    #[error("no such endpoint; /api/ has facets, flamegraph, functions, compare, quality and cost")]
    Unknown,
    /// The query would take too much time or memory.
    #[error("{0}")]
    TooMuch(String),
    /// A listed file is gone.
    #[error("the store changes too fast")]
    Changed,
    /// The client has gone.
    #[error("cancelled")]
    Cancelled,
    /// The answer cannot be encoded.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

/// A query being answered.
struct Answer<'a> {
    files: &'a Files,
    is_cancelled: &'a AtomicBool,
    goes_on: &'a GoesOn,
    /// Whether a file that is gone is noted as unreadable.
    is_last_try: bool,
    /// Names of files that were read, and of those that could not be; sets, since a query may read a file several
    /// times.
    read: BTreeSet<String>,
    unread: BTreeSet<String>,
    unread_why: Vec<String>,
}

/// Answers a query, such as `flamegraph`, as JSON.
///
/// # Errors
/// If it is invalid, takes too much, or is cancelled.
pub(super) fn answer(
    files: &Files,
    question: &str,
    pairs: &[(String, String)],
    is_cancelled: &Arc<AtomicBool>,
) -> Result<Vec<u8>, Failure> {
    let (began, flag) = (Instant::now(), Arc::clone(is_cancelled));
    let goes_on: GoesOn = Arc::new(move || !flag.load(Ordering::Relaxed) && began.elapsed() <= LIMIT);
    settled(files, is_cancelled, &goes_on, |answer| answer.to(question, pairs))
}

/// The samples that pass both filters as a profile, of one event and strategy, which [`Facets`] chooses where the filter
/// leaves them open; `None` if there are none. Also why files could not be read.
///
/// # Errors
/// If there are too many stacks, or the store changes too fast.
pub(crate) fn profile(
    files: &Files,
    filter: &Filter,
    only: &fpprof_analysis::filter::Filter,
) -> anyhow::Result<(Option<Profile>, Vec<String>)> {
    let goes_on: GoesOn = Arc::new(|| true);
    Ok(settled(files, &AtomicBool::new(false), &goes_on, |answer| answer.profile(filter, only))?)
}

/// The first answer for which no listed file was gone.
fn settled<T>(
    files: &Files,
    is_cancelled: &AtomicBool,
    goes_on: &GoesOn,
    to: impl Fn(Answer<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut answers = (1..=MAX_TRIES).map(|n| {
        let (read, unread) = (BTreeSet::new(), BTreeSet::new());
        let is_last_try = n == MAX_TRIES;
        to(Answer { files, is_cancelled, goes_on, is_last_try, read, unread, unread_why: Vec::new() })
    });
    let is_settled = |answer: &Result<_, Failure>| !matches!(answer, Err(Failure::Changed));
    answers.find(is_settled).unwrap_or(Err(Failure::Changed))
}

impl Answer<'_> {
    fn to(self, question: &str, pairs: &[(String, String)]) -> Result<Vec<u8>, Failure> {
        let asked = |more| parse(pairs, more).map_err(Failure::Parameter);
        match question {
            "facets" => self.facets(asked(More::Nothing)?),
            "flamegraph" => self.flamegraph(&asked(More::Unit)?),
            "functions" => self.functions(&asked(More::Functions)?),
            "compare" => self.compare(&asked(More::Sides)?),
            "quality" => self.quality(asked(More::Nothing)?),
            "cost" => self.cost(asked(More::Nothing)?),
            _ => Err(Failure::Unknown),
        }
    }

    fn facets(mut self, asked: Asked) -> Result<Vec<u8>, Failure> {
        let facets = self.choose(&Arc::new(asked.filter))?;
        let span = self.files.span().map(|span| span.map(|us| us as f64 / 1e6));
        let store = json!({ "name": self.files.name(), "has_counters": self.files.has_counters(), "span": span });
        self.write(json!({ "store": store }), &facets.finish())
    }

    fn flamegraph(mut self, asked: &Asked) -> Result<Vec<u8>, Failure> {
        let (stacks, about) = self.stacks(asked, true, false)?;
        self.write(about, &flamegraph(stacks))
    }

    fn functions(mut self, asked: &Asked) -> Result<Vec<u8>, Failure> {
        let (stacks, about) = self.stacks(asked, false, true)?;
        self.write(about, &functions(&stacks))
    }

    /// Adds up the stacks of one selection; also returns the answer's description.
    fn stacks(&mut self, asked: &Asked, tree: bool, functions: bool) -> Result<(Stacks, Value), Failure> {
        let (choice, unit) = self.chosen(&asked.filter, asked.unit)?;
        let mut stacks = Stacks::new(asked.wanted(unit, tree, functions))?;
        self.add_side(&mut stacks, 0, &asked.filter, choice.as_ref())?;
        Ok((stacks, about(choice.as_ref(), unit)))
    }

    fn profile(
        mut self,
        filter: &Filter,
        only: &fpprof_analysis::filter::Filter,
    ) -> Result<(Option<Profile>, Vec<String>), Failure> {
        let FacetsAnswer { choice, others, .. } = self.choose(&Arc::new(filter.clone()))?.finish();
        let Some(choice) = choice else { return Ok((None, self.unread_lines())) };
        let without = (others > 0)
            .then(|| format!("{others} more samples of {} were not unwound with {}", choice.event, choice.strategy));
        let filter = filter.clone().with(Facet::Event, &choice.event).with(Facet::Strategy, &choice.strategy);
        let mut profile = StoreProfile::new(choice, only.clone());
        self.each(Table::Stacks, &Arc::new(filter), &StoreProfile::COLUMNS, true, |rows| profile.add(rows))?;
        let profile = profile.finish();
        let missing = without.into_iter().chain(self.unread_lines()).collect();
        Ok(((!profile.samples.is_empty()).then_some(profile), missing))
    }

    /// Why files could not be read, a line for each of the first.
    fn unread_lines(self) -> Vec<String> {
        let more = self.unread.len().saturating_sub(self.unread_why.len());
        self.unread_why.into_iter().chain((more > 0).then(|| format!("{more} more files cannot be read"))).collect()
    }

    fn compare(mut self, asked: &Asked) -> Result<Vec<u8>, Failure> {
        let (after, unit_after) = self.chosen(&asked.filter, asked.unit)?;
        let of_event = match &after {
            Some(choice) => asked.before.clone().with(Facet::Event, &choice.event),
            None => asked.before.clone(),
        };
        let (before, unit_before) = self.chosen(&of_event, asked.unit)?;
        // Both sides in one unit: shares of samples would be wrong if one side needs weights.
        let unit = if unit_before == Unit::Weight { unit_before } else { unit_after };
        let mut stacks = Stacks::new(asked.wanted(unit, true, true))?;
        self.add_side(&mut stacks, 0, &asked.before, before.as_ref())?;
        self.add_side(&mut stacks, 1, &asked.filter, after.as_ref())?;
        let rest = |filter: &Filter| filter.clone().without(Facet::Strategy);
        // Samples on both sides, as those of two strategies, are not independent.
        let has_common = rest(&asked.before).overlaps(&rest(&asked.filter));
        let about = json!({ "before": before, "after": after, "choice": after, "unit": unit_name(unit) });
        self.write(json!({ "about": about }), &compared(stacks, unit == Unit::Samples && !has_common))
    }

    fn quality(mut self, asked: Asked) -> Result<Vec<u8>, Failure> {
        let (choice, _) = self.chosen(&asked.filter, Some(Unit::Samples))?;
        let filter = match &choice {
            Some(choice) => asked.filter.with(Facet::Event, &choice.event),
            None => asked.filter,
        };
        let filter = Arc::new(filter);
        let mut quality = Quality::new(Arc::clone(&filter));
        self.each(Table::Stacks, &filter, &Quality::STACKS, true, |rows| quality.add_stacks(rows))?;
        self.each(Table::Counters, &filter, &Quality::COUNTERS, false, |rows| quality.add_counters(rows))?;
        self.write(json!({ "choice": choice }), &quality.finish())
    }

    fn cost(mut self, asked: Asked) -> Result<Vec<u8>, Failure> {
        let filter = Arc::new(asked.filter);
        let mut cost = Cost::new(Arc::clone(&filter));
        self.each(Table::Counters, &filter, &Cost::COUNTERS, false, |rows| cost.add(rows))?;
        self.write(json!({}), &cost.finish())
    }

    fn add_side(
        &mut self,
        stacks: &mut Stacks,
        side: usize,
        filter: &Filter,
        choice: Option<&Choice>,
    ) -> Result<(), Failure> {
        let Some(Choice { event, strategy, .. }) = choice else { return Ok(()) };
        let filter = Arc::new(filter.clone().with(Facet::Event, event).with(Facet::Strategy, strategy));
        let columns = stacks.columns();
        self.each(Table::Stacks, &filter, &columns, true, |rows| stacks.add(side, rows))
    }

    /// The event, strategy and unit of an answer; what the filter leaves open is chosen by [`Facets`]. The default unit
    /// is samples, but for waits their durations, and CPU time if samples stand for different amounts of it.
    fn chosen(&mut self, filter: &Filter, unit: Option<Unit>) -> Result<(Option<Choice>, Unit), Failure> {
        if let (Some(event), Some(strategy), Some(unit)) =
            (filter.only(Facet::Event), filter.only(Facet::Strategy), unit)
        {
            let (event, strategy) = (event.to_owned(), strategy.to_owned());
            let (weight_unit, weights_differ) = (String::new(), false);
            return Ok((Some(Choice { event, strategy, weight_unit, weights_differ }), unit));
        }
        let choice = self.choose(&Arc::new(filter.clone()))?.finish().choice;
        let is_weighed = |choice: &Choice| choice.weights_differ || choice.weight_unit == "blocked_ns";
        let default = if choice.as_ref().is_some_and(is_weighed) { Unit::Weight } else { Unit::Samples };
        Ok((choice, unit.unwrap_or(default)))
    }

    fn choose(&mut self, filter: &Arc<Filter>) -> Result<Facets, Failure> {
        let mut facets = Facets::new(Arc::clone(filter));
        self.each(Table::Stacks, filter, &Facets::COLUMNS, false, |rows| facets.add(rows))?;
        Ok(facets)
    }

    /// Passes the rows of all files of the range to `add`.
    ///
    /// A file that cannot be read is noted and skipped, so that one damaged file does not hide the others. If one is gone
    /// that was listed, the query begins anew, since its rows may be in another one. Cancellation and the time limit are
    /// checked before each file and every few thousand rows.
    fn each(
        &mut self,
        table: Table,
        filter: &Arc<Filter>,
        columns: &[&str],
        is_filtered: bool,
        mut add: impl FnMut(&Rows) -> Result<(), StoreError>,
    ) -> Result<(), Failure> {
        let (found, refused) = self.files.found(table, filter);
        refused.into_iter().for_each(|why| self.note_unread(why.clone(), why));
        for found in found {
            if !(self.goes_on)() {
                return Err(self.stopped());
            }
            let rows = self.files.rows(&found, columns, is_filtered.then_some(filter), self.goes_on);
            let mut add = |rows: &Rows| if (self.goes_on)() { add(rows) } else { Err(StoreError::Stopped) };
            match rows.and_then(|rows| Ok(rows.iter().try_for_each(&mut add)?)) {
                Ok(()) => _ = self.read.insert(found.name),
                Err(Unread::Store(StoreError::Stopped)) => return Err(self.stopped()),
                Err(Unread::Io(error))
                    if error.kind() == io::ErrorKind::NotFound && found.is_gone() && !self.is_last_try =>
                {
                    return Err(Failure::Changed);
                }
                Err(Unread::Store(error)) if !error.is_of_file() => return Err(error.into()),
                Err(error) => {
                    let why = format!("{}: {error}", found.name);
                    self.note_unread(found.name, why);
                }
            }
        }
        Ok(())
    }

    /// Why it does not go on.
    fn stopped(&self) -> Failure {
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Failure::Cancelled;
        }
        Failure::TooMuch(format!("it would take more than {} s: choose a shorter range of time", LIMIT.as_secs()))
    }

    fn note_unread(&mut self, name: String, why: String) {
        if self.unread.insert(name) && self.unread_why.len() < MAX_NAMED {
            self.unread_why.push(why);
        }
    }

    /// Encodes the answer with its description and the files it came from.
    fn write(self, about: Value, answer: &impl Serialize) -> Result<Vec<u8>, Failure> {
        #[derive(Serialize)]
        struct Written<'a, A> {
            files: Value,
            #[serde(flatten)]
            about: Value,
            #[serde(flatten)]
            answer: &'a A,
        }
        let unread = json!({ "count": self.unread.len(), "first": self.unread_why });
        let files = json!({ "read": self.read.len(), "unread": unread });
        Ok(serde_json::to_vec(&Written { files, about, answer })?)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::TooMuch(error.to_string())
    }
}

fn about(choice: Option<&Choice>, unit: Unit) -> Value {
    json!({ "choice": choice, "unit": unit_name(unit) })
}

fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Samples => "samples",
        Unit::Weight => "weight",
    }
}
