//! Requests to Grafana Pyroscope's `/ingest`: profiles in pprof's format, one for each set of labels.
//!
//! The labels of a profile are those of its processes: `service_name` (the control group's service, or else the process's
//! name), `hostname`, `unit`, `container`, `pod`, `strategy`, and those that the caller has added, of which one replaces
//! another of its name. Pyroscope makes labels of the samples' `process` and `stack` (`complete`, `truncated`, `broken` or
//! `no_stack`), too. It counts its labels' values, so threads, process IDs and the reasons of ends are left out; a stack
//! that is not complete has its reason as outermost frame.
//!
//! Names have letters, digits and `_` only, and `service_name` also `.` and `-`; other characters become `_`, and so do
//! `,` and `}` in values, which cannot be escaped.
//!
//! # Sources
//! "Pyroscope server HTTP API": <https://grafana.com/docs/pyroscope/latest/reference-server-api/>. In
//! github.com/grafana/pyroscope: `api/model/labelset` and `pkg/validation` for characters and limits,
//! `pkg/ingester/pyroscope/ingest_handler.go` for answers, `skipDuplicates` in `pkg/querier` for copies.

use super::part::part;
use super::pprof;
use super::request::{Request, Splitter};
use super::{NS_PER_S, row};
use crate::escape::visible;
use fpprof_analysis::attribution::Attribution;
use fpprof_analysis::profile::{Profile, ProfileSample, ProfileThread};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

/// The most sets of labels in an interval; the processes of those with the fewest samples share the service [`OTHER`].
pub const MAX_SERVICES: usize = 200;
/// The service of the processes that are too many.
pub const OTHER: &str = "other";
/// Pyroscope's default for the most samples of a profile (`max-profile-stacktrace-samples`).
const MAX_SAMPLES: usize = 16_000;
/// Pyroscope takes two profiles of the same labels and time, in milliseconds, for copies of one.
const BETWEEN_PARTS_NS: usize = 1_000_000;

/// Names and values.
type Labels = BTreeMap<String, String>;
/// Samples by event, process (its first thread) and stack.
type Samples = BTreeMap<(u32, u32, u32), ProfileSample>;

/// Makes the requests of a profile, each of at most `max_bytes` before compression unless a single sample is larger.
///
/// A request's body is the query of its URL, a line feed and the profile: [`Request::line_and_rest`].
///
/// # Errors
/// If memory is exhausted.
pub fn requests(profile: &Profile, max_bytes: usize) -> io::Result<Vec<Request>> {
    let mut requests = Vec::new();
    for (labels, samples) in by_labels(profile) {
        let samples: Vec<ProfileSample> = samples.into_values().collect();
        let mut starts = (profile.recorded.start_unix_ns..).step_by(BETWEEN_PARTS_NS);
        Splitter {
            max_bytes,
            max_samples: MAX_SAMPLES,
            prefix: format!("{}\n", query(profile, labels)).as_bytes(),
            encode: &mut |part, _| pprof::encode_at(part, starts.next().unwrap_or_default()),
            requests: &mut requests,
        }
        .add(&part(profile, &samples), 0)?;
    }
    Ok(requests)
}

/// Whether an answer with status 422 is about the profile. A server that starts, or one with too much to do, may give that
/// status, too; only its words differ (`… failed unknown: empty ring`).
pub fn is_refusal(answer: &[u8]) -> bool {
    String::from_utf8_lossy(answer).contains("invalid_argument")
}

