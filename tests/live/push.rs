//! Tests of `fpprof agent` with a collector, Pyroscope or a bucket: every stored sample is sent once, waits in the spool, or is counted.

use crate::agent::Agent;
use crate::support::wait_until;
use fpprof_reports::profile::request::Request;
use nix::sys::signal::Signal;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development::Sample;
use prost::Message as _;
use rcgen::CertifiedKey;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A collector's reaction to a request.
#[derive(Debug, Clone, Copy)]
enum Does {
    /// Answers with this status and headers.
    Answer(&'static str),
    /// Answers with this status and body.
    Say(&'static str, &'static str),
    /// Reads the request and closes the connection.
    HangUp,
    /// Accepts the request, but answers only when the gate is open.
    Hold(&'static Gate),
}

/// What a request waits at.
#[derive(Debug)]
struct Gate {
    has_come: AtomicBool,
    is_open: AtomicBool,
}

const TAKEN: Does = Does::Answer("200 OK");

/// A collector that fails on demand; `just engines` tests a real one.
struct Collector {
    address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
}

/// A received request.
#[derive(Debug, Clone)]
struct Got {
    head: String,
    body: Vec<u8>,
}

impl Collector {
    /// Listens at this address; goes through the reactions in order, and repeats the last forever.
    fn at(address: SocketAddr, tls: Option<Arc<ServerConfig>>, does: &'static [Does]) -> Self {
        let listener = TcpListener::bind(address).expect("a listener");
        let address = listener.local_addr().expect("its address");
        let got = Arc::new(Mutex::new(Vec::new()));
        let its = Arc::clone(&got);
        std::thread::spawn(move || {
            let mut does = does.iter().copied();
            let mut now = does.next().expect("something to do");
            for stream in listener.incoming().flatten() {
                let answered = match &tls {
                    None => answer(stream, now),
                    Some(config) => {
                        let connection = ServerConnection::new(Arc::clone(config)).expect("a connection");
                        answer(StreamOwned::new(connection, stream), now)
                    }
                };
                if let Some(request) = answered {
                    its.lock().expect("no panic").push(request);
                    now = does.next().unwrap_or(now);
                }
            }
        });
        Self { address, got }
    }

    fn anywhere(tls: Option<Arc<ServerConfig>>, does: &'static [Does]) -> Self {
        Self::at((Ipv4Addr::LOCALHOST, 0).into(), tls, does)
    }

    fn got(&self) -> Vec<Got> {
        self.got.lock().expect("no panic").clone()
    }
}

/// Reads a request and reacts to it; `None` if none arrives.
fn answer(stream: impl Read + Write, does: Does) -> Option<Got> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        stream.read_line(&mut head).ok().filter(|&bytes| bytes > 0)?;
    }
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.expect("a length")];
    stream.read_exact(&mut body).ok()?;
    if let Does::Hold(gate) = does {
        gate.has_come.store(true, Ordering::SeqCst);
        wait_until("the gate is open", || gate.is_open.load(Ordering::SeqCst));
    }
    let does = if matches!(does, Does::Hold(_)) { TAKEN } else { does };
    if let Does::Answer(status) | Does::Say(status, _) = does {
        let words = if let Does::Say(_, words) = does { words } else { "" };
        let length = words.len();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{words}");
        stream.get_mut().write_all(answer.as_bytes()).ok()?;
        stream.get_mut().flush().ok()?;
    }
    Some(Got { head, body })
}

/// Sums the samples of the profiles in requests by strategy, each profile once even if sent repeatedly.
fn samples<'b>(bodies: impl IntoIterator<Item = &'b Vec<u8>>) -> BTreeMap<String, i64> {
    let mut profiles = BTreeMap::new();
    for body in bodies {
        let mut decoder = libdeflater::Decompressor::new();
        let mut whole = vec![0; 8 << 20];
        let n = decoder.gzip_decompress(body, &mut whole).expect("gzip");
        whole.truncate(n);
        let data = ExportProfilesServiceRequest::decode(whole.as_slice()).expect("a request");
        let tables = data.dictionary.expect("tables");
        let strategy = |sample: &Sample| {
            let mut attributes = sample.attribute_indices.iter().map(|&index| row(&tables.attribute_table, index));
            let of_key =
                attributes.find(|attribute| row(&tables.string_table, attribute.key_strindex) == "fpprof.strategy");
            format!("{:?}", of_key.expect("a strategy").value)
        };
        let scopes = data.resource_profiles.iter().flat_map(|resource| &resource.scope_profiles);
        for profile in scopes.flat_map(|scope| &scope.profiles) {
            let sums = profile.samples.iter().map(|sample| (strategy(sample), sample.values.iter().sum::<i64>()));
            profiles.insert(profile.profile_id.clone(), sums.collect::<Vec<_>>());
        }
    }
    let mut by_strategy = BTreeMap::new();
    for (strategy, value) in profiles.into_values().flatten() {
        *by_strategy.entry(strategy).or_default() += value;
    }
    by_strategy
}

