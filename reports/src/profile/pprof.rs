//! The pprof format, for `go tool pprof`, Pyroscope and many others.
//!
//! The values of a sample are its count and, for each event, its weight. Its labels are `process` and `pid`, `thread`
//! and `tid`, `stack` (`complete`, `truncated`, `broken` or `no_stack`) and `stack_end`, the root or the reason.
//! Mappings and addresses are as in the file's own headers, since processes map a file at different addresses.
//!
//! # Sources
//! `proto/profile.proto` of github.com/google/pprof.

use super::dictionary::Dictionary;
use super::{COUNT, gzip, row, value_type};
use fpprof_analysis::profile::{Profile, ProfileEvent, ProfileOrigin, ProfileSample};
use fpprof_unwind::{Root, StopReason};
use prost::Message as _;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the profile, compressed with gzip.
///
/// # Errors
/// If the writer fails.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let keys = ["process", "thread", "pid", "tid", "stack", "stack_end"];
    out.write_all(&gzip(&encode(profile, profile.recorded.start_unix_ns, &keys))?)
}

/// Encodes the profile as begun at another time, with labels that have few values.
pub(super) fn encode_at(profile: &Profile, start_unix_ns: u64) -> Vec<u8> {
    encode(profile, start_unix_ns, &["process", "stack"])
}

/// `keys` are the labels of samples.
fn encode(profile: &Profile, start_unix_ns: u64, keys: &[&str]) -> Vec<u8> {
    let mut encoder = Encoder { profile, tables: Dictionary::new(profile) };
    let values = Values::new(&mut encoder);
    let labels = encoder.labels(keys);
    let samples = profile.samples.iter().zip(labels).map(|(sample, labels)| message::Sample {
        location_ids: encoder.tables.stack(sample.stack).iter().map(|&location| number(location)).collect(),
        values: values.of(sample),
        labels,
    });
    let samples = samples.collect();
    let mappings = encoder.mappings();
    let first = profile.events.first();
    let message = message::Profile {
        samples,
        mappings,
        locations: locations(&encoder.tables),
        functions: functions(&encoder.tables),
        time_nanos: clamped(start_unix_ns),
        duration_nanos: i64::try_from(profile.duration.as_nanos()).unwrap_or(i64::MAX),
        period_type: first.map(|event| encoder.value_type(event)),
        period: first.and_then(|event| event.period).map_or(0, clamped),
        comment: encoder.comments(),
        default_sample_type: first.map_or(0, |event| encoder.value_type(event).r#type),
        sample_types: values.types,
        string_table: encoder.tables.strings.into_values(),
    };
    message.encode_to_vec()
}

struct Encoder<'p> {
    profile: &'p Profile,
    tables: Dictionary,
}

