//! Sends the requests in the spool to a collector over HTTP, by OTLP or to Pyroscope, in its own thread, so that nothing
//! else waits for the network.
//!
//! A request is removed from the spool once it has been answered. If the answer is lost, the same bytes are sent again:
//! with OTLP the profiles in it keep their ids. Pyroscope's API has none; profiles keep their labels and times.
//!
//! # Sources
//! OTLP 1.10, "OTLP/HTTP": <https://opentelemetry.io/docs/specs/otlp/#otlphttp>;
//! "Pyroscope server HTTP API": <https://grafana.com/docs/pyroscope/latest/reference-server-api/>

use super::config::{Config, Protocol, PushConfig};
use super::metrics::Metrics;
use super::server::drop_capabilities;
use super::spool::{Entry, Spool};
use super::store::{Size, Store};
use crate::http_client;
use crate::output::print_message;
use anyhow::{Context as _, ensure};
use axum::http::{StatusCode, Uri, header};
use fpprof_reports::profile::{otlp, pyroscope};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use ureq::Proxy;
use ureq::tls::{PemItem, RootCerts, parse_pem};

/// Timeout of a request and its answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time for all requests sent while the agent ends.
const LAST_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the agent waits for this thread to end.
const END: Duration = Duration::from_secs(2);
/// The first and the longest pause after a failure; pauses double.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// The longest `Retry-After` that is honoured.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);
/// The most bytes read of an answer.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

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
    /// Send to this collector from now on; to none for the size of what waits for one.
    To(Result<Collector, Size>),
    End,
}

/// A collector and its spool.
#[derive(Debug, Clone)]
pub(super) struct Collector {
    url: String,
    protocol: Protocol,
    token_file: Option<PathBuf>,
    client: ureq::Agent,
    pub(super) spool: Arc<Spool>,
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
    /// The request failed and is sent again; with the reason and the collector's `Retry-After`, if any.
    Retry(String, Option<Duration>),
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
            Pushing { metrics, to: None, left: Size::default() }.run(&receiver);
            let _ = end.send(());
        })?;
        Ok(Self { orders, ended })
    }

    /// Sends to this collector from now on; to none if there is only this left of an earlier one.
    pub(super) fn send_to(&self, collector: Result<Collector, Size>) {
        // The thread runs as long as this handle exists.
        let _ = self.orders.send(Order::To(collector));
    }

    /// Tells the thread that the spool has new requests.
    pub(super) fn look(&self) {
        let _ = self.orders.send(Order::Look);
    }

    /// Sends as much as possible within [`LAST_TIMEOUT`] and ends the thread; the rest stays in the spool.
    pub(super) fn end(self) {
        let _ = self.orders.send(Order::End);
        let _ = self.ended.recv_timeout(END);
    }
}

impl Collector {
    /// The collector of this configuration; `None` without `push.url`.
    ///
    /// # Errors
    /// If the token or certificate file cannot be read, or the spool cannot be opened.
    pub(super) fn new(config: &Config, store: &Store) -> anyhow::Result<Option<Self>> {
        let Config { push: config, interval, .. } = config;
        let Some(url) = config.endpoint() else { return Ok(None) };
        check(config)?;
        Ok(Some(Self {
            url,
            protocol: config.protocol,
            token_file: config.token_file.clone(),
            client: client(config)?,
            spool: Arc::new(Spool::open(store, config.protocol, config.max_spool)?),
            spread: (*interval / 4).min(Duration::from_secs(15)),
        }))
    }

    /// The URL and the body of a request in the spool.
    fn message<'r>(&self, request: &'r [u8]) -> io::Result<(Uri, &'r [u8])> {
        let message = match self.protocol {
            Protocol::Otlp => self.url.parse().ok().map(|url| (url, request)),
            Protocol::Pyroscope => pyroscope::query_and_profile(request)
                .and_then(|(query, profile)| Some((format!("{}?{query}", self.url).parse().ok()?, profile))),
        };
        message.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a request that this agent has not written"))
    }

    fn post(&self, (url, body): (Uri, &[u8]), timeout: Duration) -> Answer {
        match self.answer(url, body, timeout) {
            Ok(answer) => answer,
            Err(error) => Answer::Retry(format!("{}: {error:#}", self.url), None),
        }
    }

    fn answer(&self, url: Uri, body: &[u8], timeout: Duration) -> anyhow::Result<Answer> {
        let request = self.client.post(url);
        let mut request = match self.protocol {
            Protocol::Otlp => {
                request.header(header::CONTENT_TYPE, "application/x-protobuf").header(header::CONTENT_ENCODING, "gzip")
            }
            // A pprof file is compressed; the transfer is not.
            Protocol::Pyroscope => request.header(header::CONTENT_TYPE, "application/octet-stream"),
        };
        if let Some(file) = &self.token_file {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", read_token(file)?));
        }
        let mut response = request.config().timeout_global(Some(timeout)).build().send(body)?;
        let (status, headers) = (response.status(), response.headers());
        let retry_after = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let retry_after = retry_after.map(|s| Duration::from_secs(s).min(MAX_RETRY_AFTER));
        // The status alone says whether it is accepted.
        let answer = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec().unwrap_or_default();
        let what = || format!("{} answers {status}", self.url);
        Ok(match status {
            status if status.is_success() => {
                match otlp::rejected(&answer).filter(|_| self.protocol == Protocol::Otlp) {
                    Some((n, why)) => Answer::PartlyRefused(format!("{} refuses {n} profiles: {why}", self.url)),
                    None => Answer::Accepted,
                }
            }
            StatusCode::UNPROCESSABLE_ENTITY
                if self.protocol == Protocol::Pyroscope && !pyroscope::is_refusal(&answer) =>
            {
                Answer::Retry(what(), retry_after)
            }
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY => Answer::Refused(what()),
            // OTLP says to retry only 429, 502, 503 and 504. But a wrong token or path is a configuration mistake that
            // will be fixed, and until then the spool has room.
            _ => Answer::Retry(what(), retry_after),
        })
    }
}