fn bodies(requests: &[Got]) -> impl Iterator<Item = &Vec<u8>> {
    requests.iter().map(|request| &request.body)
}

fn row<T>(table: &[T], index: i32) -> &T {
    table.get(usize::try_from(index).expect("an index")).expect("a row")
}

fn settings(url: &str, more: &str) -> String {
    format!("rate = 99\n[push]\nurl = \"{url}\"\n{more}")
}

/// Check that each stored sample is sent under the default strategy or waits in the spool: also if the collector is
/// overloaded, refuses a token, or accepts a request but the answer is lost; then the same bytes are sent again.
#[test]
fn every_sample_is_sent() {
    const OVERLOADED: Does = Does::Answer("503 Service Unavailable\r\nRetry-After: 1");
    let collector =
        Collector::anywhere(None, &[TAKEN, OVERLOADED, Does::HangUp, Does::Answer("401 Unauthorized"), TAKEN]);
    let agent = Agent::start(&settings(&format!("http://{}/", collector.address), ""), &[]);
    wait_until("requests come after those that failed", || collector.got().len() >= 7);
    let outcome = |name: &str| agent.metric(&format!("fpprof_pushed_samples_total{{outcome=\"{name}\"}}"));
    assert!(outcome("accepted") > 0.0);
    for other in ["partly_refused", "refused", "no_room", "not_written", "unreadable"] {
        assert_eq!(outcome(other), 0.0, "{other}");
    }
    assert_eq!(agent.metric("fpprof_push_retries_total"), 3.0);
    let log = agent.log();
    assert_eq!((log.matches("profiles wait in").count(), log.matches("answers again").count()), (1, 1), "{log}");
    let stored = agent.end();
    stored.assert_balance();
    let got = collector.got();
    assert!(got.iter().all(|request| request.head.starts_with("POST /v1development/profiles HTTP/1.1\r\n")));
    assert!(got[1..5].windows(2).all(|pair| pair[0].body == pair[1].body), "the same bytes");
    // A request in the spool may have been sent, if its answer came too late.
    let sent = samples(bodies(&got).chain(&stored.waiting));
    assert_eq!(sent.len(), 1, "{sent:?}");
    let in_store: Vec<i64> = stored.samples.into_values().collect();
    assert_eq!(sent.into_values().sum::<i64>(), in_store[0]);
}

/// Check that while a collector is unreachable the oldest profiles are removed for want of room and counted, that the
/// rest is sent later, that a reload selects all strategies, and that an agent sends what its predecessor left.
#[test]
fn profiles_wait_within_bounds() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let address = free.expect("an address");
    let url = format!("http://{address}");
    let agent = Agent::start(&settings(&url, "max-spool = \"40K\""), &[]);
    let outcome = |name: &str| agent.metric(&format!("fpprof_pushed_samples_total{{outcome=\"{name}\"}}"));
    wait_until("there is no more room", || outcome("no_room") > 0.0);
    assert!((1.0..=40_960.0).contains(&agent.metric("fpprof_spool_bytes")));
    agent.configure(&settings(&url, "all-strategies = true"));
    agent.signal(Signal::SIGHUP);
    wait_until("the configuration is read", || agent.log().contains("read the configuration again"));
    agent.wait_for_samples(100.0);
    let collector = Collector::at(address, None, &[TAKEN]);
    wait_until("the rest is sent", || samples(bodies(&collector.got())).len() == 2);
    let removed = outcome("no_room");
    let stored = agent.end();
    stored.assert_balance();
    // Under one strategy before the reload, then under each.
    let sent: Vec<i64> = samples(bodies(&collector.got()).chain(&stored.waiting)).into_values().collect();
    let in_store: Vec<i64> = stored.samples.into_values().collect();
    let all = sent.iter().sum::<i64>();
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let counted = all as f64 + removed;
    assert!(counted > in_store[0] as f64 && all <= in_store.iter().sum(), "{sent:?} {in_store:?}");
}

