//! Sends the requests in the spool to a collector over HTTP, by OTLP, to Pyroscope or into a bucket, in its own thread, so
//! that nothing else waits for the network.
//!
//! A request is removed from the spool once it has been answered. If the answer is lost, the same bytes are sent again:
//! with OTLP the profiles in it keep their ids, and an object in a bucket its name. Pyroscope's API has neither; profiles
//! keep their labels and times.
//!
//! # Sources
//! OTLP 1.10, "OTLP/HTTP": <https://opentelemetry.io/docs/specs/otlp/#otlphttp>;
//! "Pyroscope server HTTP API": <https://grafana.com/docs/pyroscope/latest/reference-server-api/>

use super::config::{Config, Protocol, PushConfig};
use super::metrics::Metrics;
use super::s3::{self, Credentials};
use super::server::drop_capabilities;
use super::spool::{Added, Entry, Spool};
use crate::http_client;
use crate::output::print_message;
use anyhow::{Context as _, bail, ensure};
use axum::http::{StatusCode, Uri, header};
use fpprof_reports::profile::request::Request;
use fpprof_reports::profile::{otlp, pyroscope};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use ureq::tls::{PemItem, RootCerts, parse_pem};
use ureq::typestate::WithBody;
use ureq::{Proxy, RequestBuilder};

/// Timeout of a request and its answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The least time for requests that are sent while the agent ends.
const LEAST_TIME: Duration = Duration::from_millis(200);
/// Time to note an answer.
const TO_SETTLE: Duration = Duration::from_millis(50);
/// The first and the longest pause after a failure; pauses double.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// The longest `Retry-After` that is honoured.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);
/// How often a request is sent that may have been refused, as far as the answers tell. This takes up to four minutes, longer
/// than a server needs to start.
const MAX_UNCLEAR: u32 = 10;
/// The most bytes read of an answer.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// A handle to the thread.
#[derive(Debug)]
pub(super) struct Pusher {
    orders: Sender<Order>,
    ended: Receiver<()>,
}

#[derive(Debug)]
enum Order {
    /// The spool has new requests.
    Look,
    /// Send to this collector from now on, or to none.
    To(Option<Collector>),
    /// Send until then, and end.
    End(Instant),
}

/// A collector and its spool.
#[derive(Debug, Clone)]
pub(super) struct Collector {
    url: String,
    protocol: Protocol,
    /// With a token, or the keys of a bucket.
    secret_file: Option<PathBuf>,
    region: String,
    client: ureq::Agent,
    spool: Arc<Spool>,
    max_spool: u64,
    /// New requests are delayed at random up to this long, so that a fleet whose intervals end together does not send
    /// together.
    spread: Duration,
}

/// The outcome of a request.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Accepted,
    /// Some of its profiles were refused.
    PartlyRefused(String),
    /// The request is invalid; sending it again would not help.
    Refused(String),
    /// The request failed and is sent again; with the status and `Retry-After`, if any. If it is unclear whether it was a
    /// refusal, it is sent [`MAX_UNCLEAR`] times at most.
    Retry {
        why: String,
        status: Option<StatusCode>,
        after: Option<Duration>,
        unclear: bool,
    },
}

impl Pusher {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(metrics: Arc<Metrics>) -> io::Result<Self> {
        let ((orders, receiver), (end, ended)) = (channel(), channel());
        std::thread::Builder::new().name("fpprof-push".to_owned()).spawn(move || {
            // This thread parses what a collector sends.
            drop_capabilities("the thread that sends profiles");
            Pushing { metrics, to: None }.run(&receiver);
            let _ = end.send(());
        })?;
        Ok(Self { orders, ended })
    }

    /// Sends to this collector from now on, or to none.
    pub(super) fn send_to(&self, collector: Option<Collector>) {
        // The thread runs as long as this handle exists.
        let _ = self.orders.send(Order::To(collector));
    }

    /// Tells the thread that the spool has new requests.
    pub(super) fn look(&self) {
        let _ = self.orders.send(Order::Look);
    }

    /// Sends as much as possible until then, and ends the thread; the rest stays in the spool.
    pub(super) fn end(self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now()).max(LEAST_TIME);
        let _ = self.orders.send(Order::End(Instant::now() + left));
        // An answer that has come is noted in the spool.
        let _ = self.ended.recv_timeout(left + TO_SETTLE);
    }
}

