//! Samples: one row per distinct stack of a process and a thread name.
//!
//! | column | type | is |
//! |---|---|---|
//! | `time` | timestamp, µs, UTC | when the recording, or the interval of an agent, began |
//! | `duration_us` | int64 | how long it is |
//! | `host` | string | name of the machine, `uname -n` |
//! | `event` | string | what was sampled, such as `cpu-clock` |
//! | `strategy` | string | how the stack was unwound; **each sample has a row for each strategy** |
//! | `pid` | int64 | process |
//! | `process`, `thread` | string | names of the process and of the thread |
//! | `service`, `container`, `pod` | string | what its control group was made for, see [`Attribution`]; empty if none |
//! | `cgroup` | string | path of its control group; empty if not known |
//! | `labels` | map of strings | its labels by name, see [`ProfileThread::labels`] |
//! | `samples` | int64 | samples with this stack |
//! | `weight` | int64 | what they stand for, in `weight_unit` |
//! | `weight_unit` | string | `cpu_ns`, `blocked_ns` or `occurrences` |
//! | `stack` | string | `complete`, `truncated`, `broken`, or `no_stack` of a thread without one |
//! | `stack_end` | string | why the stack ended, such as `_start` or `chunk_end` |
//! | `functions` | list of strings | names of functions, leaf first; inlined functions among them |
//! | `modules` | list of strings | the file of each function, or `[kernel]` |

use super::{UTC, file, int, number, text, time};
use crate::escape::visible;
use crate::profile::row;
use arrow_array::ArrayRef;
use arrow_array::builder::{
    Int64Builder, ListBuilder, MapBuilder, MapFieldNames, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow_schema::{DataType, Field};
use fpprof_analysis::attribution::Attribution;
use fpprof_analysis::profile::{Profile, ProfileThread, Weight};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

/// Rows converted at a time: with the longest stacks, some ten megabytes.
const BATCH_ROWS: usize = 1024;

/// Writes profiles, each of a different strategy, as one file.
///
/// # Errors
/// If the writer fails.
pub fn write(profiles: &[Profile], out: &mut impl Write) -> io::Result<()> {
    let tables: Vec<(&Profile, Vec<(Key<'_>, Sum)>)> =
        profiles.iter().map(|profile| (profile, rows(profile))).collect();
    let batches = tables.iter().flat_map(|(profile, rows)| {
        rows.chunks(BATCH_ROWS).map(|rows| {
            let mut columns = Columns::default();
            rows.iter().for_each(|(key, sum)| columns.add(profile, key, *sum));
            columns.finish()
        })
    });
    out.write_all(&file(columns(), batches)?)
}

fn columns() -> Vec<Field> {
    let list = |name: &str| Field::new_list(name, element(), false);
    vec![
        time("time"),
        number("duration_us"),
        text("host"),
        text("event"),
        text("strategy"),
        number("pid"),
        text("process"),
        text("thread"),
        text("service"),
        text("container"),
        text("pod"),
        text("cgroup"),
        labels(),
        number("samples"),
        number("weight"),
        text("weight_unit"),
        text("stack"),
        text("stack_end"),
        list("functions"),
        list("modules"),
    ]
}

/// The column of labels. Parquet prescribes the names of its fields.
///
/// # Sources
/// `LogicalTypes.md` of Parquet, "Maps".
fn labels() -> Field {
    let names = label_names();
    Field::new_map("labels", names.entry, label_part(&names.key), label_part(&names.value), false, false)
}

fn label_names() -> MapFieldNames {
    MapFieldNames { entry: "key_value".to_owned(), key: "key".to_owned(), value: "value".to_owned() }
}

fn labels_builder() -> MapBuilder<StringBuilder, StringBuilder> {
    let names = label_names();
    let (keys, values) = (label_part(&names.key), label_part(&names.value));
    MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new())
        .with_keys_field(keys)
        .with_values_field(values)
}

/// The column of labels for so many rows without any.
pub(crate) fn no_labels(n: usize) -> Option<ArrayRef> {
    let mut labels = labels_builder();
    (0..n).try_for_each(|_| labels.append(true)).ok()?;
    Some(Arc::new(labels.finish()))
}

fn label_part(name: &str) -> Field {
    Field::new(name, DataType::Utf8, false)
}

/// The element field of lists, by the name Spark uses.
fn element() -> Field {
    Field::new("element", DataType::Utf8, false)
}

/// The key by which samples share a row: everything but thread ids and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key<'p> {
    process: &'p str,
    pid: u32,
    thread: &'p str,
    cgroup: &'p str,
    labels: &'p [(String, String)],
    event: u32,
    stack: u32,
}

/// The number of samples of a row and their total weight.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    samples: u64,
    weight: u64,
}

fn rows(profile: &Profile) -> Vec<(Key<'_>, Sum)> {
    let mut rows: BTreeMap<Key<'_>, Sum> = BTreeMap::new();
    for sample in &profile.samples {
        let Some(ProfileThread { pid, process, comm: thread, cgroup, labels, .. }) =
            row(&profile.threads, sample.thread)
        else {
            continue;
        };
        let key = Key { process, pid: *pid, thread, cgroup, labels, event: sample.event, stack: sample.stack };
        let sum = rows.entry(key).or_default();
        sum.samples = sum.samples.saturating_add(sample.samples);
        sum.weight = sum.weight.saturating_add(sample.weight);
    }
    rows.into_iter().collect()
}