impl Encoder<'_> {
    fn text(&mut self, words: &str) -> i64 {
        self.tables.strings.number(words).into()
    }

    fn value_type(&mut self, event: &ProfileEvent) -> message::ValueType {
        let (name, unit) = value_type(event);
        message::ValueType { r#type: self.text(name), unit: self.text(unit) }
    }

    fn comments(&mut self) -> Vec<i64> {
        let Profile { recorded: ProfileOrigin { recorder, kernel, arch, cpu_model, .. }, strategy, .. } = self.profile;
        let comments = [format!("recorded by {recorder}"), format!("stacks unwound with {strategy}")];
        // A store does not have these.
        let machine = (!kernel.is_empty()).then(|| format!("Linux {kernel} {arch}, {cpu_model}"));
        comments.into_iter().chain(machine).map(|comment| self.text(&comment)).collect()
    }

    /// The labels of each sample with these keys.
    fn labels(&mut self, keys: &[&str]) -> Vec<Vec<message::Label>> {
        let profile = self.profile;
        let labels = profile.samples.iter().map(|sample| {
            let thread = row(&profile.threads, sample.thread);
            let stop = row(&profile.stacks, sample.stack).map(|stack| stack.stop);
            let labels = keys.iter().filter_map(|&key| {
                let (words, number) = match key {
                    "process" => (thread?.process.as_str(), 0),
                    "thread" => (thread?.comm.as_str(), 0),
                    "pid" => ("", thread?.pid),
                    "tid" => ("", thread?.id()?),
                    "stack" => (stop?.class(), 0),
                    "stack_end" => (stop?.name(), 0),
                    _ => return None,
                };
                let (key, str) = (self.text(key), self.text(words));
                Some(message::Label { key, str, num: number.into(), num_unit: 0 })
            });
            labels.collect()
        });
        labels.collect()
    }

    /// The modules; the first is the one that pprof takes for the program.
    fn mappings(&mut self) -> Vec<message::Mapping> {
        let has_lines = self.tables.locations.iter().flat_map(|location| &location.lines).any(|&(_, line)| line > 0);
        let mappings = (1..).zip(&self.profile.modules).map(|(id, module)| message::Mapping {
            id,
            memory_start: module.code.start,
            memory_limit: module.code.end,
            file_offset: module.file_offset,
            filename: self.text(&module.path),
            build_id: module.build_id.map_or(0, |build_id| self.text(&build_id.to_string())),
            has_functions: true,
            has_filenames: has_lines,
            has_line_numbers: has_lines,
            has_inline_frames: true,
        });
        let mut mappings: Vec<message::Mapping> = mappings.collect();
        let program = main_module(self.profile).map(number);
        mappings.sort_by_key(|mapping| Some(mapping.id) != program);
        mappings
    }
}

/// The values of samples: the count, then the weight, in a separate place for each event.
struct Values {
    types: Vec<message::ValueType>,
    /// The index of each event's value.
    places: Vec<usize>,
}

