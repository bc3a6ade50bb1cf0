//! The choices of each filter, with their samples.

use super::error::StoreError;
use super::filter::{Facet, Filter};
use super::labels::Labels;
use super::rows::{LABELS, LABELS_BIT, Rows};
use crate::escape::visible;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most names of a column in an answer.
const MAX: usize = 1000;
/// Bits of event and strategy. They do not filter rows here: counts are kept per event and strategy anyway.
const FIXED: u16 = (1 << Facet::Event as u8) | (1 << Facet::Strategy as u8);

/// Whose names are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Column {
    Facet(Facet),
    /// A label, by the number of its name.
    Label(u32),
}

/// Adds up samples by the names in each column.
#[derive(Debug)]
pub struct Facets {
    filter: Arc<Filter>,
    names: Labels,
    /// Samples by column, combination and name.
    counts: FxHashMap<(Column, usize, u32), u64>,
    /// Samples by combination that pass all filters but those of labels.
    whatever_label: Vec<u64>,
    combinations: Vec<Combination>,
    /// The least and the most weight per sample of its rows, by combination.
    each: Vec<[u64; 2]>,
    first_us: Option<i64>,
    end_us: Option<i64>,
}

/// Samples of an event under a strategy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Combination {
    /// The sampled event.
    pub event: String,
    /// The strategy of unwinding.
    pub strategy: String,
    /// The unit of its weights: `cpu_ns`, `blocked_ns` or `occurrences`.
    pub weight_unit: String,
    /// Samples.
    pub samples: u64,
    /// The sum of their weights.
    pub weight: u64,
}

/// The event and the strategy that an answer covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The sampled event.
    pub event: String,
    /// The strategy of unwinding.
    pub strategy: String,
    /// The unit of its weights; empty if it was not looked up.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub weight_unit: String,
    /// Whether its samples stand for different amounts of CPU time, as after a change of the rate or of two machines: then
    /// weights are added up by default, not samples. `false` if it was not looked up.
    pub weights_differ: bool,
}

/// The choices of each filter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FacetsAnswer {
    /// All combinations of event and strategy, with their samples under the other filters.
    pub combinations: Vec<Combination>,
    /// The combination that the filter names, or else the default.
    pub choice: Option<Choice>,
    /// By column, the names that pass the filters of all other columns, with their samples of the chosen event. A
    /// name's samples are those under the strategy with the most of them, as machines may record under different
    /// strategies.
    pub facets: BTreeMap<Facet, Vec<Named>>,
    /// By name of a label, its values with their samples that pass all filters but those of labels, 1,000 at most; empty
    /// for samples without it.
    pub labels: BTreeMap<String, Vec<Named>>,
    /// By column, the number of names left out; they have fewer samples.
    pub left_out: BTreeMap<Facet, usize>,
    /// How many more samples of the chosen event there are under other strategies; each machine's under the strategy with the
    /// most of them.
    pub others: u64,
    /// Start of the first and end of the last interval in the filter's range, seconds since 1970.
    pub span: Option<[f64; 2]>,
}

/// A name and its samples.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named {
    /// The name; empty for rows without one.
    pub name: String,
    /// Samples.
    pub samples: u64,
}

impl Facets {
    /// Starts with no rows.
    #[must_use]
    pub fn new(filter: Arc<Filter>) -> Self {
        let (counts, combinations) = (FxHashMap::default(), Vec::new());
        let (names, whatever_label) = (Labels::default(), Vec::new());
        let each = Vec::new();
        Self { filter, names, counts, whatever_label, combinations, each, first_us: None, end_us: None }
    }

    /// The columns that [`Self::add`] needs. It applies the filter itself: read the rows without one.
    pub const COLUMNS: [&str; 13] = [
        "time",
        "duration_us",
        "host",
        "service",
        "container",
        "pod",
        "process",
        "event",
        "strategy",
        "weight_unit",
        "samples",
        "weight",
        LABELS,
    ];

