//! All that a recording says beside its samples.

use super::Replay;
use crate::Error;
use crate::address_space::{Builder, Sampled, Timeline};
use crate::events::Selection;
use crate::filter::Filter;
use crate::modules::{ModuleTable, Resolver};
use crate::strategy::Strategy;
use fpprof_recording::Recording;
use fpprof_recording::model::{Arch, Meta};
use std::io::{Read, Seek};

/// What a recording says beside its samples, and which of these are looked at: where every [`Replay`] begins.
#[derive(Debug)]
pub struct Recorded {
    /// How it was made.
    pub meta: Meta,
    /// Which processes had what mapped when.
    pub timeline: Timeline,
    /// Samples of which events.
    pub selection: Selection,
}

impl Recorded {
    /// Of these, the samples of the event of that name, or those that [`Selection::new`] takes without one.
    ///
    /// # Errors
    /// [`Error::NoSuchEvent`].
    pub fn new(meta: Meta, timeline: Timeline, event: Option<&str>) -> Result<Self, Error> {
        let selection = Selection::new(&meta, event)?;
        Ok(Self { meta, timeline, selection })
    }

    /// Reads a recording, but for its samples.
    ///
    /// # Errors
    /// [`Error::Recording`] if the file cannot be read, [`Error::NoSuchEvent`].
    pub fn read<R: Read + Seek>(recording: &mut Recording<R>, event: Option<&str>) -> Result<Self, Error> {
        let mut sampled = Sampled::default();
        recording.sampled(|pid, tid, time_ns| sampled.add(pid, tid, time_ns))?;
        let mut builder = Builder::of_recording(sampled);
        recording.sideband(|event| builder.add(event))?;
        let timeline = match builder.finish_in_order() {
            Some(timeline) => timeline,
            // No recorder writes them so, but anybody may.
            None => {
                let mut builder = Builder::default();
                recording.sideband(|event| builder.add(event))?;
                builder.finish()
            }
        };
        Self::new(recording.meta().clone(), timeline, event)
    }

    /// Of those, only the samples that `filter` lets through.
    #[must_use]
    pub fn only(self, filter: Filter) -> Self {
        Self { selection: self.selection.only(filter), ..self }
    }

    /// The modules that were mapped, found by `resolver`. Nothing is opened yet.
    #[must_use]
    pub fn modules<'a>(&'a self, resolver: &'a dyn Resolver) -> ModuleTable<'a> {
        ModuleTable::new(&self.timeline, &self.meta, resolver)
    }

    /// Unwinding by `strategies`, with these modules.
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
