//! Sorts events by time while keeping only a limited number of them.
//!
//! A recorder writes them nearly in order. Events in order wait in a queue, late ones in a heap, and when there are
//! more than the window holds, the earliest of both is released.

use super::event::Event;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

#[derive(Debug)]
pub(super) struct Window {
    n_max: usize,
    in_order: VecDeque<Event>,
    late: BinaryHeap<Late>,
    /// Number of late events so far.
    n_late: u64,
    /// The last released event.
    last: Option<Event>,
    is_too_small: bool,
}

impl Window {
    /// Creates a window of this many events.
    pub(super) fn new(n_max: usize) -> Self {
        Self { n_max, in_order: VecDeque::new(), late: BinaryHeap::new(), n_late: 0, last: None, is_too_small: false }
    }

    /// Adds an event; returns the one that is released, if any.
    pub(super) fn push(&mut self, event: Event) -> Option<Event> {
        if self.in_order.back().is_some_and(|last| event.is_before(last)) {
            self.late.push(Late { event, number: self.n_late });
            self.n_late = self.n_late.saturating_add(1);
        } else {
            self.in_order.push_back(event);
        }
        let is_full = self.in_order.len().saturating_add(self.late.len()) > self.n_max;
        if is_full { self.pop() } else { None }
    }

    /// Removes the earliest event. Of equal events the one that came first, as in a stable sort: one in the queue came
    /// before any equal one that was late.
    pub(super) fn pop(&mut self) -> Option<Event> {
        let is_late = match (self.late.peek(), self.in_order.front()) {
            (Some(late), Some(first)) => late.event.is_before(first),
            (late, _) => late.is_some(),
        };
        let next = if is_late { self.late.pop().map(|late| late.event) } else { self.in_order.pop_front() }?;
        self.is_too_small |= self.last.is_some_and(|last| next.is_before(&last));
        self.last = Some(next);
        Some(next)
    }

    /// Whether an event came after later ones had been released, so that they were not in order.
    pub(super) fn is_too_small(&self) -> bool {
        self.is_too_small
    }
}

/// A late event. Ordered so that the greatest is the earliest.
#[derive(Debug, PartialEq, Eq)]
struct Late {
    event: Event,
    number: u64,
}

impl Ord for Late {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.event.order(), other.number).cmp(&(self.event.order(), self.number))
    }
}

impl PartialOrd for Late {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Events with few distinct times and processes, many equal except for fields that the order ignores.
    fn event() -> impl Strategy<Value = (u64, Event)> {
        (0_u64..400, 0_u64..6, 0_u32..3, 0_u64..1000).prop_map(|(late_ns, time_ns, pid, start_ticks)| {
            let comm = super::super::CommIx(0);
            (late_ns, Event::Comm { time_ns, pid, tid: pid, comm, is_exec: false, start_ticks })
        })
    }

    fn through(window: &mut Window, events: &[Event]) -> Vec<Event> {
        let mut out: Vec<Event> = events.iter().filter_map(|&event| window.push(event)).collect();
        out.extend(std::iter::from_fn(|| window.pop()));
        out
    }

    proptest! {
        /// Check that a window that holds all events gives what a stable sort gives, whatever their order; and that a
        /// smaller one does too, or reports that it is too small.
        #[test]
        fn windows_sort(drawn in proptest::collection::vec(event(), 0..300), n_max in 0_usize..40) {
            // Nearly in order: each comes a little late.
            let mut drawn: Vec<(u64, Event)> = drawn.into_iter().enumerate().map(|(at, (late_ns, event))| {
                let Event::Comm { time_ns, pid, tid, comm, is_exec, start_ticks } = event else { unreachable!() };
                let time_ns = at as u64 / 4 + time_ns;
                (at as u64 + late_ns / 10, Event::Comm { time_ns, pid, tid, comm, is_exec, start_ticks })
            }).collect();
            drawn.sort_by_key(|&(came_ns, _)| came_ns);
            let events: Vec<Event> = drawn.into_iter().map(|(_, event)| event).collect();
            let mut sorted = events.clone();
            sorted.sort_by_key(Event::order);
            let mut large = Window::new(usize::MAX);
            prop_assert_eq!(&through(&mut large, &events), &sorted);
            prop_assert!(!large.is_too_small());
            let mut small = Window::new(n_max);
            let out = through(&mut small, &events);
            prop_assert!(small.is_too_small() || out == sorted);
            prop_assert_eq!(small.is_too_small(), !out.is_sorted_by_key(Event::order));
        }
    }
}
