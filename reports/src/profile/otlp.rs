//! OpenTelemetry profiles: the `ProfilesData` message that the Collector's file receiver and OTLP carry.
//!
//! One resource for each process, control group and set of labels, with one profile for each event. Equal stacks of a thread are one
//! sample with all their times; if samples have no times, equal stacks of all threads with the same name are one sample
//! with their sum. The format is under development: this is version 1.10 of `opentelemetry-proto`.
//!
//! # Sources
//! `opentelemetry/proto/profiles/v1development/profiles.proto`; semantic conventions for processes, threads and
//! profiles.

use super::dictionary::{Dictionary, Strings};
use super::request::{Request, Splitter};
use super::{COUNT, row, value_type};
use fpprof_analysis::attribution::Attribution;
use fpprof_analysis::folded::Unit;
use fpprof_analysis::profile::{Grouping, Profile, ProfileModule, ProfileSample, ProfileThread};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceResponse;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile as OtlpProfile, ProfilesData, ProfilesDictionary,
    ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io::{self, Write};

/// Writes the profile as a `ProfilesData` message.
///
/// # Errors
/// If the writer fails.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&encode(profile, 0).encode_to_vec())
}

/// Splits a profile into requests, each of at most `max_bytes` before compression unless a single sample is larger.
///
/// A request's body is an `ExportProfilesServiceRequest`, compressed with gzip.
/// The id of each `Profile` message depends only on its content, so that a receiver can recognise a repeated request.
///
/// # Errors
/// If memory is exhausted.
pub fn requests(profile: &Profile, max_bytes: usize) -> io::Result<Vec<Request>> {
    let mut requests = Vec::new();
    Splitter {
        max_bytes,
        max_samples: usize::MAX,
        prefix: &[],
        // A request has the same field numbers as `ProfilesData`.
        encode: &mut |part, first| encode(part, first).encode_to_vec(),
        requests: &mut requests,
    }
    .add(profile, 0)?;
    Ok(requests)
}

/// The number of profiles that a collector rejected from an accepted request, and its reason, from the body of its
/// answer; `None` if it accepted all.
pub fn rejected(body: &[u8]) -> Option<(u64, String)> {
    let partial = ExportProfilesServiceResponse::decode(body).ok()?.partial_success?;
    let n = u64::try_from(partial.rejected_profiles).ok().filter(|&n| n > 0)?;
    Some((n, crate::escape::visible(&partial.error_message).into_owned()))
}

/// Samples of a process by event, then by (thread, stack).
type ByEvent<'p> = BTreeMap<u32, BTreeMap<(u32, u32), Vec<&'p ProfileSample>>>;

/// A process by its ID, name, control group and labels.
type Process<'p> = (u32, &'p str, &'p str, &'p [(String, String)]);

