//! Filters of rows.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A column that rows are filtered by; its name is also that of the query parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Facet {
    /// Name of the machine.
    Host,
    /// systemd unit.
    Service,
    /// Container.
    Container,
    /// Pod of Kubernetes.
    Pod,
    /// Name of the process.
    Process,
    /// The sampled event.
    Event,
    /// The strategy of unwinding.
    Strategy,
}

impl Facet {
    /// All facets.
    pub const ALL: [Self; 7] =
        [Self::Host, Self::Service, Self::Container, Self::Pod, Self::Process, Self::Event, Self::Strategy];

    /// Name of the column and of the parameter.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Service => "service",
            Self::Container => "container",
            Self::Pod => "pod",
            Self::Process => "process",
            Self::Event => "event",
            Self::Strategy => "strategy",
        }
    }

    /// The facet's bit in a set of columns.
    pub(super) fn bit(self) -> u16 {
        1 << (self as u8)
    }
}

/// Selects rows of intervals that began in a range of time and that have one of the wanted names in each column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Start of the range, inclusive, microseconds since 1970; `None` for no bound.
    pub from_us: Option<i64>,
    /// End of the range, exclusive, microseconds since 1970; `None` for no bound.
    pub to_us: Option<i64>,
    /// The accepted names by column; an absent column accepts any. The empty name stands for rows without one.
    pub names: BTreeMap<Facet, BTreeSet<String>>,
    /// The accepted values by name of a label, likewise.
    pub labels: BTreeMap<String, BTreeSet<String>>,
}

impl Filter {
    /// Whether an interval that began at this time is in the range.
    #[must_use]
    pub fn has_time(&self, time_us: i64) -> bool {
        self.from_us.is_none_or(|from| time_us >= from) && self.to_us.is_none_or(|to| time_us < to)
    }

    /// Whether intervals that began from a first time to a last one can be in the range.
    #[must_use]
    pub fn has_some_of(&self, [first, last]: [i64; 2]) -> bool {
        self.from_us.is_none_or(|from| last >= from) && self.to_us.is_none_or(|to| first < to)
    }

    /// Whether a row may pass both filters.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let from = self.from_us.max(other.from_us);
        let to = [self.to_us, other.to_us].into_iter().flatten().min();
        let is_time_common = from.zip(to).is_none_or(|(from, to)| from < to);
        is_time_common && have_common(&self.names, &other.names) && have_common(&self.labels, &other.labels)
    }

    /// Whether the filter accepts this name in a column.
    #[must_use]
    pub fn has_name(&self, facet: Facet, name: &str) -> bool {
        self.names.get(&facet).is_none_or(|names| names.contains(name))
    }

    /// The accepted name of a column, if there is exactly one.
    #[must_use]
    pub fn only(&self, facet: Facet) -> Option<&str> {
        match self.names.get(&facet)?.iter().collect::<Vec<_>>().as_slice() {
            [name] => Some(name),
            _ => None,
        }
    }

    /// Returns the filter with a column restricted to one name.
    #[must_use]
    pub fn with(mut self, facet: Facet, name: &str) -> Self {
        self.names.insert(facet, BTreeSet::from([name.to_owned()]));
        self
    }

    /// Returns the filter with any name accepted in a column.
    #[must_use]
    pub fn without(mut self, facet: Facet) -> Self {
        self.names.remove(&facet);
        self
    }
}

/// Whether some value is accepted by both in each column.
fn have_common<K: Ord>(one: &BTreeMap<K, BTreeSet<String>>, other: &BTreeMap<K, BTreeSet<String>>) -> bool {
    one.iter().all(|(column, values)| other.get(column).is_none_or(|others| !values.is_disjoint(others)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only filters of disjoint ranges or names have no row in common.
    #[test]
    fn filters_overlap() {
        let range = |from_us, to_us| Filter { from_us, to_us, ..Filter::default() };
        let all = Filter::default();
        for (one, other, has_common) in [
            (all.clone(), all.clone(), true),
            (range(None, Some(5)), range(Some(5), None), false),
            (range(None, Some(6)), range(Some(5), None), true),
            (range(Some(1), Some(9)), range(Some(3), Some(4)), true),
            (range(Some(1), Some(2)), range(Some(3), Some(4)), false),
            (all.clone().with(Facet::Host, "a"), all.clone(), true),
            (all.clone().with(Facet::Host, "a"), all.clone().with(Facet::Host, "b"), false),
            (all.clone().with(Facet::Host, "a"), all.clone().with(Facet::Process, "b"), true),
        ] {
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (has_common, has_common), "{one:?} {other:?}");
        }
    }
}
