//! The events of a perf.data file, and which of them a record is of.

use super::description::{Attribute, Features, MAX_EVENTS};
use super::error::ImportError;
use super::records::Head;
use super::stacks::Prefix;
use fpprof_recording::model::{CaptureMode, Collector, Event, Host, Measure, Meta, Sampling, Target};
use linux_perf_event_reader::{Endianness, RawData, RawEventRecord, RecordParseInfo, RecordType, SamplingPolicy};
use rustc_hash::FxHashMap;

/// The events, in the order of their descriptions.
#[derive(Default)]
pub(super) struct Events {
    attributes: Vec<Attribute>,
    layouts: Vec<RecordParseInfo>,
    by_id: FxHashMap<u64, usize>,
}

impl Events {
    /// Adds an event.
    ///
    /// # Errors
    /// If it is one too many, or its records can't be told from those of another.
    pub(super) fn add(&mut self, attribute: Attribute) -> Result<(), ImportError> {
        if self.attributes.len() >= MAX_EVENTS {
            return Err(ImportError::Damaged("it has more events than anyone asks for"));
        }
        let layout = RecordParseInfo::new(&attribute.attr, Endianness::LittleEndian);
        // A record's event is known by its number, which must stand in the same place whatever the event.
        let id = layout.id_parse_info;
        let is_told = |first: &RecordParseInfo| {
            first.id_parse_info == id && id.sample_record_id_offset_from_start.is_some() || *first == layout
        };
        if !self.layouts.first().is_none_or(is_told) {
            return Err(ImportError::Mixed);
        }
        let index = self.attributes.len();
        self.by_id.extend(attribute.ids.iter().map(|&id| (id, index)));
        self.layouts.push(layout);
        self.attributes.push(attribute);
        Ok(())
    }

    /// A record of the kernel's, and the place of its event; `None` before there are events.
    pub(super) fn record<'a>(&self, head: Head, body: &'a [u8]) -> Option<(usize, RawEventRecord<'a>)> {
        let kind = RecordType(head.kind);
        let new = |layout: &RecordParseInfo| RawEventRecord::new(kind, head.misc, RawData::Single(body), *layout);
        let first = new(self.layouts.first()?);
        let index = match self.layouts.len() {
            1 => 0,
            _ => first.id().and_then(|id| self.by_id.get(&id).copied()).unwrap_or(0),
        };
        Some((index, self.layouts.get(index).map_or(first, new)))
    }

    /// What comes before the stack in all samples alike.
    pub(super) fn prefix(&self) -> Option<Prefix> {
        let first = Prefix::new(self.layouts.first()?)?;
        self.layouts.iter().all(|layout| Prefix::new(layout) == Some(first)).then_some(first)
    }

    /// The description of the recording.
    pub(super) fn meta(&self, features: &Features, start_ns: u64) -> Meta {
        let stack_bytes = self.attributes.iter().map(|event| event.attr.sample_stack_user).max().unwrap_or(0);
        Meta {
            tool_version: format!("perf {}", features.perf_version),
            start_ns,
            start_unix_ns: 0,
            host: Host {
                arch: features.arch.clone(),
                kernel: features.kernel.clone(),
                cpu_model: features.cpu_model.clone(),
                cpus_online: features.cpus_online,
                memory_bytes: features.memory_kib.saturating_mul(1024),
                distribution: String::new(),
            },
            collector: Collector::Imported,
            events: self.attributes.iter().enumerate().map(|(index, event)| named(index, event, features)).collect(),
            mode: if stack_bytes > 0 { CaptureMode::Dwarf { stack_bytes } } else { CaptureMode::Fp },
            kernel_stacks: true,
            scrubbed: false,
            target: Target::Command { argv: features.argv.clone(), pid: 0 },
            not_counted: Vec::new(),
        }
    }
}

fn named(index: usize, event: &Attribute, features: &Features) -> Event {
    let sampling = match event.attr.sampling_policy {
        SamplingPolicy::Frequency(hz) => Sampling::FrequencyHz(hz),
        SamplingPolicy::Period(period) => Sampling::Period(period.get()),
        SamplingPolicy::NoSampling => Sampling::Period(0),
    };
    let name = event.name.as_ref().or_else(|| features.event_names.get(index));
    Event { name: name.map_or_else(|| "unnamed".to_owned(), Clone::clone), sampling, measure: Measure::Samples }
}
