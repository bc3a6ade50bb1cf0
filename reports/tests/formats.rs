//! The formats of other tools: texts are compared with reviewed files, binary formats are decoded again.

mod support;

use bytes::Bytes;
use fpprof_analysis::folded::Unit;
use fpprof_analysis::profile::{
    Grouping, Profile, ProfileFrame, ProfileModule, ProfileSample, ProfileStack, ProfileThread, Weight,
};
use fpprof_reports::parquet::{counters, stacks};
use fpprof_reports::profile::request::Request;
use fpprof_reports::profile::{firefox, otlp, perf_script, pprof, pyroscope, speedscope};
use fpprof_unwind::{Root, StopReason};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development::ProfilesData;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use prost::Message as _;
use std::collections::BTreeSet;
use std::time::Duration;
use support::names::hostile;
use support::{golden, timed, written};

/// Check the texts byte by byte.
#[test]
fn texts_are_those_looked_at() {
    let profile = timed::profile("nbdkit");
    golden("perf-script.txt", &written(|out| perf_script::write(&profile, out)));
    golden("speedscope.json", &written(|out| speedscope::write(&profile, out)));
    golden("firefox.json", &written(|out| firefox::write(&profile, out)));
}

/// The rows of a table, one per line, as printed by the `parquet` crate.
fn rows(table: Vec<u8>) -> String {
    let reader = SerializedFileReader::new(Bytes::from(table)).expect("Parquet");
    reader.get_row_iter(None).expect("rows").map(|row| format!("{}\n", row.expect("a row"))).collect()
}

/// Check the decoded rows of Parquet tables: of two strategies, and of counters.
#[test]
fn tables_are_those_looked_at() {
    let fp = Profile { strategy: "fp".to_owned(), ..timed::profile("nbdkit") };
    let profiles = [fp, timed::profile("nbdkit")];
    golden("stacks.parquet.txt", rows(written(|out| stacks::write(&profiles, out))).as_bytes());
    let counter = |name, cause: &str, value| {
        let event = if cause.is_empty() { "cpu-clock" } else { "" };
        counters::Counter { name, event: event.to_owned(), cause: cause.to_owned(), value }
    };
    let counted = counters::Counters {
        start_unix_us: 1_700_000_000_000_000,
        duration: Duration::from_secs(60),
        host: "web-1".to_owned(),
        counters: vec![counter("fired", "", 1140), counter("unread", "", -2), counter("discarded", "no_room", 7)],
    };
    golden("counters.parquet.txt", rows(written(|out| counters::write(&counted, out))).as_bytes());
}

/// Check that OpenTelemetry's own messages decode to every sample, with its thread, its stack and its end.
#[test]
fn opentelemetry_has_every_sample() {
    let profile = timed::profile("nbdkit");
    let data = ProfilesData::decode(written(|out| otlp::write(&profile, out)).as_slice()).unwrap();
    let tables = data.dictionary.unwrap();
    let text = |index: i32| tables.string_table[usize::try_from(index).unwrap()].as_str();
    for is_zero in [
        tables.mapping_table[0] == Default::default(),
        tables.location_table[0] == Default::default(),
        tables.function_table[0] == Default::default(),
        tables.stack_table[0] == Default::default(),
        tables.attribute_table[0] == Default::default(),
        text(0).is_empty(),
    ] {
        assert!(is_zero, "a table does not begin with a row of zeros");
    }
    assert_eq!(data.resource_profiles.len(), 1, "one process");
    let found = &data.resource_profiles[0].scope_profiles[0].profiles[0];
    let sample_type = found.sample_type.unwrap();
    assert_eq!((text(sample_type.type_strindex), text(sample_type.unit_strindex)), ("samples", "count"));
    assert_eq!((found.period, found.duration_nano), (1_000_000, 10_000_000));
    let samples = found.samples.iter().map(|sample| {
        let locations = &tables.stack_table[usize::try_from(sample.stack_index).unwrap()].location_indices;
        let names = locations.iter().flat_map(|&at| &tables.location_table[usize::try_from(at).unwrap()].lines);
        let names = names.map(|line| tables.function_table[usize::try_from(line.function_index).unwrap()]);
        let names: Vec<&str> = names.map(|function| text(function.name_strindex)).collect();
        let times = sample.timestamps_unix_nano.iter().map(|time| time - found.time_unix_nano);
        (names, times.collect::<Vec<_>>(), sample.attribute_indices.len())
    });
    let whole = vec!["do_syscall_64", "inlined", "nbdkit", "_start"];
    let cut = vec!["nbdkit", "inlined", "nbdkit", "[truncated: chunk_end]"];
    let expected =
        [(whole, vec![1_000_000, 2_000_000], 5), (cut.clone(), vec![3_000_000], 5), (cut, vec![4_000_000], 5)];
    assert_eq!(samples.collect::<Vec<_>>(), expected);
}

