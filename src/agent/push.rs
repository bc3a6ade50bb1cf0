//! Sends what waits in the spool to a collector, over OTLP/HTTP: a thread of its own, so that nothing waits for the network.
//!
//! A request is removed from the spool once it has been answered. Where the answer is lost it is sent again, the same bytes: the
//! profiles in it have the same ids.
//!
//! # Sources
//! OTLP 1.10, "OTLP/HTTP": <https://opentelemetry.io/docs/specs/otlp/#otlphttp>

use super::config::{Config, PushConfig};
use super::metrics::Metrics;
use super::server::drop_capabilities;
use super::spool::{Entry, Spool};
use super::store::Store;
use crate::output::print_message;
use anyhow::{Context as _, ensure};
use axum::http::{StatusCode, header};
use fpprof_reports::profile::otlp;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// Where collectors take profiles.
const PATH: &str = "/v1development/profiles";
/// How long a request may take, with its answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// And when the agent ends.
const LAST_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the agent waits for the last requests.
const END: Duration = Duration::from_secs(2);
/// The first pause after a failure, and the longest; each is twice the one before.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause that a collector may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);
/// Of an answer.
const MAX_ANSWER_BYTES: u64 = 64 << 10;

/// The thread, as the rest of the agent sees it.
#[derive(Debug)]
pub(super) struct Pusher {
    orders: Sender<Order>,
    ended: Receiver<()>,
}

#[derive(Debug)]
enum Order {
    /// There is something new in the spool.
    Look,
    /// From now on to this collector.
    To(Option<Collector>),
    End,
}

/// A collector, and what waits for it.
#[derive(Debug, Clone)]
pub(super) struct Collector {
    url: String,
    token_file: Option<PathBuf>,
    client: ureq::Agent,
    pub(super) spool: Arc<Spool>,
    /// What is new waits up to so long, so that a fleet whose intervals end at once does not send at once.
    spread: Duration,
}

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Accepted,
    /// Some of its profiles are refused.
    PartlyRefused(String),
    /// The request is at fault, not the collector.
    Refused(String),
    /// The collector did not take it, and perhaps says when to come again.
    NotNow(String, Option<Duration>),
}

impl Pusher {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there is no room for another.
    pub(super) fn start(metrics: Arc<Metrics>) -> io::Result<Self> {
        let ((orders, receiver), (end, ended)) = (channel(), channel());
        std::thread::Builder::new().name("fpprof-push".to_owned()).spawn(move || {
            // What a collector sends is parsed here.
            drop_capabilities("the thread that sends profiles");
            Pushing { metrics, to: None }.run(&receiver);
            let _ = end.send(());
        })?;
        Ok(Self { orders, ended })
    }

    /// From now on profiles go to this collector, or to none.
    pub(super) fn send_to(&self, collector: Option<Collector>) {
        // The thread lives as long as this does.
        let _ = self.orders.send(Order::To(collector));
    }

    /// There is something new in the spool.
    pub(super) fn look(&self) {
        let _ = self.orders.send(Order::Look);
    }

    /// Sends what it can in a moment; the rest stays in the spool.
    pub(super) fn end(self) {
        let _ = self.orders.send(Order::End);
        let _ = self.ended.recv_timeout(END);
    }
}

impl Collector {
    /// The collector of this configuration; `None` if it names none.
    ///
    /// # Errors
    /// If the files that it names cannot be read, or the spool cannot be opened.
    pub(super) fn new(config: &Config, store: &Store) -> anyhow::Result<Option<Self>> {
        let Config { push: config, interval, .. } = config;
        let Some(url) = &config.url else { return Ok(None) };
        check(config)?;
        Ok(Some(Self {
            url: format!("{}{PATH}", url.trim_end_matches('/')),
            token_file: config.token_file.clone(),
            client: client(config)?,
            spool: Arc::new(Spool::open(store, config.max_spool)?),
            spread: (*interval / 4).min(Duration::from_secs(15)),
        }))
    }

    fn post(&self, body: &[u8], timeout: Duration) -> Answer {
        match self.answer(body, timeout) {
            Ok(answer) => answer,
            Err(error) => Answer::NotNow(format!("{}: {error:#}", self.url), None),
        }
    }