impl Collector {
    /// The collector of this configuration; `None` without `push.url`.
    ///
    /// # Errors
    /// If a file with a secret or certificates cannot be read.
    pub(super) fn new(config: &Config, spool: &Arc<Spool>) -> anyhow::Result<Option<Self>> {
        let Config { push: config, interval, .. } = config;
        let Some(url) = config.endpoint() else { return Ok(None) };
        check(config)?;
        Ok(Some(Self {
            url,
            protocol: config.protocol,
            secret_file: config.secret().0.map(Path::to_owned),
            region: config.region().to_owned(),
            client: client(config)?,
            spool: Arc::clone(spool),
            max_spool: config.max_spool,
            spread: (*interval / 4).min(Duration::from_secs(15)),
        }))
    }

    /// Adds the requests of the interval that began at this time to the spool, within its limit.
    pub(super) fn add(&self, start_unix_us: u64, requests: &[Request]) -> Added {
        self.spool.add(start_unix_us, requests, self.protocol, self.max_spool)
    }

    fn has_work(&self) -> bool {
        !self.spool.is_empty(self.protocol)
    }

    /// The URL and the body of a request in the spool.
    fn message<'r>(&self, request: &'r [u8]) -> io::Result<(Uri, &'r [u8])> {
        let message = match self.protocol {
            Protocol::Otlp => self.url.parse().ok().map(|url| (url, request)),
            Protocol::Pyroscope => Request::line_and_rest(request)
                .and_then(|(query, profile)| Some((format!("{}?{query}", self.url).parse().ok()?, profile))),
            Protocol::S3 => Request::line_and_rest(request)
                .and_then(|(path, table)| Some((s3::url(&self.url, path).parse().ok()?, table))),
        };
        message.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a request that this agent has not written"))
    }

    fn send(&self, (url, body): (Uri, &[u8]), timeout: Duration) -> Answer {
        match self.answer(url, body, timeout) {
            Ok(answer) => answer,
            Err(error) => {
                let why = format!("{}: {error:#}", self.url);
                Answer::Retry { why, status: None, after: None, unclear: false }
            }
        }
    }

    fn answer(&self, url: Uri, body: &[u8], timeout: Duration) -> anyhow::Result<Answer> {
        let request = self.request(url, body)?;
        let mut response = request.config().timeout_global(Some(timeout)).build().send(body)?;
        let (status, headers) = (response.status(), response.headers());
        let after =
            headers.get(header::RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?, Timestamp::now()));
        let mut answer = Vec::new();
        // Without its words, the status says whether it is accepted.
        let _ = response.body_mut().as_reader().take(MAX_ANSWER_BYTES + 1).read_to_end(&mut answer);
        // An answer to a request that was accepted whole is empty.
        let is_cut = answer.len() as u64 > MAX_ANSWER_BYTES;
        Ok(if is_cut && self.protocol == Protocol::Otlp && status.is_success() {
            Answer::PartlyRefused(format!("{} refuses profiles, in more than {MAX_ANSWER_BYTES} bytes", self.url))
        } else {
            self.reaction(status, &answer, after)
        })
    }

    fn request(&self, url: Uri, body: &[u8]) -> anyhow::Result<RequestBuilder<WithBody>> {
        if self.protocol == Protocol::S3 {
            let file = self.secret_file.as_deref().context("no push.credentials-file")?;
            let headers = s3::headers(&url, body, &self.region, &Credentials::read(file)?, Timestamp::now());
            return Ok(headers.into_iter().fold(self.client.put(url), |put, (name, value)| put.header(name, value)));
        }
        let request = self.client.post(url);
        let request = match self.protocol {
            Protocol::Otlp => {
                request.header(header::CONTENT_TYPE, "application/x-protobuf").header(header::CONTENT_ENCODING, "gzip")
            }
            // A pprof file is compressed; the transfer is not.
            _ => request.header(header::CONTENT_TYPE, "application/octet-stream"),
        };
        Ok(match &self.secret_file {
            Some(file) => request.header(header::AUTHORIZATION, format!("Bearer {}", read_token(file)?)),
            None => request,
        })
    }

    /// What an answer means, given its `Retry-After`.
    fn reaction(&self, status: StatusCode, answer: &[u8], after: Option<Duration>) -> Answer {
        let code = if self.protocol == Protocol::S3 { s3::code(answer) } else { None };
        let what = || {
            let said = code.map(|code| format!(" ({code}){}", s3::advice(code)));
            format!("{} answers {status}{}", self.url, said.unwrap_or_default())
        };
        let retry = |unclear| Answer::Retry { why: what(), status: Some(status), after, unclear };
        match status {
            status if status.is_success() => match otlp::rejected(answer).filter(|_| self.protocol == Protocol::Otlp) {
                Some((n, why)) => Answer::PartlyRefused(format!("{} refuses {n} profiles: {why}", self.url)),
                None => Answer::Accepted,
            },
            StatusCode::BAD_REQUEST if code.is_some_and(s3::is_temporary) => retry(false),
            StatusCode::UNPROCESSABLE_ENTITY
                if self.protocol == Protocol::Pyroscope && !pyroscope::is_refusal(answer) =>
            {
                retry(true)
            }
            status if is_retried(status) => retry(false),
            _ => Answer::Refused(what()),
        }
    }
}