    /// Adds rows.
    ///
    /// # Errors
    /// If a column is missing (then no row was added), or if there are too many names.
    pub fn add(&mut self, rows: &Rows) -> Result<(), StoreError> {
        let refused = rows.refusals(&self.filter)?;
        let (samples, weights) = (rows.counts("samples")?, rows.counts("weight")?);
        let (times, durations) = (rows.times()?, rows.numbers("duration_us")?);
        let free = Facet::ALL.into_iter().filter(|facet| facet.bit() & FIXED == 0);
        let columns: Vec<_> =
            free.map(|facet| Ok((facet, rows.words(facet.name())?))).collect::<Result<_, StoreError>>()?;
        self.names.name("")?;
        let combinations = self.combinations_of(rows)?;
        self.whatever_label.resize(self.combinations.len(), 0);
        self.each.resize(self.combinations.len(), [u64::MAX, 0]);
        for (row, &combination) in combinations.iter().enumerate() {
            let at = |list: &[u64]| list.get(row).copied().unwrap_or(0);
            let bits = refused.get(row).copied().unwrap_or(u16::MAX) & !FIXED;
            if let Some(sum) = self.combinations.get_mut(combination).filter(|_| bits == 0) {
                sum.samples = sum.samples.saturating_add(at(&samples));
                sum.weight = sum.weight.saturating_add(at(&weights));
            }
            let each = at(&weights).checked_div(at(&samples));
            if let (Some([least, most]), Some(each), 0) = (self.each.get_mut(combination), each, bits) {
                (*least, *most) = ((*least).min(each), (*most).max(each));
            }
            if let Some(sum) = self.whatever_label.get_mut(combination).filter(|_| bits & !LABELS_BIT == 0) {
                *sum = sum.saturating_add(at(&samples));
            }
        }
        for (&begin, &duration) in times.iter().zip(durations).filter(|&(&begin, _)| self.filter.has_time(begin)) {
            self.first_us = Some(self.first_us.map_or(begin, |first| first.min(begin)));
            let end = begin.saturating_add(duration);
            self.end_us = Some(self.end_us.map_or(end, |last| last.max(end)));
        }
        for (facet, words) in columns {
            let numbers: Vec<u32> = words.values().map(|name| self.names.name(name)).collect::<Result<_, _>>()?;
            let rows = words.numbers().zip(&refused).zip(&combinations).zip(&samples);
            for (((name, bits), &combination), samples) in rows {
                // Rejected by no column, or only by this one.
                if let Some(&name) = numbers.get(name).filter(|_| bits & !FIXED & !facet.bit() == 0) {
                    let sum = self.counts.entry((Column::Facet(facet), combination, name)).or_default();
                    *sum = sum.saturating_add(*samples);
                }
            }
        }
        let Some(labels) = rows.labels()? else { return Ok(()) };
        for (row, ((bits, &combination), samples)) in refused.iter().zip(&combinations).zip(&samples).enumerate() {
            if bits & !FIXED & !LABELS_BIT == 0 {
                for (name, value) in labels.of(row) {
                    let column = Column::Label(self.names.name(name)?);
                    let sum = self.counts.entry((column, combination, self.names.name(value)?)).or_default();
                    *sum = sum.saturating_add(*samples);
                }
            }
        }
        Ok(())
    }

    /// The index of each row's combination.
    fn combinations_of(&mut self, rows: &Rows) -> Result<Vec<usize>, StoreError> {
        let (events, strategies) = (rows.words("event")?, rows.words("strategy")?);
        let mut known = FxHashMap::default();
        let rows = events.numbers().zip(strategies.numbers()).zip(rows.words("weight_unit")?.names());
        Ok(rows
            .map(|(key, unit)| {
                *known.entry(key).or_insert_with(|| {
                    let (event, strategy) = (visible(events.value(key.0)), visible(strategies.value(key.1)));
                    let is_it = |other: &Combination| other.event == event && other.strategy == strategy;
                    self.combinations.iter().position(is_it).unwrap_or_else(|| {
                        self.combinations.push(Combination {
                            event: event.into_owned(),
                            strategy: strategy.into_owned(),
                            weight_unit: unit.to_owned(),
                            samples: 0,
                            weight: 0,
                        });
                        self.combinations.len() - 1
                    })
                })
            })
            .collect())
    }

    /// The index of the default combination under the filter: an event other than waits if there is one, then a
    /// strategy other than frame pointers if one has at least half of the event's samples, then the most samples.
    fn choice(&self) -> Option<usize> {
        let is_wanted = |facet, name: &str| self.filter.has_name(facet, name);
        let wanted = self.combinations.iter().enumerate().filter(|(_, combination)| {
            is_wanted(Facet::Event, &combination.event) && is_wanted(Facet::Strategy, &combination.strategy)
        });
        let suits = |Combination { event, strategy, weight_unit, samples, .. }: &Combination| {
            let most = self.combinations.iter().filter(|other| other.event == *event).map(|other| other.samples).max();
            let has_half = samples.saturating_mul(2) >= most.unwrap_or(0);
            (weight_unit != "blocked_ns", has_half, strategy != "fp", *samples)
        };
        wanted.max_by_key(|(_, combination)| suits(combination)).map(|(number, _)| number)
    }