impl Values {
    fn new(encoder: &mut Encoder<'_>) -> Self {
        let mut types = vec![message::ValueType { r#type: encoder.text("samples"), unit: encoder.text(COUNT) }];
        let mut places = Vec::new();
        for event in &encoder.profile.events {
            let value_type = encoder.value_type(event);
            // Hybrid CPUs have an event of the same name for each core type.
            let known = types.iter().position(|known| *known == value_type);
            places.push(known.unwrap_or(types.len()));
            if known.is_none() {
                types.push(value_type);
            }
        }
        Self { types, places }
    }

    fn of(&self, sample: &ProfileSample) -> Vec<i64> {
        let place = row(&self.places, sample.event).copied().unwrap_or(usize::MAX);
        let value = |at| match at {
            0 => clamped(sample.samples),
            at if at == place => clamped(sample.weight),
            _ => 0,
        };
        (0..self.types.len()).map(value).collect()
    }
}

/// The program with most samples: pprof takes the first mapping for it. A process's program is the module in which most
/// stacks of its first thread start; those of its other threads start in the C library.
fn main_module(profile: &Profile) -> Option<u32> {
    let (mut processes, mut starts) = (BTreeMap::<_, u64>::new(), BTreeMap::<_, BTreeMap<u32, u64>>::new());
    for sample in &profile.samples {
        let process = row(&profile.threads, sample.thread).map(|thread| (thread.pid, thread.process.as_str()));
        let n = processes.entry(process).or_default();
        *n = n.saturating_add(sample.samples);
        let stack = row(&profile.stacks, sample.stack).filter(|stack| stack.stop == StopReason::Complete(Root::Start));
        let outermost = stack.and_then(|stack| row(&profile.frames, *stack.frames.last()?));
        if let Some(module) = outermost.and_then(|frame| frame.module) {
            let n = starts.entry(process).or_default().entry(module).or_default();
            *n = n.saturating_add(sample.samples);
        }
    }
    let most = |modules: BTreeMap<u32, u64>| modules.into_iter().max_by_key(|&(_, n)| n).map(|(module, _)| module);
    let mut samples: BTreeMap<u32, u64> = BTreeMap::new();
    for (process, starts) in starts {
        let Some(module) = most(starts) else { continue };
        let n = samples.entry(module).or_default();
        *n = n.saturating_add(processes.get(&process).copied().unwrap_or(0));
    }
    most(samples)
}

fn locations(tables: &Dictionary) -> Vec<message::Location> {
    let locations = (1..).zip(&tables.locations).map(|(id, location)| message::Location {
        id,
        mapping_id: location.module.map_or(0, number),
        address: location.address,
        lines: (location.lines.iter())
            .map(|&(function, line)| message::Line { function_id: number(function), line: line.into() })
            .collect(),
    });
    locations.collect()
}

fn functions(tables: &Dictionary) -> Vec<message::Function> {
    let functions = (1..).zip(&tables.functions).map(|(id, function)| message::Function {
        id,
        name: function.name.into(),
        system_name: function.name.into(),
        filename: function.file.into(),
    });
    functions.collect()
}

/// The id of a row: pprof counts from 1.
fn number(row: u32) -> u64 {
    u64::from(row) + 1
}

fn clamped(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The protobuf messages, with only the fields that are written.
mod message {
    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub(super) sample_types: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub(super) samples: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub(super) mappings: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub(super) locations: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub(super) functions: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub(super) string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub(super) time_nanos: i64,
        #[prost(int64, tag = "10")]
        pub(super) duration_nanos: i64,
        #[prost(message, optional, tag = "11")]
        pub(super) period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub(super) period: i64,
        #[prost(int64, repeated, tag = "13")]
        pub(super) comment: Vec<i64>,
        #[prost(int64, tag = "14")]
        pub(super) default_sample_type: i64,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Message)]
    pub(super) struct ValueType {
        #[prost(int64, tag = "1")]
        pub(super) r#type: i64,
        #[prost(int64, tag = "2")]
        pub(super) unit: i64,
    }

    #[derive(Clone, PartialEq, Eq, Message)]
    pub(super) struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub(super) location_ids: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub(super) values: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub(super) labels: Vec<Label>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Message)]
    pub(super) struct Label {
        #[prost(int64, tag = "1")]
        pub(super) key: i64,
        #[prost(int64, tag = "2")]
        pub(super) str: i64,
        #[prost(int64, tag = "3")]
        pub(super) num: i64,
        #[prost(int64, tag = "4")]
        pub(super) num_unit: i64,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Message)]
    pub(super) struct Mapping {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) memory_start: u64,
        #[prost(uint64, tag = "3")]
        pub(super) memory_limit: u64,
        #[prost(uint64, tag = "4")]
        pub(super) file_offset: u64,
        #[prost(int64, tag = "5")]
        pub(super) filename: i64,
        #[prost(int64, tag = "6")]
        pub(super) build_id: i64,
        #[prost(bool, tag = "7")]
        pub(super) has_functions: bool,
        #[prost(bool, tag = "8")]
        pub(super) has_filenames: bool,
        #[prost(bool, tag = "9")]
        pub(super) has_line_numbers: bool,
        #[prost(bool, tag = "10")]
        pub(super) has_inline_frames: bool,
    }

    #[derive(Clone, PartialEq, Eq, Message)]
    pub(super) struct Location {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub(super) address: u64,
        #[prost(message, repeated, tag = "4")]
        pub(super) lines: Vec<Line>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Message)]
    pub(super) struct Line {
        #[prost(uint64, tag = "1")]
        pub(super) function_id: u64,
        #[prost(int64, tag = "2")]
        pub(super) line: i64,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Message)]
    pub(super) struct Function {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(int64, tag = "2")]
        pub(super) name: i64,
        #[prost(int64, tag = "3")]
        pub(super) system_name: i64,
        #[prost(int64, tag = "4")]
        pub(super) filename: i64,
    }
}
