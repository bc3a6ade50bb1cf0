//! The contents of a recording other than its samples.

use super::{Input, Replay};
use crate::Error;
use crate::address_space::{Builder, Sampled, Timeline};
use crate::events::Selection;
use crate::filter::Filter;
use crate::modules::{ModuleTable, Resolver};
use crate::strategy::Strategy;
use fpprof_recording::Recording;
use fpprof_recording::model::{Arch, Meta};

/// The contents of a recording other than its samples, and which samples are selected: the start of every [`Replay`].
#[derive(Debug)]
pub struct Recorded {
    /// Metadata of the recording.
    pub meta: Meta,
    /// The mappings of all processes over time.
    pub timeline: Timeline,
    /// The selected events.
    pub selection: Selection,
}

impl Recorded {
    /// Selects the event with this name, or those that [`Selection::new`] selects without one.
    ///
    /// # Errors
    /// [`Error::NoSuchEvent`].
    pub fn new(meta: Meta, timeline: Timeline, event: Option<&str>) -> Result<Self, Error> {
        let selection = Selection::new(&meta, event)?;
        Ok(Self { meta, timeline, selection })
    }

    /// Reads a recording except for its samples.
    ///
    /// # Errors
    /// [`Error::Recording`] if the file cannot be read, [`Error::NoSuchEvent`].
    pub fn read(recording: &mut Recording<dyn Input + '_>, event: Option<&str>) -> Result<Self, Error> {
        let mut sampled = Sampled::default();
        recording.sampled(|pid, tid, time_ns| sampled.add(pid, tid, time_ns))?;
        let mut builder = Builder::of_recording(sampled);
        recording.sideband(|event| builder.add(event))?;
        let timeline = match builder.finish_in_order() {
            Some(timeline) => timeline,
            // Events this far out of order are not written by our recorder, but a file may contain them.
            None => {
                let mut builder = Builder::default();
                recording.sideband(|event| builder.add(event))?;
                builder.finish()
            }
        };
        Self::new(recording.meta().clone(), timeline, event)
    }

    /// Restricts the selection to samples that match `filter`.
    #[must_use]
    pub fn only(self, filter: Filter) -> Self {
        Self { selection: self.selection.only(filter), ..self }
    }

    /// The mapped modules, found by `resolver`. Nothing is opened yet.
    #[must_use]
    pub fn modules<'a>(&'a self, resolver: &'a dyn Resolver) -> ModuleTable<'a> {
        ModuleTable::new(&self.timeline, &self.meta, resolver)
    }

    /// Prepares unwinding by `strategies`, with these modules.
    #[must_use]
    pub fn replay<'a>(
        &'a self,
        modules: &'a ModuleTable<'a>,
        strategies: &'a [Strategy],
        unwinding: fpprof_unwind::Options,
    ) -> Replay<'a> {
        let Self { meta, timeline, selection } = self;
        let arch = meta.host.processor();
        let return_address_mask = (arch == Arch::Aarch64).then_some(meta.host.return_address_mask);
        let unwinding = fpprof_unwind::Options { return_address_mask, ..unwinding };
        Replay { timeline, modules, mode: meta.mode, arch, selection, strategies, unwinding }
    }
}