/// Check that equal samples, which an aggregated recording counts together, each count in the formats with a line or a time for
/// each, and that none of their weight is lost.
#[test]
fn equal_samples_each_count() {
    let mut profile = timed::profile("nbdkit");
    let first = &mut profile.samples[0];
    (first.samples, first.weight) = (3, 1_000_001);
    let n_samples: u64 = profile.samples.iter().map(|sample| sample.samples).sum();
    let weight: u64 = profile.samples.iter().map(|sample| sample.weight).sum();
    let script = String::from_utf8(written(|out| perf_script::write(&profile, out))).unwrap();
    let heads = script.lines().filter(|line| !line.is_empty() && !line.starts_with('\t'));
    let weights: Vec<u64> = heads.map(|head| head.split_whitespace().rev().nth(1).unwrap().parse().unwrap()).collect();
    assert_eq!((weights.len() as u64, weights.iter().sum::<u64>()), (n_samples, weight));
    let data = ProfilesData::decode(written(|out| otlp::write(&profile, out)).as_slice()).unwrap();
    let samples = &data.resource_profiles[0].scope_profiles[0].profiles[0].samples;
    assert_eq!(samples.iter().map(|sample| sample.timestamps_unix_nano.len() as u64).sum::<u64>(), n_samples);
}

/// Check that a thread whose name is blank, or begins with one, has lines that begin with another character: readers of
/// `perf script` take all others for frames.
#[test]
fn heads_do_not_begin_with_a_blank() {
    let mut profile = timed::profile("nbdkit");
    let tid = profile.threads[0].tid;
    for (name, shown) in [("  ", format!(":{tid} ")), (" a b", "\\u{20}a b ".to_owned()), ("a b", "a b ".to_owned())] {
        profile.threads[0].comm = name.to_owned();
        let script = String::from_utf8(written(|out| perf_script::write(&profile, out))).unwrap();
        assert!(script.lines().next().unwrap().starts_with(&shown), "{script}");
    }
}

/// Check that requests to a collector respect the maximum size and have all samples, summed over threads with the same
/// name, and that their ids are reproducible and unique.
#[test]
fn requests_to_a_collector_have_every_sample() {
    let mut profile = timed::profile("nbdkit");
    profile.grouping = Grouping::Summed;
    let whole = profile.samples.len();
    let mut ids = BTreeSet::new();
    for (max_bytes, n_requests) in [(1 << 20, 1), (1, whole)] {
        let requests = otlp::requests(&profile, max_bytes).unwrap();
        assert_eq!(requests.len(), n_requests);
        assert_eq!(requests, otlp::requests(&profile, max_bytes).unwrap());
        assert_eq!(requests.iter().map(|request| request.samples).sum::<u64>(), whole as u64);
        let mut sum = 0;
        for request in &requests {
            let data = ExportProfilesServiceRequest::decode(gunzipped(&request.body).as_slice()).unwrap();
            assert!(n_requests == 1 || data.dictionary.unwrap().stack_table.len() == 2, "what is not used is left out");
            for found in data.resource_profiles.iter().flat_map(|resource| &resource.scope_profiles[0].profiles) {
                assert_eq!(found.profile_id.len(), 16);
                ids.insert(found.profile_id.clone());
                assert!(found.samples.iter().all(|sample| sample.timestamps_unix_nano.is_empty()));
                sum += found.samples.iter().flat_map(|sample| &sample.values).sum::<i64>();
            }
        }
        assert_eq!(sum, i64::try_from(whole).unwrap());
    }
    // The first part begins where the whole begins.
    assert_eq!(ids.len(), whole);
    // The waits of the same process at the same time are another profile.
    profile.events[0].name = "off-cpu".to_owned();
    for request in otlp::requests(&profile, 1 << 20).unwrap() {
        let data = ExportProfilesServiceRequest::decode(gunzipped(&request.body).as_slice()).unwrap();
        assert!(!ids.contains(&data.resource_profiles[0].scope_profiles[0].profiles[0].profile_id));
    }
}

fn gunzipped(bytes: &[u8]) -> Vec<u8> {
    let mut whole = vec![0; 1 << 20];
    let n = libdeflater::Decompressor::new().gzip_decompress(bytes, &mut whole).expect("gzip");
    whole.truncate(n);
    whole
}

/// What the test reads of a pprof file.
#[derive(Clone, PartialEq, prost::Message)]
struct Pprof {
    #[prost(message, repeated, tag = "2")]
    samples: Vec<PprofSample>,
    #[prost(message, repeated, tag = "3")]
    mappings: Vec<PprofMapping>,
    #[prost(string, repeated, tag = "6")]
    strings: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
}