/// Check that a request that is being sent while the configuration is read again, and while there is no more room, is counted
/// once: each stored sample is sent, waits, or is counted as removed.
#[test]
fn a_reload_counts_each_request_once() {
    static GATE: Gate = Gate { has_come: AtomicBool::new(false), is_open: AtomicBool::new(false) };
    const DOES: &[Does] = &[Does::Hold(&GATE), TAKEN];
    let collector = Collector::anywhere(None, DOES);
    let url = format!("http://{}", collector.address);
    let large = settings(&url, "max-spool = \"1G\"");
    let agent = Agent::start(&large, &[]);
    wait_until("a request comes", || GATE.has_come.load(Ordering::SeqCst));
    let removed = || agent.metric("fpprof_pushed_samples_total{outcome=\"no_room\"}");
    let reload = |settings: &str| {
        let before = agent.log().matches("read the configuration again").count();
        agent.configure(settings);
        agent.signal(Signal::SIGHUP);
        wait_until("it is read again", || agent.log().matches("read the configuration again").count() > before);
    };
    reload(&settings(&url, "max-spool = \"1K\""));
    let before = removed();
    wait_until("there is no more room", || removed() > before);
    reload(&large);
    agent.wait_for_samples(1.0);
    GATE.is_open.store(true, Ordering::SeqCst);
    wait_until("further requests come", || collector.got().len() >= 3);
    let removed = removed();
    let stored = agent.end();
    stored.assert_balance();
    let sent = samples(bodies(&collector.got()).chain(&stored.waiting));
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let counted = sent.into_values().sum::<i64>() as f64 + removed;
    let in_store: Vec<i64> = stored.samples.into_values().collect();
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let in_store = in_store[0] as f64;
    assert_eq!(counted, in_store);
}

/// Check that a collector with an untrusted certificate receives nothing, not even the token, and receives both with
/// `ca-file`.
#[test]
fn certificates_are_checked() {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![cert.der().clone()], key);
    let collector = Collector::anywhere(Some(Arc::new(config.expect("a configuration"))), &[TAKEN]);
    let files = tempfile::tempdir().expect("a directory");
    let (token, ca) = (files.path().join("token"), files.path().join("ca.pem"));
    std::fs::write(&token, "secret\n").and_then(|()| std::fs::write(&ca, cert.pem())).expect("written");
    let url = format!("https://{}", collector.address);
    let with_token = format!("token-file = \"{}\"\n", token.display());
    let agent = Agent::start(&settings(&url, &with_token), &[]);
    wait_until("it is refused", || agent.metric("fpprof_push_retries_total") >= 1.0);
    assert!(agent.log().contains("invalid peer certificate"), "{}", agent.log());
    assert!(collector.got().is_empty());
    agent.configure(&settings(&url, &format!("{with_token}ca-file = \"{}\"\n", ca.display())));
    agent.signal(Signal::SIGHUP);
    wait_until("profiles come", || !collector.got().is_empty());
    assert!(collector.got()[0].head.to_ascii_lowercase().contains("\r\nauthorization: bearer secret\r\n"));
    assert!(!agent.log().contains("secret"));
    agent.end().assert_balance();
}

/// The name with its labels in each request to Pyroscope, and the requests as they are in the spool.
fn to_pyroscope(got: &[Got]) -> Vec<(String, Vec<u8>)> {
    let requests = got.iter().filter_map(|Got { head, body }| {
        let query = head.strip_prefix("POST /ingest?")?.split_once(" HTTP/1.1\r\n").expect("a query").0;
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let [(_, name), (_, from), (_, until), (_, format), (_, spy)] = &pairs[..] else { panic!("{query}") };
        assert_eq!((format.as_str(), spy.as_str()), ("pprof", "fpprof"));
        assert!(from.parse::<u64>().expect("a time") < until.parse().expect("a time"));
        Some((name.clone(), [query.as_bytes(), b"\n", body].concat()))
    });
    requests.collect()
}