    fn answer(&self, body: &[u8], timeout: Duration) -> anyhow::Result<Answer> {
        let mut request = self
            .client
            .post(&self.url)
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::CONTENT_ENCODING, "gzip");
        if let Some(file) = &self.token_file {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", read_token(file)?));
        }
        let mut response = request.config().timeout_global(Some(timeout)).build().send(body)?;
        let (status, headers) = (response.status(), response.headers());
        let retry_after = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let retry_after = retry_after.map(|s| Duration::from_secs(s).min(MAX_RETRY_AFTER));
        let what = || format!("{} answers {status}", self.url);
        Ok(match status {
            status if status.is_success() => {
                let answer = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec();
                // That it is accepted is known already.
                match answer.ok().and_then(|answer| otlp::rejected(&answer)) {
                    Some((n, why)) => Answer::PartlyRefused(format!("{} refuses {n} profiles: {why}", self.url)),
                    None => Answer::Accepted,
                }
            }
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY => Answer::Refused(what()),
            // OTLP would have others than 429, 502, 503 and 504 not sent again. But a token or a path that is wrong is a mistake of
            // somebody who will mend it, and until then there is room in the spool.
            _ => Answer::NotNow(what(), retry_after),
        })
    }
}

/// Checks the files that a configuration names.
///
/// # Errors
/// If they cannot be read, or have nothing in them.
pub(crate) fn check(config: &PushConfig) -> anyhow::Result<()> {
    client(config)?;
    config.token_file.as_deref().map_or(Ok(()), |file| read_token(file).map(drop))
}

/// Without redirects, which would send the token elsewhere.
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
    let config = ureq::Agent::config_builder()
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        .user_agent(concat!("fpprof/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .max_redirects(0)
        .build();
    Ok(config.new_agent())
}

/// The first line of the file, read for each request: tokens are replaced.
fn read_token(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("push.token-file {}", file.display()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    ensure!(!token.is_empty(), "push.token-file {}: its first line is empty", file.display());
    Ok(token.to_owned())
}

/// What the thread knows.
struct Pushing {
    metrics: Arc<Metrics>,
    to: Option<Active>,
}

struct Active {
    collector: Collector,
    pause: Pause,
    /// Nothing is sent before.
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
                    self.to = collector.map(Active::new);
                    self.show();
                }
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return self.last(),
                Err(RecvTimeoutError::Timeout) => self.send_one(TIMEOUT),
            }
        }
    }

    /// Sends what it can in a moment, unless the collector has not answered the last time.
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
        match body {
            Ok(body) => match to.collector.post(&body, timeout) {
                Answer::Accepted => to.answered(&entry, "accepted", None, &self.metrics),
                Answer::PartlyRefused(why) => to.answered(&entry, "partly_refused", Some(&why), &self.metrics),
                Answer::Refused(why) => to.answered(&entry, "refused", Some(&why), &self.metrics),
                Answer::NotNow(why, retry_after) => {
                    to.wait(&why, retry_after);
                    to.collector.spool.give_back(entry);
                    self.metrics.add_push_retry();
                }
            },
            // An agent before has sent it.
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
        self.metrics.set_spool(size.unwrap_or_default());
    }
}

impl Active {
    fn new(collector: Collector) -> Self {
        Self { collector, pause: Pause::default(), not_before: Instant::now(), has_refused: false }
    }

    /// Chooses when to send what is new.
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

    /// Nothing more becomes of a request.
    fn settle(&self, entry: &Entry, outcome: &str, metrics: &Metrics) {
        metrics.add_pushed(outcome, entry.samples);
        if let Err(error) = self.collector.spool.remove(entry) {
            print_message(&format!("fpprof: {error}; it is sent again when the agent starts again"));
        }
    }
}

/// How long to wait after failures in a row.
#[derive(Debug, Default)]
struct Pause(Option<Duration>);

impl Pause {
    /// At random between half of it and all of it, so that a fleet does not come back at once.
    fn next(&mut self) -> Duration {
        let pause = self.0.map_or(MIN_PAUSE, |pause| (pause * 2).min(MAX_PAUSE));
        self.0 = Some(pause);
        pause.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Whether there was one.
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

    /// Check that pauses double up to their limit, each at random in its upper half, and begin anew after a success.
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
