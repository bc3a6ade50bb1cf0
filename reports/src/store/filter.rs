//! Which rows.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A column by which rows are chosen; its name is also that of a parameter.
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
    /// What was sampled.
    Event,
    /// How the stack was unwound.
    Strategy,
}

impl Facet {
    /// All of them.
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

    /// A bit of its own.
    pub(super) fn bit(self) -> u8 {
        1 << (self as u8)
    }
}

/// Which rows: those of intervals that began in a range of time, with one of the wanted names in each column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// At this time or later, microseconds since 1970.
    pub from_us: Option<i64>,
    /// Before this time, microseconds since 1970.
    pub to_us: Option<i64>,
    /// The names wanted of a column; one that is not here may have any. The empty name is that of rows without one.
    pub names: BTreeMap<Facet, BTreeSet<String>>,
}

impl Filter {
    /// Whether an interval that began then is in the range.
    #[must_use]
    pub fn has_time(&self, time_us: i64) -> bool {
        self.from_us.is_none_or(|from| time_us >= from) && self.to_us.is_none_or(|to| time_us < to)
    }

    /// Whether a column may have this name.
    #[must_use]
    pub fn has_name(&self, facet: Facet, name: &str) -> bool {
        self.names.get(&facet).is_none_or(|names| names.contains(name))
    }

    /// The name wanted of a column, where it is one.
    #[must_use]
    pub fn only(&self, facet: Facet) -> Option<&str> {
        match self.names.get(&facet)?.iter().collect::<Vec<_>>().as_slice() {
            [name] => Some(name),
            _ => None,
        }
    }

    /// The same with one name wanted of a column.
    #[must_use]
    pub fn with(mut self, facet: Facet, name: &str) -> Self {
        self.names.insert(facet, BTreeSet::from([name.to_owned()]));
        self
    }

    /// The same with any name in a column.
    #[must_use]
    pub fn without(mut self, facet: Facet) -> Self {
        self.names.remove(&facet);
        self
    }
}