/// The samples in requests to Pyroscope, each request once, as Go's pprof reads them.
fn samples_in_pprof<'r>(requests: impl IntoIterator<Item = &'r Vec<u8>>) -> i64 {
    let directory = tempfile::tempdir().expect("a directory");
    let requests: BTreeSet<_> = requests.into_iter().collect();
    let files = requests.into_iter().enumerate().map(|(n, request)| {
        let (_, profile) = Request::line_and_rest(request).expect("a query and a profile");
        let file = directory.path().join(n.to_string());
        std::fs::write(&file, profile).expect("written");
        file
    });
    let raw = Command::new("go").args(["tool", "pprof", "-raw"]).args(files).output().expect("go is needed");
    assert!(raw.status.success(), "{raw:?}");
    let raw = String::from_utf8(raw.stdout).expect("UTF-8");
    let (_, samples) = raw.split_once("Samples:\nsamples/count cpu/nanoseconds[dflt]\n").expect("samples");
    let (samples, _) = samples.split_once("Locations\n").expect("locations");
    let values = samples.lines().filter(|line| !line.contains(":[")).map(|line| line.split_whitespace().next());
    values.map(|value| value.expect("a value").parse::<i64>().expect("a number")).sum()
}

/// Check that each stored sample is sent to Pyroscope with its labels or waits in the spool: also if Pyroscope is starting or
/// overloaded, or its answer is lost; then the same bytes are sent again. What it refuses is counted and not sent again.
#[test]
fn pyroscope_gets_every_sample() {
    const STARTING: Does = Does::Say("422 Unprocessable Entity", "failed unknown: empty ring");
    const REFUSED: Does = Does::Say("422 Unprocessable Entity", "failed invalid_argument: too old");
    const OVERLOADED: Does = Does::Answer("429 Too Many Requests\r\nRetry-After: 1");
    let server = Collector::anywhere(None, &[STARTING, TAKEN, OVERLOADED, Does::HangUp, REFUSED, TAKEN]);
    let rule = "[[label]]\nname = \"team.name\"\nenvironment = \"FPPROF_TEAM\"\n";
    let url = format!("http://{}/", server.address);
    let agent = Agent::start(&settings(&url, &format!("protocol = \"pyroscope\"\n{rule}")), &[]);
    let is_of_team = |(name, _): &(String, Vec<u8>)| name.contains("team_name=web");
    wait_until("requests of the program come", || to_pyroscope(&server.got()).iter().skip(6).any(is_of_team));
    let outcome = |name: &str| agent.metric(&format!("fpprof_pushed_samples_total{{outcome=\"{name}\"}}"));
    assert!(outcome("accepted") > 0.0 && outcome("refused") > 0.0);
    for other in ["partly_refused", "no_room", "not_written", "unreadable"] {
        assert_eq!(outcome(other), 0.0, "{other}");
    }
    assert_eq!(agent.metric("fpprof_push_retries_total"), 3.0);
    let stored = agent.end();
    stored.assert_balance();
    let got = to_pyroscope(&server.got());
    assert_eq!(got.len(), server.got().len());
    let is_again = got[..7].windows(2).map(|pair| pair[0] == pair[1]).collect::<Vec<_>>();
    assert_eq!(is_again, [true, false, true, true, false, false], "the same bytes, but not what was refused");
    assert!(got.iter().all(|(name, _)| name.contains("{hostname=") || name.contains(",hostname=")), "{got:?}");
    assert!(got.iter().all(|(name, _)| name.contains("strategy=")), "{got:?}");
    let sent = samples_in_pprof(got.iter().map(|(_, request)| request).chain(&stored.waiting));
    let in_store: Vec<i64> = stored.samples.into_values().collect();
    assert_eq!(sent, in_store[0]);
}

/// The name of each object put into `bucket/fleet`, or waiting for it, and its bytes.
fn objects(got: &[Got], waiting: &[Vec<u8>]) -> Vec<(String, Vec<u8>)> {
    let put = got.iter().map(|Got { head, body }| {
        let path = head.strip_prefix("PUT /bucket/fleet/").and_then(|rest| rest.split_once(" HTTP/1.1\r\n"));
        (path.unwrap_or_else(|| panic!("{head}")).0.replace("%3D", "="), body.clone())
    });
    let waiting = waiting.iter().map(|request| {
        let (path, bytes) = Request::line_and_rest(request).expect("a path and a table");
        (path.to_owned(), bytes.to_vec())
    });
    put.chain(waiting).collect()
}