/// The column builders of some rows.
struct Columns {
    time: TimestampMicrosecondBuilder,
    duration: Int64Builder,
    host: StringBuilder,
    event: StringBuilder,
    strategy: StringBuilder,
    pid: Int64Builder,
    process: StringBuilder,
    thread: StringBuilder,
    service: StringBuilder,
    container: StringBuilder,
    pod: StringBuilder,
    cgroup: StringBuilder,
    labels: MapBuilder<StringBuilder, StringBuilder>,
    samples: Int64Builder,
    weight: Int64Builder,
    weight_unit: StringBuilder,
    stack: StringBuilder,
    stack_end: StringBuilder,
    functions: ListBuilder<StringBuilder>,
    modules: ListBuilder<StringBuilder>,
}

impl Default for Columns {
    fn default() -> Self {
        let list = || ListBuilder::new(StringBuilder::new()).with_field(element());
        Self {
            time: TimestampMicrosecondBuilder::new().with_timezone(UTC),
            duration: Int64Builder::new(),
            host: StringBuilder::new(),
            event: StringBuilder::new(),
            strategy: StringBuilder::new(),
            pid: Int64Builder::new(),
            process: StringBuilder::new(),
            thread: StringBuilder::new(),
            service: StringBuilder::new(),
            container: StringBuilder::new(),
            pod: StringBuilder::new(),
            cgroup: StringBuilder::new(),
            labels: labels_builder(),
            samples: Int64Builder::new(),
            weight: Int64Builder::new(),
            weight_unit: StringBuilder::new(),
            stack: StringBuilder::new(),
            stack_end: StringBuilder::new(),
            functions: list(),
            modules: list(),
        }
    }
}

impl Columns {
    fn add(&mut self, profile: &Profile, of: &Key<'_>, sum: Sum) {
        let event = row(&profile.events, of.event);
        let stack = row(&profile.stacks, of.stack);
        self.time.append_value(int(profile.recorded.start_unix_ns / 1000));
        self.duration.append_value(int(profile.duration.as_micros()));
        self.host.append_value(visible(&profile.recorded.host));
        self.event.append_value(visible(event.map_or("", |event| &event.name)));
        self.strategy.append_value(&profile.strategy);
        self.pid.append_value(of.pid.into());
        self.process.append_value(visible(of.process));
        self.thread.append_value(visible(of.thread));
        let Attribution { service, container, pod } = Attribution::of(of.cgroup.as_bytes());
        let belongs = [(&mut self.service, service), (&mut self.container, container), (&mut self.pod, pod)];
        belongs.into_iter().for_each(|(column, name)| column.append_value(visible(&name.unwrap_or_default())));
        self.cgroup.append_value(visible(of.cgroup));
        self.add_labels(of.labels);
        self.samples.append_value(int(sum.samples));
        self.weight.append_value(int(sum.weight));
        self.weight_unit.append_value(match event.map(|event| event.weight) {
            Some(Weight::CpuNs) => "cpu_ns",
            Some(Weight::BlockedNs) => "blocked_ns",
            Some(Weight::Occurrences) | None => "occurrences",
        });
        self.stack.append_value(stack.map_or("", |stack| stack.stop.class()));
        self.stack_end.append_value(stack.map_or("", |stack| stack.stop.name()));
        let frames = stack.map_or(&[][..], |stack| &stack.frames);
        for function in frames.iter().filter_map(|&frame| row(&profile.frames, frame)).flat_map(|frame| {
            // Inlined functions are nearer to the leaf.
            frame.functions.iter().rev()
        }) {
            self.functions.values().append_value(visible(&function.name));
            self.modules.values().append_value(visible(&function.module));
        }
        self.functions.append(true);
        self.modules.append(true);
    }

    fn add_labels(&mut self, labels: &[(String, String)]) {
        for (name, value) in labels {
            self.labels.keys().append_value(visible(name));
            self.labels.values().append_value(visible(value));
        }
        // An error if there were not as many values as keys.
        let _ = self.labels.append(true);
    }

    /// The finished columns, in the order of [`columns`].
    fn finish(mut self) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.time.finish()),
            Arc::new(self.duration.finish()),
            Arc::new(self.host.finish()),
            Arc::new(self.event.finish()),
            Arc::new(self.strategy.finish()),
            Arc::new(self.pid.finish()),
            Arc::new(self.process.finish()),
            Arc::new(self.thread.finish()),
            Arc::new(self.service.finish()),
            Arc::new(self.container.finish()),
            Arc::new(self.pod.finish()),
            Arc::new(self.cgroup.finish()),
            Arc::new(self.labels.finish()),
            Arc::new(self.samples.finish()),
            Arc::new(self.weight.finish()),
            Arc::new(self.weight_unit.finish()),
            Arc::new(self.stack.finish()),
            Arc::new(self.stack_end.finish()),
            Arc::new(self.functions.finish()),
            Arc::new(self.modules.finish()),
        ]
    }
}
