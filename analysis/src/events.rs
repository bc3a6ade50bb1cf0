//! Selects the events of a recording to analyse. Different units are never mixed: samples are counted, waits measured
//! by their time.

use crate::address_space::{Place, Timeline};
use crate::error::Error;
use crate::filter::Filter;
use crate::folded::Unit;
use fpprof_recording::model::{Measure, Meta, Sample};

/// The name of an event without what perf appends, modifiers and settings: `cpu-clock:u`, `cpu-clock/freq=499/`.
pub(crate) fn base_name(event: &str) -> &str {
    event.split([':', '/']).next().unwrap_or(event)
}

/// Whether an event is a timer that counts nanoseconds of CPU time.
pub(crate) fn is_clock(event: &str) -> bool {
    matches!(base_name(event), "cpu-clock" | "task-clock")
}

/// Events of a recording that are analysed together, and which of their samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    events: Vec<u16>,
    /// The event that was asked for.
    asked: Option<String>,
    unit: Unit,
    filter: Filter,
    start_ns: u64,
}

impl Selection {
    /// The event with this name; without a name, all events counted in samples, or the first event if there are none.
    ///
    /// # Errors
    /// [`Error::NoSuchEvent`].
    pub fn new(meta: &Meta, name: Option<&str>) -> Result<Self, Error> {
        let events = || (0_u16..).zip(&meta.events);
        let is_blocked = |measure| matches!(measure, Measure::Blocked { .. });
        let chosen: Vec<(u16, Measure)> = match name {
            Some(name) => {
                events().filter(|(_, event)| event.name == name).map(|(n, event)| (n, event.measure)).collect()
            }
            None => {
                let counted = events().filter(|(_, event)| !is_blocked(event.measure));
                let counted: Vec<_> = counted.map(|(n, event)| (n, event.measure)).collect();
                let first = || events().take(1).map(|(n, event)| (n, event.measure)).collect();
                if counted.is_empty() { first() } else { counted }
            }
        };
        if let (Some(name), true) = (name, chosen.is_empty()) {
            let mut there: Vec<&str> = meta.events.iter().map(|event| event.name.as_str()).collect();
            there.dedup();
            return Err(Error::NoSuchEvent { asked: name.to_owned(), there: there.join(", ") });
        }
        let unit = if chosen.iter().any(|&(_, measure)| is_blocked(measure)) { Unit::BlockedNs } else { Unit::Samples };
        let events = chosen.into_iter().map(|(n, _)| n).collect();
        let asked = name.map(str::to_owned);
        Ok(Self { events, asked, unit, filter: Filter::default(), start_ns: meta.start_ns })
    }

    /// Restricts the selection to samples that match `filter`.
    #[must_use]
    pub fn only(self, filter: Filter) -> Self {
        Self { filter, ..self }
    }

    /// The selection as it is typed: the event that was asked for, and the filter.
    #[must_use]
    pub(crate) fn typed(&self) -> String {
        let event = self.asked.as_ref().map(|name| format!("--event {name} ")).unwrap_or_default();
        format!("{event}{}", self.filter)
    }

    /// The filter on their samples.
    #[must_use]
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Whether a sample of one of the selected events matches the filter.
    #[must_use]
    pub fn takes(&self, sample: &Sample, place: &Place, timeline: &Timeline) -> bool {
        self.filter.is_all() || self.filter.has(sample, place, timeline, self.start_ns)
    }

    /// Whether an event, an index into [`Meta::events`], is selected.
    #[must_use]
    pub fn has(&self, event: u16) -> bool {
        self.events.contains(&event)
    }

    /// The unit of their samples.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Indices of the selected events in [`Meta::events`].
    #[must_use]
    pub fn events(&self) -> &[u16] {
        &self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::meta;
    use fpprof_recording::model::{CaptureMode, Event, Sampling};

    fn recorded(events: &[(&str, Measure)]) -> Meta {
        let event = |&(name, measure): &(&str, Measure)| Event {
            name: name.to_owned(),
            sampling: Sampling::Period(1),
            measure,
        };
        Meta { events: events.iter().map(event).collect(), ..meta(CaptureMode::Fp) }
    }

    /// Check that samples of several events are combined unless one is selected, and that waits are never among them.
    #[test]
    fn waits_are_never_mixed_with_samples() {
        let waits = Measure::Blocked { threshold_ns: 7 };
        let all = recorded(&[("cycles", Measure::Samples), ("off-cpu", waits), ("faults", Measure::Occurrences)]);
        let selected = |meta: &Meta, name| {
            let selection = Selection::new(meta, name).expect("there is such an event");
            (selection.events().to_vec(), selection.unit())
        };
        assert_eq!(selected(&all, None), (vec![0, 2], Unit::Samples));
        assert_eq!(selected(&all, Some("faults")), (vec![2], Unit::Samples));
        assert_eq!(selected(&all, Some("off-cpu")), (vec![1], Unit::BlockedNs));
        assert_eq!(selected(&recorded(&[("off-cpu", waits)]), None), (vec![0], Unit::BlockedNs));
        assert_eq!(selected(&recorded(&[]), None), (vec![], Unit::Samples));
        let refused = Selection::new(&all, Some("off_cpu")).expect_err("no such event").to_string();
        assert_eq!(refused, "no event off_cpu in the recording; it has cycles, off-cpu, faults");
    }
}