/// The pause that `Retry-After` asks for, [`MAX_RETRY_AFTER`] at most.
///
/// # Sources
/// RFC 9110 §10.2.3: seconds, or a date.
fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let asked = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let until = rfc2822::parse(value).ok()?.timestamp();
            Duration::try_from(until.duration_since(now)).unwrap_or_default()
        }
    };
    Some(asked.min(MAX_RETRY_AFTER))
}

/// Whether a request with this status is sent again.
///
/// OTLP says to retry only 429, 502, 503 and 504. But a wrong token, path or bucket is a configuration mistake that will be
/// fixed, and until then the spool has room. The other statuses of clients are about the request itself.
fn is_retried(status: StatusCode) -> bool {
    !status.is_client_error() || matches!(status.as_u16(), 401 | 403 | 404 | 405 | 407 | 408 | 409 | 425 | 429)
}

/// Checks the files with secrets and certificates of a configuration.
///
/// # Errors
/// If they cannot be read, by the thread that sends in the case of secrets, or are empty.
pub(crate) fn check(config: &PushConfig) -> anyhow::Result<()> {
    client(config)?;
    let checked = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            drop_capabilities("the thread that reads secrets");
            check_secret(config)
        });
        thread.join()
    });
    checked.unwrap_or_else(|_panic| bail!("the thread that reads secrets panicked"))
}

fn check_secret(config: &PushConfig) -> anyhow::Result<()> {
    match (config.secret(), config.protocol) {
        ((None, _), _) => Ok(()),
        ((Some(file), _), Protocol::S3) => Credentials::read(file).map(drop),
        ((Some(file), _), _) => read_token(file).map(drop),
    }
}

/// The HTTP client, without redirects: they would send the secret elsewhere.
fn client(config: &PushConfig) -> anyhow::Result<ureq::Agent> {
    let roots = match &config.ca_file {
        None => RootCerts::PlatformVerifier,
        Some(file) => {
            let context = || format!("push.ca-file {}", file.display());
            let pem = std::fs::read(file).with_context(context)?;
            let items: Result<Vec<PemItem<'_>>, _> = parse_pem(&pem).collect();
            let certificates: Vec<_> = items
                .with_context(context)?
                .into_iter()
                .filter_map(|item| if let PemItem::Certificate(certificate) = item { Some(certificate) } else { None })
                .collect();
            ensure!(!certificates.is_empty(), "{}: no certificate in it", context());
            RootCerts::from(certificates)
        }
    };
    // What has a secret and is in plain text goes to this machine only, and so not through a proxy of the environment.
    let is_for_here = config.is_plain() && config.secret().0.is_some();
    let proxy = if is_for_here { None } else { Proxy::try_from_env() };
    Ok(http_client::client(roots).proxy(proxy).max_redirects(0).build().new_agent())
}