/// Groups samples by the labels of their processes, and sums those of a process's threads.
fn by_labels(profile: &Profile) -> BTreeMap<Labels, Samples> {
    let labels: Vec<Labels> = profile.threads.iter().map(|thread| labels_of(profile, thread)).collect();
    let kept = most_sampled(&labels, profile);
    let other = Labels::from([("service_name".to_owned(), OTHER.to_owned())]);
    let other: Labels = of_machine(profile).into_iter().chain(other).collect();
    let mut firsts = HashMap::new();
    let mut groups: BTreeMap<Labels, Samples> = BTreeMap::new();
    for sample in &profile.samples {
        let Some(of_process) = row(&labels, sample.thread) else { continue };
        let Some(ProfileThread { process, .. }) = row(&profile.threads, sample.thread) else { continue };
        let thread = *firsts.entry(process).or_insert(sample.thread);
        let of_process = kept.get(of_process).copied().unwrap_or(&other);
        if !groups.contains_key(of_process) {
            groups.insert(of_process.clone(), Samples::new());
        }
        let Some(samples) = groups.get_mut(of_process) else { continue };
        let nothing = ProfileSample { time_ns: 0, cpu: 0, thread, samples: 0, weight: 0, ..*sample };
        let sum = samples.entry((sample.event, thread, sample.stack)).or_insert(nothing);
        sum.samples = sum.samples.saturating_add(sample.samples);
        sum.weight = sum.weight.saturating_add(sample.weight);
    }
    groups
}

/// The labels with the most samples, [`MAX_SERVICES`] at most.
fn most_sampled<'l>(labels: &'l [Labels], profile: &Profile) -> BTreeSet<&'l Labels> {
    let mut sums: BTreeMap<&Labels, u64> = BTreeMap::new();
    for sample in &profile.samples {
        if let Some(labels) = row(labels, sample.thread) {
            let sum = sums.entry(labels).or_default();
            *sum = sum.saturating_add(sample.samples);
        }
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|&(_, samples)| Reverse(samples));
    sums.into_iter().take(MAX_SERVICES).map(|(labels, _)| labels).collect()
}

fn labels_of(profile: &Profile, thread: &ProfileThread) -> Labels {
    let Attribution { service, container, pod } = Attribution::of(thread.cgroup.as_bytes());
    let mut labels = of_machine(profile);
    let mut add = |name: &str, text: &str| {
        if !text.is_empty() {
            labels.insert(name.to_owned(), value(text));
        }
    };
    add("service_name", service.as_deref().unwrap_or(&thread.process));
    for (name, text) in [("unit", service), ("container", container), ("pod", pod)] {
        add(name, text.as_deref().unwrap_or_default());
    }
    for (name, text) in &thread.labels {
        add(&label_name(name), text);
    }
    let service = labels.entry("service_name".to_owned()).or_default();
    *service = replaced(service, |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
    if service.is_empty() {
        // The server requires one.
        "unknown".clone_into(service);
    }
    labels
}

fn of_machine(profile: &Profile) -> Labels {
    let labels = [("hostname", &profile.recorded.host), ("strategy", &profile.strategy)];
    labels.into_iter().map(|(name, text)| (name.to_owned(), value(text))).collect()
}

/// Pyroscope keeps names that begin with `__` for itself.
fn label_name(name: &str) -> String {
    let name = replaced(name, |c| c.is_ascii_alphanumeric());
    let is_taken = name.starts_with("__") || name.starts_with(|c: char| c.is_ascii_digit());
    if is_taken { format!("label_{name}") } else { name }
}

fn value(text: &str) -> String {
    replaced(&visible(text), |c| !matches!(c, ',' | '}'))
}

fn replaced(text: &str, is_allowed: impl Fn(char) -> bool) -> String {
    text.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect()
}

/// The query of the URL: the labels and the time.
fn query(profile: &Profile, mut labels: Labels) -> String {
    let service = labels.remove("service_name").unwrap_or_default();
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let start_ns = profile.recorded.start_unix_ns;
    let duration_ns = u64::try_from(profile.duration.as_nanos()).unwrap_or(u64::MAX);
    let until = start_ns.saturating_add(duration_ns).div_ceil(NS_PER_S);
    form_urlencoded::Serializer::new(String::new())
        .append_pair("name", &format!("{service}{{{}}}", labels.join(",")))
        .append_pair("from", &(start_ns / NS_PER_S).to_string())
        .append_pair("until", &until.to_string())
        .append_pair("format", "pprof")
        .append_pair("spyName", "fpprof")
        .finish()
}
