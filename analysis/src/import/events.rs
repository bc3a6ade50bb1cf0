//! The events of a perf.data file, and the event of each record.

use super::description::{Attribute, Features, MAX_EVENTS, MAX_IDS};
use super::error::ImportError;
use super::read_values::ReadValues;
use super::records::Head;
use super::stacks::Prefix;
use fpprof_recording::model::{Arch, CaptureMode, Collector, Event, Host, Measure, Meta, Sampling, Target};
use linux_perf_event_reader::{
    Endianness, HardwareEventId, PerfEventType, RawData, RawEventRecord, RecordParseInfo, RecordType, SampleFormat,
    SamplingPolicy, SoftwareCounterType,
};
use rustc_hash::FxHashMap;

/// The events, in the order of their descriptions.
#[derive(Default)]
pub(super) struct Events {
    attributes: Vec<Attribute>,
    /// Layouts of the records, without counter values.
    layouts: Vec<RecordParseInfo>,
    /// The counter values of each event's samples.
    reads: Vec<Option<ReadValues>>,
    by_id: FxHashMap<u64, usize>,
    n_ids: u64,
}

impl Events {
    /// Adds an event.
    ///
    /// # Errors
    /// If there are too many, or its records cannot be distinguished from those of another event.
    pub(super) fn add(&mut self, attribute: Attribute) -> Result<(), ImportError> {
        if self.attributes.len() >= MAX_EVENTS {
            return Err(ImportError::Damaged("too many events"));
        }
        self.n_ids = self.n_ids.saturating_add(attribute.ids.len() as u64);
        if self.n_ids > MAX_IDS {
            return Err(ImportError::Damaged("too many event ids"));
        }
        let mut layout = RecordParseInfo::new(&attribute.attr, Endianness::LittleEndian);
        let read = ReadValues::new(layout.sample_format, attribute.read_format);
        layout.sample_format.remove(SampleFormat::READ);
        if !layout.sample_format.contains(SampleFormat::TIME | SampleFormat::TID) {
            return Err(ImportError::Untimed);
        }
        // A record's event is identified by its ID, which must be at the same offset for all events.
        let id = layout.id_parse_info;
        let has_same_id_offset = |first: &RecordParseInfo| {
            first.id_parse_info == id && id.sample_record_id_offset_from_start.is_some()
                || *first == layout && self.reads.first() == Some(&read)
        };
        if !self.layouts.first().is_none_or(has_same_id_offset) {
            return Err(ImportError::Mixed);
        }
        let index = self.attributes.len();
        self.by_id.extend(attribute.ids.iter().map(|&id| (id, index)));
        self.layouts.push(layout);
        self.reads.push(read);
        self.attributes.push(Attribute { ids: Vec::new(), ..attribute });
        Ok(())
    }

    /// Removes the counter values from a sample; returns how many belonged to other events of its group. `None` if they
    /// are invalid.
    pub(super) fn remove_values(&self, head: Head, body: &mut Vec<u8>) -> Option<u64> {
        if self.reads.iter().all(Option::is_none) {
            return Some(0);
        }
        let read = self.index(head, body).and_then(|index| self.reads.get(index).copied().flatten());
        read.map_or(Some(0), |read| read.remove(body))
    }