/// Prints the signature that each request (a file with its head, a file with its body) should have for a secret.
const SIGN: &str = r#"
import hashlib, hmac, re, sys
secret, *files = sys.argv[1:]
for head, body in zip(files[::2], files[1::2]):
    first, *lines = open(head).read().split("\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines if line)}
    scope, signed = re.search("Credential=[A-Z]+/(.*), SignedHeaders=(.*), ", headers["authorization"]).groups()
    names = signed.split(";")
    assert {"host", "x-amz-content-sha256", "x-amz-date"} <= set(names), names
    method, path, _ = first.split(" ")
    of_body = hashlib.sha256(open(body, "rb").read()).hexdigest()
    request = [method, path, "", *(f"{name}:{headers[name]}" for name in names), "", signed, of_body]
    of_request = hashlib.sha256("\n".join(request).encode()).hexdigest()
    key = ("AWS4" + secret).encode()
    for part in [*scope.split("/"), f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{of_request}"]:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    print(key.hex())
"#;

/// Checks the signatures of requests, and that they name the region.
fn assert_signed(got: &[Got], secret: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let files = got.iter().enumerate().flat_map(|(n, Got { head, body })| {
        let files = ["head", "body"].map(|part| directory.path().join(format!("{n}.{part}")));
        std::fs::write(&files[0], head.replace("\r\n", "\n"))
            .and_then(|()| std::fs::write(&files[1], body))
            .expect("written");
        files
    });
    let expected = Command::new("python3").args(["-c", SIGN, secret]).args(files).output().expect("python3 is needed");
    let expected = String::from_utf8(expected.stdout.clone()).unwrap_or_else(|_| panic!("{expected:?}"));
    assert_eq!(expected.lines().count(), got.len());
    for (Got { head, .. }, signature) in got.iter().zip(expected.lines()) {
        assert!(head.contains(&format!(", Signature={signature}\r\n")) && head.contains("/eu-1/s3/"), "{head}");
    }
}

/// Check that each table of the store is put into a bucket once, as it is, or waits in the spool: also if the bucket is
/// overloaded or missing, keys are wrong, or the answer is lost; then the same bytes are put under the same name. What is
/// refused is counted and not put again. Each request is signed with the keys that are in the file at that time.
#[test]
fn a_bucket_gets_every_table() {
    const WRONG_KEY: Does = Does::Say("403 Forbidden", "<Error><Code>InvalidAccessKeyId</Code></Error>");
    const OVERLOADED: Does = Does::Answer("503 Slow Down\r\nRetry-After: 1");
    const MISSING: Does = Does::Say("404 Not Found", "<Error><Code>NoSuchBucket</Code></Error>");
    const DAMAGED: Does = Does::Say("400 Bad Request", "<Error><Code>BadDigest</Code></Error>");
    const REFUSED: Does = Does::Say("400 Bad Request", "<Error><Code>EntityTooLarge</Code></Error>");
    const DOES: &[Does] = &[WRONG_KEY, OVERLOADED, Does::HangUp, MISSING, DAMAGED, TAKEN, REFUSED, TAKEN];
    let server = Collector::anywhere(None, DOES);
    let files = tempfile::tempdir().expect("a directory");
    let keys = files.path().join("credentials");
    let with_key = |id: &str| {
        let text = format!("[default]\naws_access_key_id = {id}\naws_secret_access_key = not-to-be-seen\n");
        std::fs::write(&keys, text).expect("written");
    };
    with_key("FIRST");
    let url = format!("http://{}/bucket/fleet/", server.address);
    let more = format!("protocol = \"s3\"\nregion = \"eu-1\"\ncredentials-file = \"{}\"\n", keys.display());
    let mut agent = Agent::start(&settings(&url, &more), &[]);
    let retries = |agent: &Agent, of: &str| agent.metric(&format!("fpprof_push_retries_total{{status=\"{of}\"}}"));
    wait_until("keys are refused", || retries(&agent, "403") == 1.0);
    with_key("SECOND");
    wait_until("tables come", || server.got().len() >= 12);
    let outcome = |name: &str| agent.metric(&format!("fpprof_pushed_samples_total{{outcome=\"{name}\"}}"));
    assert!(outcome("accepted") > 0.0);
    for other in ["partly_refused", "no_room", "not_written", "unreadable"] {
        assert_eq!(outcome(other), 0.0, "{other}");
    }
    assert_eq!(["403", "503", "none", "404", "400"].map(|status| retries(&agent, status)), [1.0; 5]);
    let log = agent.log();
    let first =
        "answers 403 Forbidden (InvalidAccessKeyId): put valid keys into push.credentials-file; profiles wait in";
    assert!(log.contains(first) && log.contains("(EntityTooLarge); what is refused is counted"), "{log}");
    assert!(!log.contains("not-to-be-seen"), "{log}");
    agent.stop();
    let (stored, got) = (agent.stored(), server.got());
    stored.assert_balance();
    assert_signed(&got, "not-to-be-seen");
    let with = |id: &str| got.iter().filter(|got| got.head.contains(&format!("Credential={id}/"))).count();
    assert!(with("FIRST") >= 1 && with("SECOND") >= 8, "{got:?}");
    let objects = objects(&got, &stored.waiting);
    let is_again: Vec<bool> = objects[..9].windows(2).map(|pair| pair[0] == pair[1]).collect();
    assert_eq!(is_again, [true, true, true, true, true, false, false, false], "same names, but not what was refused");
    // The bucket is a store with the same content, and its files are those of the store.
    let bucket = tempfile::tempdir().expect("a directory");
    for (name, bytes) in &objects {
        let file = bucket.path().join(name);
        std::fs::create_dir_all(file.parent().expect("a day"))
            .and_then(|()| std::fs::write(&file, bytes))
            .expect("written");
        let name = &name[..name.rfind('-').expect("the sum")];
        // An hour that has ended may be merged there.
        if let Ok(in_store) = std::fs::read(agent.store().join(format!("{name}.parquet"))) {
            assert!(in_store == *bytes, "{name}");
        }
    }
    let in_bucket = agent.stored_in(bucket.path());
    assert_eq!((in_bucket.samples, in_bucket.counters), (stored.samples, stored.counters));
}

/// Check that what waits for Pyroscope is kept and not sent while the agent sends by OTLP, which says so, and is sent once
/// the protocol is Pyroscope's again.
#[test]
fn another_protocol_waits() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let address = free.expect("an address");
    let to = |protocol: &str| settings(&format!("http://{address}"), &format!("protocol = \"{protocol}\""));
    let mut agent = Agent::start(&to("pyroscope"), &[]);
    wait_until("profiles wait", || agent.metric("fpprof_spool_files") >= 2.0);
    agent.stop();
    let left = agent.stored().waiting;
    let collector = Collector::at(address, None, &[TAKEN]);
    agent.start_again(&to("otlp"));
    wait_until("profiles come", || collector.got().len() >= 2);
    assert!(to_pyroscope(&collector.got()).is_empty());
    let says = format!("for a collector of another protocol, in {} files: set push.protocol", left.len());
    assert!(agent.log().contains(&says), "{}", agent.log());
    assert!(agent.metric("fpprof_spool_files") >= left.len() as f64);
    agent.configure(&to("pyroscope"));
    agent.signal(Signal::SIGHUP);
    wait_until("what was left is sent", || {
        let sent: BTreeSet<Vec<u8>> = to_pyroscope(&collector.got()).into_iter().map(|(_, request)| request).collect();
        left.iter().all(|request| sent.contains(request))
    });
    agent.end().assert_balance();
}

/// Check that an agent without a collector says what an earlier one has left in the spool, keeps it, and shows it in its metrics;
/// and that it removes and counts what is older than the store keeps.
#[test]
fn what_was_left_is_counted() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let url = format!("http://{}", free.expect("an address"));
    let mut agent = Agent::start(&settings(&url, ""), &[]);
    wait_until("profiles wait", || agent.metric("fpprof_spool_files") >= 2.0);
    agent.stop();
    let left = agent.stored().waiting;
    agent.start_again("rate = 99");
    wait_until("what is left is counted", || agent.metric("fpprof_spool_files") > 0.0);
    assert!(agent.log().contains(&format!("for a collector, in {} files", left.len())), "{}", agent.log());
    assert_eq!(agent.stored().waiting.len(), left.len());
    let file = agent.directory.path().join("agent.toml");
    let text =
        std::fs::read_to_string(&file).expect("a configuration").replace("[store]\n", "[store]\nkeep = \"2s\"\n");
    std::fs::write(&file, text).expect("written");
    agent.signal(Signal::SIGHUP);
    wait_until("what is left is too old", || agent.metric("fpprof_spool_files") == 0.0);
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let expected = samples(&left).into_values().sum::<i64>() as f64;
    assert_eq!(agent.metric("fpprof_pushed_samples_total{outcome=\"expired\"}"), expected);
    assert_eq!(agent.log().matches("is removed, and counted as expired").count(), 1, "{}", agent.log());
    assert!(agent.end().waiting.is_empty());
}