/// Checks the token and certificate files of a configuration.
///
/// # Errors
/// If they cannot be read or are empty.
pub(crate) fn check(config: &PushConfig) -> anyhow::Result<()> {
    client(config)?;
    config.token_file.as_deref().map_or(Ok(()), |file| read_token(file).map(drop))
}

/// The HTTP client, without redirects: they would send the token elsewhere.
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
    // A token in plain text goes to this machine only, and so not through a proxy of the environment.
    let has_plain_token = config.is_plain() && config.token_file.is_some();
    let proxy = if has_plain_token { None } else { Proxy::try_from_env() };
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
    /// What waits while there is no collector.
    left: Size,
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
            let order = match self.to.as_ref().filter(|to| !to.collector.spool.is_empty()) {
                Some(to) => orders.recv_timeout(to.not_before.saturating_duration_since(Instant::now())),
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(Order::Look) => {
                    self.to.as_mut().into_iter().for_each(Active::spread);
                    self.show();
                }
                Ok(Order::To(collector)) => {
                    self.left = collector.as_ref().err().copied().unwrap_or_default();
                    self.to = collector.ok().map(Active::new);
                    self.show();
                }
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return self.last(),
                Err(RecvTimeoutError::Timeout) => self.send_one(TIMEOUT),
            }
        }
    }

    /// Sends as much as possible within [`LAST_TIMEOUT`], unless the last request failed.
    fn last(&mut self) {
        let ends = Instant::now() + LAST_TIMEOUT;
        while self.to.as_ref().is_some_and(|to| to.pause.is_over() && !to.collector.spool.is_empty()) {
            let left = ends.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.send_one(left);
        }
    }

    fn send_one(&mut self, timeout: Duration) {
        let Some(to) = &mut self.to else { return };
        let Some((entry, body)) = to.collector.spool.take() else { return };
        let answer = body.and_then(|body| Ok(to.collector.post(to.collector.message(&body)?, timeout)));
        match answer {
            Ok(Answer::Accepted) => to.answered(&entry, "accepted", None, &self.metrics),
            Ok(Answer::PartlyRefused(why)) => to.answered(&entry, "partly_refused", Some(&why), &self.metrics),
            Ok(Answer::Refused(why)) => to.answered(&entry, "refused", Some(&why), &self.metrics),
            Ok(Answer::Retry(why, retry_after)) => {
                to.wait(&why, retry_after);
                to.collector.spool.give_back(entry);
                self.metrics.add_push_retry();
            }
            // It was already sent, through the index that was replaced at a reload.
            Err(error) if error.kind() == io::ErrorKind::NotFound => _ = to.collector.spool.remove(&entry),
            Err(error) => {
                print_message(&format!("fpprof: {}: {error}", to.collector.spool.dir().display()));
                to.settle(&entry, "unreadable", &self.metrics);
            }
        }
        self.show();
    }

    fn show(&self) {
        let size = self.to.as_ref().map(|to| to.collector.spool.size());
        self.metrics.set_spool(size.unwrap_or(self.left));
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
        if let Some(why) = why.filter(|_| !std::mem::replace(&mut self.has_refused, true)) {
            print_message(&format!("fpprof: {why}; what is refused is counted and not sent again"));
        }
        self.settle(entry, outcome, metrics);
    }

    fn wait(&mut self, why: &str, retry_after: Option<Duration>) {
        if self.pause.is_over() {
            let dir = self.collector.spool.dir().display();
            print_message(&format!("fpprof: {why}; profiles wait in {dir}"));
        }
        self.not_before = Instant::now() + self.pause.next().max(retry_after.unwrap_or_default());
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
mod tests {
    use super::*;

    /// Check that pauses double up to their limit, each random in its upper half, and restart after a success.
    #[test]
    fn pauses_grow() {
        let mut pause = Pause::default();
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            let most = Duration::from_secs(seconds);
            assert!((most / 2..=most).contains(&pause.next()));
        }
        assert!(pause.end() && pause.is_over() && !pause.end());
        assert!(pause.next() <= MIN_PAUSE);
    }
}