impl Pprof {
    fn samples(&self) -> i64 {
        self.samples.iter().filter_map(|sample| sample.values.first()).sum()
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct PprofMapping {
    #[prost(int64, tag = "5")]
    file_name: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PprofSample {
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    labels: Vec<PprofLabel>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PprofLabel {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

/// The decoded requests to Pyroscope: the name with its labels, and the profile.
fn to_pyroscope(profile: &Profile, max_bytes: usize) -> Vec<(String, Pprof)> {
    let requests = pyroscope::requests(profile, max_bytes).expect("requests");
    let decoded = requests.iter().map(|request| {
        let (query, profile) = Request::line_and_rest(&request.body).expect("both");
        let (mut name, mut rest) = (String::new(), Vec::new());
        for (key, value) in form_urlencoded::parse(query.as_bytes()).into_owned() {
            if key == "name" { name = value } else { rest.push(format!("{key}={value}")) }
        }
        assert_eq!(rest, ["from=1700000000", "until=1700000001", "format=pprof", "spyName=fpprof"]);
        let profile = Pprof::decode(gunzipped(profile).as_slice()).expect("a pprof file");
        assert_eq!(profile.samples(), i64::try_from(request.samples).expect("a few"));
        (name, profile)
    });
    decoded.collect()
}

/// Check that the threads of a process become one profile with the labels that Pyroscope can parse, that a label of the caller
/// replaces another, and that parts of a profile have times of their own.
#[test]
fn pyroscope_has_a_profile_for_each_set_of_labels() {
    let mut profile = timed::profile("nbdkit");
    profile.grouping = Grouping::Summed;
    let [(name, whole)] = &to_pyroscope(&profile, 1 << 20)[..] else { panic!("one request") };
    let container = "ab".repeat(32);
    assert_eq!(*name, format!("nbdkit{{container={container},hostname=nbdkit,strategy=dwarf,team=nbdkit}}"));
    let labels = |sample: &PprofSample| {
        let text = |at: i64| whole.strings[usize::try_from(at).unwrap()].clone();
        sample.labels.iter().map(|label| format!("{}={}", text(label.key), text(label.text))).collect::<Vec<_>>()
    };
    let samples: Vec<_> = whole.samples.iter().map(|sample| (labels(sample), sample.values.clone())).collect();
    let of = |stack: &str| vec!["process=nbdkit".to_owned(), format!("stack={stack}")];
    assert_eq!(samples, [(of("complete"), vec![2, 2_000_000]), (of("truncated"), vec![2, 2_000_000])]);
    let parts = to_pyroscope(&profile, 1);
    let times: Vec<i64> = parts.iter().map(|(_, part)| part.time_nanos / 1_000_000).collect();
    assert!(parts.len() == 2 && times[0] != times[1], "{times:?}");
    assert_eq!(parts.iter().map(|(_, part)| part.mappings.len()).collect::<Vec<_>>(), [1, 1]);
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    for thread in &mut profile.threads {
        thread.cgroup = "/system.slice/a b.service".to_owned();
        thread.labels = vec![label("1/x", "a,b}c\n"), label("__name__", "y"), label("host.name", "z")];
    }
    let name = |profile: &Profile| to_pyroscope(profile, 1 << 20)[0].0.clone();
    let of_machine = "host_name=z,hostname=nbdkit,label_1_x=a_b_c\\n,label___name__=y,strategy=dwarf";
    assert_eq!(name(&profile), format!("a_b.service{{{of_machine},unit=a b.service}}"));
    // Two names that become one are one service: Pyroscope would take the second profile for a copy of the first.
    profile.threads[0].labels.push(label("service.name", "shop/eu"));
    profile.threads[1].labels.push(label("service.name", "shop:eu"));
    let [(name, _)] = &to_pyroscope(&profile, 1 << 20)[..] else { panic!("one request") };
    assert_eq!(*name, format!("shop_eu{{{of_machine},unit=a b.service}}"));
}

/// Check that the program of a pprof file is that of the process with most samples, also if these are of threads whose
/// stacks do not start in it.
#[test]
fn program_of_pprof_is_the_busiest() {
    let mut profile = timed::profile("nbdkit");
    let (thread, sample, module) = (profile.threads[0].clone(), profile.samples[0], profile.modules[0].clone());
    let whole = profile.stacks[sample.stack as usize].clone();
    let last = |profile: &Profile| u32::try_from(profile.frames.len() - 1).unwrap();
    let mut start_in = |path: &str, root| {
        profile.modules.push(ProfileModule { path: path.to_owned(), ..module.clone() });
        let module = Some(u32::try_from(profile.modules.len() - 1).unwrap());
        profile.frames.push(ProfileFrame { module, ..profile.frames[*whole.frames.last().unwrap() as usize].clone() });
        profile.stacks.push(ProfileStack { frames: vec![last(&profile)], stop: StopReason::Complete(root) });
        u32::try_from(profile.stacks.len() - 1).unwrap()
    };
    let [loader, server, child] = ["/lib/ld.so", "/bin/server", "/bin/child"].map(|path| start_in(path, Root::Start));
    let library = start_in("/lib/libc.so.6", Root::ThreadStart);
    profile.threads = [(1, 1), (1, 2), (3, 3)].map(|(pid, tid)| ProfileThread { pid, tid, ..thread.clone() }).into();
    profile.samples = [(0, loader, 1), (0, server, 2), (1, library, 100), (2, child, 50)]
        .map(|(thread, stack, samples)| ProfileSample { thread, stack, samples, ..sample })
        .into();
    let pprof = Pprof::decode(gunzipped(&written(|out| pprof::write(&profile, out))).as_slice()).unwrap();
    let file = usize::try_from(pprof.mappings[0].file_name).unwrap();
    assert_eq!(pprof.strings[file], "/bin/server");
}

/// Check that of too many services, those with the most samples have profiles of their own, and that no sample is lost.
#[test]
fn services_in_pyroscope_are_few() {
    let mut profile = timed::profile("nbdkit");
    let thread = profile.threads[0].clone();
    let services = 0..u32::try_from(pyroscope::MAX_SERVICES + 2).unwrap();
    profile.threads = services.clone().map(|n| ProfileThread { process: format!("p{n}"), ..thread.clone() }).collect();
    let sample = profile.samples[0];
    profile.samples =
        services.map(|thread| ProfileSample { thread, samples: 1 + u64::from(thread), ..sample }).collect();
    let requests = to_pyroscope(&profile, 1 << 20);
    assert_eq!(requests.len(), pyroscope::MAX_SERVICES + 1);
    let others: Vec<_> = requests.iter().filter(|(name, _)| name.starts_with("other{")).collect();
    let [other] = others[..] else { panic!("{others:?}") };
    assert_eq!((other.0.as_str(), other.1.samples()), ("other{hostname=nbdkit,strategy=dwarf}", 1 + 2));
    let all: u64 = profile.samples.iter().map(|sample| sample.samples).sum();
    assert_eq!(requests.iter().map(|(_, profile)| profile.samples()).sum::<i64>(), i64::try_from(all).unwrap());
}

/// Check that waits shorter than the Firefox Profiler's millisecond are not lost: they add up within a thread.
#[test]
fn short_waits_add_up_in_the_firefox_profiler() {
    let mut profile = timed::profile("nbdkit");
    profile.unit = Unit::BlockedNs;
    profile.events[0].weight = Weight::BlockedNs;
    for sample in &mut profile.samples {
        sample.weight = 700_000;
    }
    let json: serde_json::Value = serde_json::from_slice(&written(|out| firefox::write(&profile, out))).unwrap();
    let weights = json["threads"].as_array().unwrap().iter().map(|thread| thread["samples"]["weight"].to_string());
    assert_eq!(weights.collect::<Vec<_>>(), ["[0,1,1]", "[0]"]);
}

/// Check that no name passes control characters to a terminal, adds a line to a text, or makes invalid JSON.
#[test]
fn names_are_shown_and_not_obeyed() {
    let lines = |name: &str| {
        let text = String::from_utf8(written(|out| perf_script::write(&timed::profile(name), out))).unwrap();
        assert!(text.chars().all(|c| matches!(c, '\n' | '\t') || !c.is_control()), "{name:?}: {text:?}");
        text.lines().count()
    };
    let plain = lines("name");
    for name in hostile() {
        assert_eq!(lines(&name), plain, "{name:?}");
        let profile = timed::profile(&name);
        for json in [written(|out| speedscope::write(&profile, out)), written(|out| firefox::write(&profile, out))] {
            assert!(!json.iter().any(|byte| byte.is_ascii_control() && *byte != b'\n'), "{name:?}");
            serde_json::from_slice::<serde_json::Value>(&json).unwrap();
        }
        let encoded = written(|out| otlp::write(&profile, out));
        let strings = ProfilesData::decode(encoded.as_slice()).unwrap().dictionary.unwrap().string_table;
        assert!(strings.iter().all(|string| !string.contains(char::is_control)), "{name:?}");
        assert!(written(|out| pprof::write(&profile, out)).starts_with(&[0x1f, 0x8b]));
        let table = rows(written(|out| stacks::write(&[profile], out)));
        assert!(
            table.lines().count() == 2 && !table.contains(|c: char| c.is_control() && c != '\n'),
            "{name:?}: {table}"
        );
    }
}