/// Groups samples by process, event, thread and stack. `first` goes into the ids of the profiles.
fn encode(profile: &Profile, first: usize) -> ProfilesData {
    let mut tables = Dictionary::new(profile);
    let representatives = representatives(profile);
    let mut attributes = Attributes::new();
    let mut by_process: BTreeMap<Process<'_>, ByEvent<'_>> = BTreeMap::new();
    for sample in &profile.samples {
        let Some(thread) = row(&profile.threads, sample.thread) else { continue };
        let ProfileThread { pid, process, cgroup, labels, .. } = thread;
        let of_process = by_process.entry((*pid, process, cgroup, labels)).or_default();
        let thread = row(&representatives, sample.thread).copied().unwrap_or(sample.thread);
        of_process.entry(sample.event).or_default().entry((thread, sample.stack)).or_default().push(sample);
    }
    let resource_profiles = by_process.into_iter().map(|(process, by_event)| {
        let profiles = by_event.into_iter().map(|(event, groups)| {
            let samples = groups.into_iter().map(|((thread, stack), samples)| {
                let attribute_indices = sample_attributes(profile, thread, stack, &mut tables.strings, &mut attributes);
                one_sample(profile, stack, &samples, attribute_indices)
            });
            let samples = samples.collect();
            // Profiles of different events of one recording both have this as their first.
            let name = row(&profile.events, event).map(|event| &event.name);
            let id = id((&profile.recorded.host, &profile.strategy, first), (process, event, name), profile);
            OtlpProfile { profile_id: id, ..of_event(profile, event, samples, &mut tables.strings) }
        });
        let (name, version) = profile.recorded.recorder.split_once(' ').unwrap_or((&profile.recorded.recorder, ""));
        let scope = InstrumentationScope {
            name: name.to_owned(),
            version: version.to_owned(),
            ..InstrumentationScope::default()
        };
        ResourceProfiles {
            resource: Some(resource(profile, process)),
            scope_profiles: vec![ScopeProfiles {
                scope: Some(scope),
                profiles: profiles.collect(),
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }
    });
    let resource_profiles = resource_profiles.collect();
    ProfilesData { resource_profiles, dictionary: Some(dictionary(profile, tables, attributes)) }
}

/// For each thread, the thread whose attributes its samples get: if samples are summed, the process's first thread with
/// the same name.
fn representatives(profile: &Profile) -> Vec<u32> {
    let mut firsts = HashMap::new();
    let numbered = (0..).zip(&profile.threads);
    let first_of = |(number, thread): (u32, &ProfileThread)| match profile.grouping {
        Grouping::Each => number,
        Grouping::Summed => {
            let ProfileThread { pid, process, comm, cgroup, labels, .. } = thread.clone();
            *firsts.entry((pid, process, comm, cgroup, labels)).or_insert(number)
        }
    };
    numbered.map(first_of).collect()
}

/// An id that is equal for the same samples of the same machine at the same time.
fn id(of_recording: impl Hash, of_process: impl Hash, profile: &Profile) -> Vec<u8> {
    let half = |half: u8| {
        let mut hasher = DefaultHasher::new();
        (half, &of_recording, &of_process, profile.recorded.start_unix_ns).hash(&mut hasher);
        hasher.finish().to_be_bytes()
    };
    [half(0), half(1)].concat()
}

/// All samples have the same shape. With times: one value per wait and none for counted events; without: their sum.
fn one_sample(profile: &Profile, stack: u32, samples: &[&ProfileSample], attribute_indices: Vec<i32>) -> Sample {
    let value = |sample: &&ProfileSample| match profile.unit {
        Unit::Samples => sample.samples,
        Unit::BlockedNs | Unit::CpuNs => sample.weight,
    };
    let int = |value| i64::try_from(value).unwrap_or(i64::MAX);
    let start = profile.recorded.start_unix_ns;
    let (values, timestamps_unix_nano) = match (profile.grouping, profile.unit) {
        (Grouping::Summed, _) => (vec![int(samples.iter().map(value).fold(0, u64::saturating_add))], Vec::new()),
        (Grouping::Each, unit) => {
            let values = samples.iter().map(value).map(int);
            let values = if unit == Unit::Samples { Vec::new() } else { values.collect() };
            // Equal samples of an aggregated recording have one time, and each counts.
            let n = |sample: &ProfileSample| if unit == Unit::Samples { sample.samples } else { 1 };
            let times = samples.iter().flat_map(|sample| {
                let n = usize::try_from(n(sample)).unwrap_or(usize::MAX);
                std::iter::repeat_n(start.saturating_add(sample.time_ns), n)
            });
            (values, times.collect())
        }
    };
    Sample { stack_index: index(stack), attribute_indices, link_index: 0, values, timestamps_unix_nano }
}

fn of_event(profile: &Profile, event: u32, samples: Vec<Sample>, strings: &mut Strings) -> OtlpProfile {
    let event = row(&profile.events, event);
    let mut value =
        |(name, unit): (&str, &str)| ValueType { type_strindex: of(strings, name), unit_strindex: of(strings, unit) };
    let sample_type = match (profile.unit, event) {
        (Unit::BlockedNs | Unit::CpuNs, Some(event)) => value(value_type(event)),
        _ => value(("samples", COUNT)),
    };
    OtlpProfile {
        sample_type: Some(sample_type),
        samples,
        time_unix_nano: profile.recorded.start_unix_ns,
        duration_nano: u64::try_from(profile.duration.as_nanos()).unwrap_or(u64::MAX),
        period_type: event.map(|event| value(value_type(event))),
        period: event.and_then(|event| event.period).and_then(|period| i64::try_from(period).ok()).unwrap_or(0),
        ..OtlpProfile::default()
    }
}

/// The service name is the control group's, or else the process's name. A label is an attribute of its name, and replaces
/// another of that name.
fn resource(profile: &Profile, (pid, process, cgroup, labels): Process<'_>) -> Resource {
    let host = &profile.recorded;
    let Attribution { service, container, pod } = Attribution::of(cgroup.as_bytes());
    let text = |key: &str, text: &str| key_value(key, Value::StringValue(crate::escape::visible(text).into_owned()));
    let mut attributes = vec![
        text("service.name", service.as_deref().unwrap_or(process)),
        key_value("process.pid", Value::IntValue(pid.into())),
        text("process.executable.name", process),
        text("os.type", "linux"),
        text("os.description", &host.distribution),
        text("host.arch", &host.arch),
        text("host.name", &host.host),
    ];
    attributes.extend(container.map(|container| text("container.id", &container)));
    attributes.extend(pod.map(|pod| text("k8s.pod.uid", &pod)));
    attributes.extend((!cgroup.is_empty()).then(|| text("process.linux.cgroup", cgroup)));
    attributes.retain(|attribute| labels.iter().all(|(name, _)| *name != attribute.key));
    attributes.extend(labels.iter().map(|(name, value)| text(name, value)));
    Resource { attributes, ..Resource::default() }
}

fn key_value(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn sample_attributes(
    profile: &Profile,
    thread: u32,
    stack: u32,
    strings: &mut Strings,
    attributes: &mut Attributes,
) -> Vec<i32> {
    let mut indices = Vec::with_capacity(5);
    if let Some(thread) = row(&profile.threads, thread) {
        let id = thread.id().filter(|_| profile.grouping == Grouping::Each);
        let id = id.map(|id| attributes.number(strings, "thread.id", AttributeValue::Number(id.into())));
        indices.extend(id);
        indices.push(attributes.number(strings, "thread.name", AttributeValue::Text(thread.comm.clone())));
    }
    let words = [
        ("fpprof.strategy", Some(profile.strategy.as_str())),
        ("fpprof.stack", row(&profile.stacks, stack).map(|stack| stack.stop.class())),
        ("fpprof.stack_end", row(&profile.stacks, stack).map(|stack| stack.stop.name())),
    ];
    for (key, words) in words {
        indices.extend(words.map(|words| attributes.number(strings, key, AttributeValue::Text(words.to_owned()))));
    }
    indices
}

/// Every table begins with a row of zeros, which means "none"; stacks keep the profile's numbers, counted from 1.
fn dictionary(profile: &Profile, mut tables: Dictionary, mut attributes: Attributes) -> ProfilesDictionary {
    let mut mapping_table = vec![Mapping::default()];
    for ProfileModule { path, build_id, code, file_offset, .. } in &profile.modules {
        let id = build_id.map(|id| {
            attributes.number(
                &mut tables.strings,
                "process.executable.build_id.gnu",
                AttributeValue::Text(id.to_string()),
            )
        });
        mapping_table.push(Mapping {
            memory_start: code.start,
            memory_limit: code.end,
            file_offset: *file_offset,
            filename_strindex: of(&mut tables.strings, path),
            attribute_indices: id.into_iter().collect(),
        });
    }
    let mut location_table = vec![Location::default()];
    for location in &tables.locations {
        let kind = location.kind.map(|kind| {
            attributes.number(&mut tables.strings, "profile.frame.type", AttributeValue::Text(kind.to_owned()))
        });
        let lines = location.lines.iter().map(|&(function, line)| Line {
            function_index: index(function),
            line: line.into(),
            column: 0,
        });
        location_table.push(Location {
            mapping_index: location.module.map_or(0, index),
            address: location.address,
            lines: lines.collect(),
            attribute_indices: kind.into_iter().collect(),
        });
    }
    let functions = tables.functions.iter().map(|function| Function {
        name_strindex: plain(function.name),
        system_name_strindex: plain(function.name),
        filename_strindex: plain(function.file),
        start_line: 0,
    });
    let stacks = tables
        .stacks
        .iter()
        .map(|locations| Stack { location_indices: locations.iter().map(|&location| index(location)).collect() });
    ProfilesDictionary {
        mapping_table,
        location_table,
        function_table: std::iter::once(Function::default()).chain(functions).collect(),
        link_table: vec![Link::default()],
        stack_table: std::iter::once(Stack::default()).chain(stacks).collect(),
        attribute_table: attributes.values,
        string_table: tables.strings.into_values(),
    }
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum AttributeValue {
    Text(String),
    Number(i64),
}

/// The table of attributes, without duplicates.
#[derive(Debug)]
struct Attributes {
    values: Vec<KeyValueAndUnit>,
    numbers: HashMap<(&'static str, AttributeValue), i32>,
}

impl Attributes {
    fn new() -> Self {
        Self { values: vec![KeyValueAndUnit::default()], numbers: HashMap::new() }
    }

    fn number(&mut self, strings: &mut Strings, key: &'static str, value: AttributeValue) -> i32 {
        *self.numbers.entry((key, value)).or_insert_with_key(|(key, value)| {
            let value = match value {
                AttributeValue::Text(text) => Value::StringValue(crate::escape::visible(text).into_owned()),
                AttributeValue::Number(number) => Value::IntValue(*number),
            };
            let value = Some(AnyValue { value: Some(value) });
            self.values.push(KeyValueAndUnit { key_strindex: of(strings, key), value, unit_strindex: 0 });
            i32::try_from(self.values.len()).unwrap_or(i32::MAX).saturating_sub(1)
        })
    }
}

/// The index of a string, from 0, the empty one.
fn of(strings: &mut Strings, text: &str) -> i32 {
    plain(strings.number(text))
}

/// The index of a row, after the row of zeros.
fn index(number: u32) -> i32 {
    plain(number.saturating_add(1))
}

fn plain(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