    /// A kernel record, after its counter values were removed, and the index of its event; `None` before there are
    /// events.
    pub(super) fn record<'a>(&self, head: Head, body: &'a [u8]) -> Option<(usize, RawEventRecord<'a>)> {
        let index = self.index(head, body)?;
        Some((index, raw(head, body, self.layouts.get(index)?)))
    }

    /// The index of a record's event. Its ID precedes the counter values.
    fn index(&self, head: Head, body: &[u8]) -> Option<usize> {
        let first = self.layouts.first()?;
        let id = if self.layouts.len() == 1 { None } else { raw(head, body, first).id() };
        Some(id.and_then(|id| self.by_id.get(&id).copied()).unwrap_or(0))
    }

    /// The weight of an event's samples if they do not record it: its fixed period.
    ///
    /// # Sources
    /// `evsel__parse_sample` in `tools/perf/util/evsel.c`.
    pub(super) fn fixed_period(&self, event: usize) -> u64 {
        match self.attributes.get(event).map(|attribute| attribute.attr.sampling_policy) {
            Some(SamplingPolicy::Period(period)) => period.get(),
            _ => 1,
        }
    }

    /// Number of events.
    pub(super) fn n(&self) -> usize {
        self.layouts.len()
    }

    /// Number of events whose samples have neither callchains nor copied stacks.
    pub(super) fn n_without_stacks(&self) -> usize {
        const STACKS: SampleFormat = SampleFormat::CALLCHAIN.union(SampleFormat::STACK_USER);
        self.layouts.iter().filter(|layout| !layout.sample_format.intersects(STACKS)).count()
    }

    /// What samples lack or what is ignored, as text.
    pub(super) fn warnings(&self) -> Vec<String> {
        let has_branches = |layout: &RecordParseInfo| layout.sample_format.contains(SampleFormat::BRANCH_STACK);
        let branches = "branch stacks (LBR) were ignored; only frame-pointer chains and copied stacks are unwound";
        let branches = self.layouts.iter().any(has_branches).then(|| branches.to_owned());
        let without = (self.n_without_stacks() > 0).then(|| {
            format!(
                "{} of {} events were recorded without stacks (`perf record -g`)",
                self.n_without_stacks(),
                self.n()
            )
        });
        branches.into_iter().chain(without).collect()
    }

    /// What precedes the stack in every sample, if it is the same for all events.
    pub(super) fn prefix(&self) -> Option<Prefix> {
        if self.reads.iter().any(Option::is_some) {
            return None;
        }
        let first = Prefix::new(self.layouts.first()?)?;
        self.layouts.iter().all(|layout| Prefix::new(layout) == Some(first)).then_some(first)
    }

    /// Metadata of the recording.
    pub(super) fn meta(&self, features: &Features, start_ns: u64) -> Meta {
        let stack_bytes = self.attributes.iter().map(|event| event.attr.sample_stack_user).max().unwrap_or(0);
        Meta {
            tool_version: format!("perf {}", features.perf_version),
            start_ns,
            start_unix_ns: 0,
            host: Host {
                name: features.host.clone(),
                arch: features.arch.clone(),
                kernel: features.kernel.clone(),
                cpu_model: features.cpu_model.clone(),
                cpus_online: features.cpus_online,
                memory_bytes: features.memory_kib.saturating_mul(1024),
                distribution: String::new(),
                return_address_mask: return_address_mask(&features.arch),
                kernel_symbol: features.kernel_symbol.clone(),
            },
            collector: Collector::Imported,
            events: self.attributes.iter().enumerate().map(|(index, event)| named(index, event, features)).collect(),
            mode: if stack_bytes > 0 { CaptureMode::Dwarf { stack_bytes } } else { CaptureMode::Fp },
            kernel_stacks: true,
            scrubbed: false,
            target: Target::Command { argv: features.argv.clone(), pid: 0 },
            not_counted: Vec::new(),
            aggregated_ns: None,
        }
    }
}

fn raw<'a>(head: Head, body: &'a [u8], layout: &RecordParseInfo) -> RawEventRecord<'a> {
    RawEventRecord::new(RecordType(head.kind), head.misc, RawData::Single(body), *layout)
}

/// perf does not record which bits of a return address are its signature: on aarch64, assume all above 48.
fn return_address_mask(arch: &str) -> u64 {
    if Arch::by_name(arch) == Some(Arch::Aarch64) { (1 << 48) - 1 } else { u64::MAX }
}

fn named(index: usize, event: &Attribute, features: &Features) -> Event {
    let sampling = match event.attr.sampling_policy {
        SamplingPolicy::Frequency(hz) => Sampling::FrequencyHz(hz),
        SamplingPolicy::Period(period) => Sampling::Period(period.get()),
        SamplingPolicy::NoSampling => Sampling::Period(0),
    };
    let name = event.name.as_ref().or_else(|| features.event_names.get(index)).map(String::as_str);
    let name = name.or_else(|| usual_name(&event.attr.type_)).unwrap_or("unnamed").to_owned();
    Event { name, sampling, measure: Measure::Samples }
}

/// perf's name for an event, if the file has none, as files of simpleperf do.
fn usual_name(event: &PerfEventType) -> Option<&'static str> {
    use HardwareEventId as Hardware;
    use SoftwareCounterType as Software;
    Some(match event {
        PerfEventType::Hardware(Hardware::CpuCycles, _) => "cycles",
        PerfEventType::Hardware(Hardware::Instructions, _) => "instructions",
        PerfEventType::Hardware(Hardware::CacheReferences, _) => "cache-references",
        PerfEventType::Hardware(Hardware::CacheMisses, _) => "cache-misses",
        PerfEventType::Hardware(Hardware::BranchInstructions, _) => "branches",
        PerfEventType::Hardware(Hardware::BranchMisses, _) => "branch-misses",
        PerfEventType::Software(Software::CpuClock) => "cpu-clock",
        PerfEventType::Software(Software::TaskClock) => "task-clock",
        PerfEventType::Software(Software::PageFaults) => "page-faults",
        PerfEventType::Software(Software::PageFaultsMin) => "minor-faults",
        PerfEventType::Software(Software::PageFaultsMaj) => "major-faults",
        PerfEventType::Software(Software::ContextSwitches) => "context-switches",
        PerfEventType::Software(Software::CpuMigrations) => "cpu-migrations",
        _ => return None,
    })
}