/// The first line of the file; read for each request, since tokens are rotated.
fn read_token(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("push.token-file {}", file.display()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    ensure!(!token.is_empty(), "push.token-file {}: its first line is empty", file.display());
    Ok(token.to_owned())
}

/// The state of the thread.
struct Pushing {
    metrics: Arc<Metrics>,
    to: Option<Active>,
}

struct Active {
    collector: Collector,
    pause: Pause,
    /// No request is sent before this time.
    not_before: Instant,
    has_refused: bool,
}

impl Pushing {
    fn run(&mut self, orders: &Receiver<Order>) {
        loop {
            let order = match self.to.as_ref().filter(|to| to.collector.has_work()) {
                Some(to) => orders.recv_timeout(to.not_before.saturating_duration_since(Instant::now())),
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(Order::Look) => {
                    self.to.as_mut().into_iter().for_each(Active::spread);
                    self.show();
                }
                Ok(Order::To(collector)) => {
                    self.to = collector.map(Active::new);
                    self.show();
                }
                Ok(Order::End(until)) => return self.last(until),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => _ = self.send_one(TIMEOUT),
            }
        }
    }

    /// Sends as much as possible until then, unless the receiver fails.
    fn last(&mut self, ends: Instant) {
        while self.to.as_ref().is_some_and(|to| to.pause.is_over() && to.collector.has_work()) {
            let left = ends.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.send_one(left) {
                break;
            }
        }
    }

    /// Sends the oldest request; returns whether another one may be sent at once.
    fn send_one(&mut self, timeout: Duration) -> bool {
        let Some(to) = &mut self.to else { return false };
        let Some((mut entry, body)) = to.collector.spool.take(to.collector.protocol) else { return false };
        let mut goes_on = true;
        let answer = body.and_then(|body| Ok(to.collector.send(to.collector.message(&body)?, timeout)));
        match answer {
            Ok(Answer::Accepted) => to.answered(&entry, "accepted", None, &self.metrics),
            Ok(Answer::PartlyRefused(why)) => to.answered(&entry, "partly_refused", Some(&why), &self.metrics),
            Ok(Answer::Refused(why)) => to.answered(&entry, "refused", Some(&why), &self.metrics),
            Ok(Answer::Retry { why, status, after, unclear }) => {
                to.wait(&entry, &why, after);
                // A receiver that ends the connection without an answer may do so because of this request.
                entry.failed += 1;
                entry.unclear += u32::from(unclear);
                if entry.unclear < MAX_UNCLEAR {
                    goes_on = false;
                    to.collector.spool.give_back(entry);
                    self.metrics.add_push_retry(status.map(|status| status.as_u16()));
                } else {
                    // The pause goes on: it may be the server after all.
                    to.print_refusal(&why);
                    to.settle(&entry, "refused", &self.metrics);
                }
            }
            // Not there any more, or not a request.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => {
                let path = to.collector.spool.path(&entry);
                print_message(&format!("fpprof: {}: {error}; it is removed", path.display()));
                to.settle(&entry, "unreadable", &self.metrics);
            }
            Err(error) => {
                if entry.failed == 0 {
                    let path = to.collector.spool.path(&entry);
                    print_message(&format!("fpprof: {}: {error}; it is read again later", path.display()));
                }
                // This says nothing of the receiver, nor of the other requests, if there are any.
                goes_on = !entry.lets_others_pass();
                to.not_before = Instant::now() + if goes_on { MIN_PAUSE } else { MAX_PAUSE };
                entry.let_others_pass();
                to.collector.spool.give_back(entry);
            }
        }
        self.show();
        goes_on
    }

    fn show(&self) {
        if let Some(to) = &self.to {
            self.metrics.set_spool(to.collector.spool.size());
        }
    }
}

impl Active {
    fn new(collector: Collector) -> Self {
        Self { collector, pause: Pause::default(), not_before: Instant::now(), has_refused: false }
    }

    /// Delays new requests by a random time up to [`Collector::spread`].
    fn spread(&mut self) {
        let not_before = Instant::now() + self.collector.spread.mul_f64(fastrand::f64());
        self.not_before = self.not_before.max(not_before);
    }

    fn answered(&mut self, entry: &Entry, outcome: &str, why: Option<&str>, metrics: &Metrics) {
        if self.pause.end() {
            print_message(&format!("fpprof: {} answers again", self.collector.url));
        }
        why.into_iter().for_each(|why| self.print_refusal(why));
        self.settle(entry, outcome, metrics);
    }

    /// Prints the first refusal.
    fn print_refusal(&mut self, why: &str) {
        if !std::mem::replace(&mut self.has_refused, true) {
            print_message(&format!("fpprof: {why}; what is refused is counted and not sent again"));
        }
    }

    /// Pauses after a failure. One of a request that lets the others pass says nothing of these.
    fn wait(&mut self, entry: &Entry, why: &str, retry_after: Option<Duration>) {
        let pause = if entry.lets_others_pass() {
            MAX_PAUSE
        } else {
            if self.pause.is_over() {
                let dir = self.collector.spool.dir().display();
                print_message(&format!("fpprof: {why}; profiles wait in {dir}"));
            }
            self.pause.next()
        };
        self.not_before = Instant::now() + pause.max(retry_after.unwrap_or_default());
    }

    /// Counts the final outcome of a request and removes it.
    fn settle(&self, entry: &Entry, outcome: &str, metrics: &Metrics) {
        metrics.add_pushed(outcome, entry.samples);
        if let Err(error) = self.collector.spool.remove(entry) {
            print_message(&format!("fpprof: {error}; it is sent again when the agent starts again"));
        }
    }
}

/// The pause after consecutive failures.
#[derive(Debug, Default)]
struct Pause(Option<Duration>);

impl Pause {
    /// Doubles the pause; returns a random time between half of it and all of it, so that a fleet does not retry
    /// together.
    fn next(&mut self) -> Duration {
        let pause = self.0.map_or(MIN_PAUSE, |pause| (pause * 2).min(MAX_PAUSE));
        self.0 = Some(pause);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Resets the pause after a success; returns whether there was one.
    fn end(&mut self) -> bool {
        self.0.take().is_some()
    }

    fn is_over(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests;