    /// Counts the samples without each label under the empty name, as filters do.
    fn add_unlabelled(&mut self) {
        // If there were no more room for names, a row would have been refused.
        let Ok(none) = self.names.name("") else { return };
        let mut labelled: FxHashMap<(Column, usize), u64> = FxHashMap::default();
        for (&(column, combination, _), samples) in &self.counts {
            if let Column::Label(_) = column {
                let sum = labelled.entry((column, combination)).or_default();
                *sum = sum.saturating_add(*samples);
            }
        }
        let columns: FxHashSet<Column> = labelled.keys().map(|&(column, _)| column).collect();
        for (combination, all) in self.whatever_label.iter().enumerate() {
            for &column in &columns {
                let rest = all.saturating_sub(labelled.get(&(column, combination)).copied().unwrap_or(0));
                if rest > 0 {
                    let sum = self.counts.entry((column, combination, none)).or_default();
                    *sum = sum.saturating_add(rest);
                }
            }
        }
    }

    /// Finishes the answer.
    #[must_use]
    pub fn finish(mut self) -> FacetsAnswer {
        self.add_unlabelled();
        let number = self.choice();
        let choice = number.and_then(|number| self.combinations.get(number));
        let event = choice.map(|choice| choice.event.as_str());
        // The maximum over strategies, not the sum: each sample has a row for each strategy.
        let mut most: BTreeMap<(Column, u32), u64> = BTreeMap::new();
        for (&(column, combination, name), &samples) in &self.counts {
            let is_counted = |it: &&Combination| {
                Some(it.event.as_str()) == event && self.filter.has_name(Facet::Strategy, &it.strategy)
            };
            if self.combinations.get(combination).filter(is_counted).is_some() {
                let n = most.entry((column, name)).or_default();
                *n = samples.max(*n);
            }
        }
        let of_choice = |key: (Column, u32)| number.and_then(|number| self.counts.get(&(key.0, number, key.1)));
        let of_others = most.iter().filter(|((column, name), _)| {
            *column == Column::Facet(Facet::Host) && self.filter.has_name(Facet::Host, self.names.text(*name))
        });
        let others = of_others.fold(0_u64, |sum, (&key, samples)| {
            sum.saturating_add(samples.saturating_sub(of_choice(key).copied().unwrap_or(0)))
        });
        let (mut facets, mut labels): (BTreeMap<_, Vec<Named>>, BTreeMap<_, Vec<Named>>) = Default::default();
        let text = |name: u32| visible(self.names.text(name)).into_owned();
        for ((column, name), samples) in most {
            let list = match column {
                Column::Facet(facet) => facets.entry(facet).or_default(),
                Column::Label(label) => labels.entry(text(label)).or_default(),
            };
            list.push(Named { name: text(name), samples });
        }
        let mut left_out = BTreeMap::new();
        for (&facet, list) in &mut facets {
            let n = shorten(list);
            if n > 0 {
                left_out.insert(facet, n);
            }
        }
        labels.values_mut().for_each(|list| _ = shorten(list));
        let weights_differ = number.and_then(|number| self.each.get(number)).is_some_and(|&each| differ(each));
        let choice = choice.cloned().map(|Combination { event, strategy, weight_unit, .. }| Choice {
            weights_differ: weights_differ && weight_unit == "cpu_ns",
            event,
            strategy,
            weight_unit,
        });
        let span = self.first_us.zip(self.end_us).map(|(first, end)| [seconds(first), seconds(end)]);
        FacetsAnswer { combinations: self.combinations, choice, facets, labels, left_out, others, span }
    }
}

/// Whether weights differ by more than their rounding.
fn differ([least, most]: [u64; 2]) -> bool {
    most.saturating_sub(least) > least / 100
}

/// Sorts names by samples, and leaves out those with the fewest; returns how many.
fn shorten(list: &mut Vec<Named>) -> usize {
    list.sort_by(|a, b| (b.samples, &a.name).cmp(&(a.samples, &b.name)));
    let left_out = list.len().saturating_sub(MAX);
    list.truncate(MAX);
    left_out
}

/// Microseconds as seconds.
pub(super) fn seconds(us: i64) -> f64 {
    us as f64 / 1e6
}
