//! The configuration file.

use super::labels::{self, LabelRule};
use super::s3;
use crate::http_client;
use crate::output::print_message;
use crate::values;
use crate::worker::is_privileged;
use anyhow::{Context as _, bail, ensure};
use axum::http::Uri;
use fpprof_collector::{Request, Target, n_online_cpus};
use fpprof_recording::model::{CaptureMode, Sampling};
use serde::{Deserialize, Deserializer, Serialize};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that is read unless another is given.
pub(crate) const DEFAULT_FILE: &str = "/etc/fpprof/agent.toml";
/// The highest rate, samples per second: more is too expensive for continuous profiling.
const MAX_RATE: u64 = 999;
/// The shortest interval: each one costs a file and the start of a process.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_secs(3600);
/// Less than what the agent needs at its lowest rate: it would only lower the rate.
const MIN_MEMORY: (u64, &str) = (32 << 20, "32M");
/// Less than a file.
const MIN_BYTES: (u64, &str) = (1 << 10, "1K");

/// How often the ring buffers are read: each time costs some 100 µs.
const POLL: Duration = Duration::from_secs(1);

/// Size of each CPU's ring buffer for each sample per second: 3/4 of a second of the largest usual samples. A buffer is read
/// more often when it fills up. For waits, which come in bursts, and for larger chunks, the collector chooses the size.
const RING_BYTES_PER_HZ: u64 = 48 << 10;
/// Its smallest and its largest size.
const RING_BYTES: RangeInclusive<u64> = 1 << 20..=4 << 20;
const MAX_CPUS: usize = 32;

/// The configuration of the agent. Every key has a default; an unknown key is an error.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Config {
    /// Samples per second on each CPU.
    pub(crate) rate: u64,
    /// How stacks are recorded, as in `fpprof record --call-graph`.
    call_graph: String,
    /// Whether to record kernel stacks.
    kernel_stacks: bool,
    /// Whether to show inlined functions, which costs reading debug information at the end of each interval.
    pub(crate) inlines: bool,
    /// Also record waits of at least this duration; `None` records none.
    #[serde(deserialize_with = "wait")]
    off_cpu: Option<Duration>,
    /// Time whose samples are stored together, in one file.
    #[serde(deserialize_with = "time")]
    pub(crate) interval: Duration,
    pub(crate) store: StoreConfig,
    pub(crate) http: HttpConfig,
    pub(crate) push: PushConfig,
    pub(crate) debuginfod: DebuginfodConfig,
    pub(crate) limits: Limits,
    /// Where the labels of processes come from.
    label: Vec<LabelRule>,
}

/// Where tables are kept, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct StoreConfig {
    /// Directory, an absolute path.
    pub(crate) path: PathBuf,
    /// Files older than this are removed.
    #[serde(deserialize_with = "time")]
    pub(crate) keep: Duration,
    /// When all files together exceed this many bytes, the oldest are removed.
    #[serde(deserialize_with = "size")]
    pub(crate) max_size: u64,
    /// Whether the files of an hour that is over are merged.
    pub(crate) compact: bool,
}

/// The HTTP server of metrics.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct HttpConfig {
    /// Whether metrics are served.
    pub(crate) enabled: bool,
    /// The address to listen on; must be loopback.
    pub(crate) listen: SocketAddr,
}

/// The collector or bucket that profiles are sent to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct PushConfig {
    /// Base URL of a collector, or URL of a bucket and a prefix; `None` sends nothing.
    pub(crate) url: Option<String>,
    /// What the collector accepts.
    pub(crate) protocol: Protocol,
    /// A file whose first line is sent as bearer token.
    pub(crate) token_file: Option<PathBuf>,
    /// A file with the keys for a bucket.
    pub(crate) credentials_file: Option<PathBuf>,
    /// The region of a bucket; `None` is [`s3::DEFAULT_REGION`].
    pub(crate) region: Option<String>,
    /// PEM file of the root certificates for the collector's TLS certificate; `None` uses the system's.
    pub(crate) ca_file: Option<PathBuf>,
    /// Whether to send each sample once per strategy instead of only under the default strategy.
    pub(crate) all_strategies: bool,
    /// The most bytes in the spool while the collector is unreachable.
    #[serde(deserialize_with = "size")]
    pub(crate) max_spool: u64,
}

/// The servers of missing debug information.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct DebuginfodConfig {
    /// Their base URLs, asked in this order; none by default.
    pub(crate) urls: Vec<String>,
    /// When the fetched files together exceed this many bytes, the oldest are removed.
    #[serde(deserialize_with = "size")]
    pub(crate) max_size: u64,
}

/// How profiles are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Protocol {
    /// OTLP over HTTP.
    #[default]
    Otlp,
    /// Grafana Pyroscope's `/ingest`, with profiles in pprof's format.
    Pyroscope,
    /// Tables as objects in a bucket.
    S3,
}

/// Limits of the agent's own cost.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Limits {
    /// Per cent of the CPU time of all CPUs.
    pub(crate) cpu_percent: f64,
    /// Resident memory, bytes.
    #[serde(deserialize_with = "size")]
    pub(crate) memory: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rate: 19,
            call_graph: "auto,fp".to_owned(),
            kernel_stacks: true,
            inlines: false,
            off_cpu: None,
            interval: Duration::from_secs(60),
            store: StoreConfig::default(),
            http: HttpConfig::default(),
            push: PushConfig::default(),
            debuginfod: DebuginfodConfig::default(),
            limits: Limits::default(),
            label: Vec::new(),
        }
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            path: PathBuf::from("/var/lib/fpprof"),
            keep: Duration::from_secs(7 * 24 * 3600),
            max_size: 10 << 30,
            compact: true,
        }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { enabled: true, listen: SocketAddr::from(([127, 0, 0, 1], 7474)) }
    }
}

impl Default for PushConfig {
    fn default() -> Self {
        Self {
            url: None,
            protocol: Protocol::default(),
            token_file: None,
            credentials_file: None,
            region: None,
            ca_file: None,
            all_strategies: false,
            max_spool: 256 << 20,
        }
    }
}

impl Default for DebuginfodConfig {
    fn default() -> Self {
        Self { urls: Vec::new(), max_size: 2 << 30 }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { cpu_percent: 1.0, memory: 512 << 20 }
    }
}

impl Config {
    /// The configuration in [`DEFAULT_FILE`]; `None` if there is no such file.
    ///
    /// # Errors
    /// Those of [`Self::read`].
    pub(crate) fn default_file() -> Option<anyhow::Result<Self>> {
        let path = Path::new(DEFAULT_FILE);
        path.exists().then(|| Self::read(Some(path)))
    }

    /// Reads the file, or [`DEFAULT_FILE`] if there is one, and checks it.
    ///
    /// # Errors
    /// If the file cannot be read or is invalid; the error names the key.
    pub(crate) fn read(path: Option<&Path>) -> anyhow::Result<Self> {
        let (path, is_named) = path.map_or((Path::new(DEFAULT_FILE), false), |path| (path, true));
        let text = match std::fs::read_to_string(path) {
            Err(error) if !is_named && error.kind() == io::ErrorKind::NotFound => {
                print_message(&format!("fpprof: there is no {DEFAULT_FILE}: all settings are the defaults"));
                String::new()
            }
            read => read.with_context(|| format!("cannot read the configuration {}", path.display()))?,
        };
        let config: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        config.check().with_context(|| path.display().to_string())?;
        Ok(config)
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            (1..=MAX_RATE).contains(&self.rate),
            "rate: choose 1 to {MAX_RATE} samples per second, not {}",
            self.rate
        );
        let is_interval = (MIN_INTERVAL..=MAX_INTERVAL).contains(&self.interval);
        ensure!(is_interval, "interval: choose 1s to 1h");
        ensure!(self.store.path.is_absolute(), "store.path: give an absolute path, not {}", self.store.path.display());
        ensure!(self.store.keep >= self.interval, "store.keep: must not be shorter than the interval");
        let cpu = self.limits.cpu_percent;
        ensure!(cpu > 0.0 && cpu <= 100.0, "limits.cpu-percent: choose more than 0 and at most 100");
        let least = [
            ("limits.memory", self.limits.memory, MIN_MEMORY),
            ("store.max-size", self.store.max_size, MIN_BYTES),
            ("push.max-spool", self.push.max_spool, MIN_BYTES),
        ];
        for (key, bytes, (least, name)) in least {
            ensure!(bytes >= least, "{key}: choose {name} or more");
        }
        if !self.http.listen.ip().is_loopback() {
            bail!(
                "http.listen: {} is no loopback address; metrics are served without a password, so let a proxy on this \
                 machine pass them on",
                self.http.listen
            );
        }
        self.push.check()?;
        self.debuginfod.check()?;
        labels::check(&self.label)?;
        self.call_graph()?;
        Ok(())
    }

    fn call_graph(&self) -> anyhow::Result<values::CallGraph> {
        values::sized_call_graph(&self.call_graph)
            .map_err(|error| anyhow::anyhow!("call-graph: `{}`: {error}", self.call_graph))
    }

    /// The rules for labels.
    pub(super) fn labels(&self) -> &[LabelRule] {
        &self.label
    }

    /// The request for the recorder (`fpprof_collector`).
    ///
    /// # Errors
    /// If `call-graph` is invalid.
    pub(crate) fn request(&self) -> anyhow::Result<Request> {
        let call_graph = self.call_graph()?;
        // On larger machines, and without privileges, the collector chooses a size that fits.
        let has_room = n_online_cpus() <= MAX_CPUS && is_privileged();
        let ring_bytes = self.rate.saturating_mul(RING_BYTES_PER_HZ).clamp(*RING_BYTES.start(), *RING_BYTES.end());
        Ok(Request {
            sampling: Sampling::FrequencyHz(self.rate),
            off_cpu: self.off_cpu,
            mode: call_graph.up_to(u32::MAX),
            else_mode: call_graph.else_mode(),
            kernel_stacks: self.kernel_stacks,
            environment: labels::variables(&self.label),
            only_user: fpprof_collector::user_of_file_capabilities(),
            drop_privileges: true,
            exclude_children: true,
            poll: POLL,
            ring_bytes: (call_graph.has_usual_size() && self.off_cpu.is_none() && has_room)
                .then_some(usize::try_from(ring_bytes)?),
            ..Request::new(Target::System)
        })
    }

    /// Summarises the configuration in one line.
    ///
    /// # Errors
    /// Those of [`Self::request`].
    pub(crate) fn summary(&self) -> anyhow::Result<String> {
        let mode: CaptureMode = self.request()?.mode;
        Ok(format!(
            "{} Hz, {}{}, a file every {} s in {}{}{}{}",
            self.rate,
            values::mode_name(mode),
            match self.off_cpu {
                None => String::new(),
                Some(Duration::ZERO) => " and all waits".to_owned(),
                Some(least) => format!(" and waits of {least:?} or more"),
            },
            self.interval.as_secs_f64(),
            self.store.path.display(),
            self.push.summary(),
            self.debuginfod.summary(),
            labels::summary(&self.label)
        ))
    }
}

fn has_password(url: &Uri) -> bool {
    url.authority().is_some_and(|authority| authority.as_str().contains('@'))
}

impl DebuginfodConfig {
    fn check(&self) -> anyhow::Result<()> {
        for url in &self.urls {
            let is_server = http_client::server(url).is_some_and(|uri| !has_password(&uri));
            ensure!(is_server, "debuginfod.urls: `{url}` is not an address such as https://debuginfod.debian.net");
        }
        Ok(())
    }

    /// Where missing debug information comes from, as the end of a sentence.
    fn summary(&self) -> String {
        match self.urls.is_empty() {
            true => String::new(),
            false => format!(", missing debug information from {}", self.urls.join(", ")),
        }
    }
}

impl PushConfig {
    fn check(&self) -> anyhow::Result<()> {
        let Some(url) = &self.url else {
            let none = Self { max_spool: self.max_spool, ..Self::default() };
            ensure!(
                *self == none,
                "push: the other settings need push.url, such as https://collector.example.org:4318"
            );
            return Ok(());
        };
        let Some(parsed) = http_client::server(url) else {
            bail!("push.url: `{url}` is not an address such as https://collector.example.org:4318");
        };
        let (file, key) = self.secret();
        ensure!(!has_password(&parsed), "push.url: give the password in a file, by {key}");
        if self.is_plain() && file.is_some() {
            let host = parsed.host().unwrap_or_default().trim_matches(['[', ']']);
            let is_loopback = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
            ensure!(is_loopback, "push.url: with {key} it must begin with https://, or others can read what is sent");
        }
        self.check_bucket(parsed.path())
    }

    /// Checks what is for buckets alone, and what is not for them; given the path of the URL.
    fn check_bucket(&self, path: &str) -> anyhow::Result<()> {
        if self.protocol != Protocol::S3 {
            let is_unset = self.credentials_file.is_none() && self.region.is_none();
            ensure!(is_unset, "push.credentials-file and push.region: they are for protocol `s3` alone");
            return Ok(());
        }
        s3::check_path(path)?;
        ensure!(
            self.credentials_file.is_some(),
            "push.credentials-file: give a file with the keys of the bucket, in the form of ~/.aws/credentials"
        );
        ensure!(self.token_file.is_none(), "push.token-file: a bucket has keys, in push.credentials-file");
        ensure!(!self.all_strategies, "push.all-strategies: what a bucket gets always has all strategies");
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        ensure!(self.region().chars().all(is_plain), "push.region: `{}` is not a region", self.region());
        Ok(())
    }

    /// The file with the secret that requests need, if any, and its key.
    pub(super) fn secret(&self) -> (Option<&Path>, &'static str) {
        match self.protocol {
            Protocol::Otlp | Protocol::Pyroscope => (self.token_file.as_deref(), "push.token-file"),
            Protocol::S3 => (self.credentials_file.as_deref(), "push.credentials-file"),
        }
    }

    /// The region of the bucket.
    pub(super) fn region(&self) -> &str {
        self.region.as_deref().unwrap_or(s3::DEFAULT_REGION)
    }

    /// The URL that requests are sent to.
    pub(super) fn endpoint(&self) -> Option<String> {
        let path = match self.protocol {
            Protocol::Otlp => "/v1development/profiles",
            Protocol::Pyroscope => "/ingest",
            Protocol::S3 => "",
        };
        self.url.as_ref().map(|url| format!("{}{path}", url.trim_end_matches('/')))
    }

    /// What is sent and where, as the end of a sentence.
    fn summary(&self) -> String {
        let Some(endpoint) = self.endpoint() else { return String::new() };
        let strategies = if self.all_strategies { "all strategies" } else { "the default strategy" };
        match self.protocol {
            Protocol::Otlp => format!(", profiles of {strategies} sent by OTLP to {endpoint}"),
            Protocol::Pyroscope => format!(", profiles of {strategies} sent as pprof to Pyroscope at {endpoint}"),
            Protocol::S3 => format!(", the same files put into the bucket at {endpoint}"),
        }
    }

    fn uri(&self) -> Option<Uri> {
        self.url.as_ref()?.parse().ok()
    }

    /// Whether requests are sent without TLS.
    pub(super) fn is_plain(&self) -> bool {
        self.uri().is_some_and(|uri| uri.scheme_str() == Some("http"))
    }
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let wrong =
        || serde::de::Error::custom(format!("`{text}` is not a time; expected 30s, 10min, 1h or 7d, for instance"));
    values::time(&text).ok_or_else(wrong)
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    values::size(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn wait<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    values::wait(&String::deserialize(deserializer)?).map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> anyhow::Result<Config> {
        let config: Config = toml::from_str(text)?;
        config.check()?;
        Ok(config)
    }

    /// Check that an empty file is a configuration, and that every key can be set.
    #[test]
    fn keys_can_be_set() {
        assert_eq!(checked("").expect("defaults"), Config::default());
        let config = checked(
            "rate = 99\ncall-graph = \"both,32K\"\nkernel-stacks = false\noff-cpu = \"10ms\"\ninterval = \"10s\"\n\
             [store]\npath = \"/srv/p\"\nkeep = \"1d\"\nmax-size = \"1G\"\ncompact = false\n\
             [http]\nenabled = false\nlisten = \"[::1]:99\"\n[push]\nurl = \"http://[::1]:4318\"\ntoken-file = \"/t\"\n\
             protocol = \"pyroscope\"\nca-file = \"/c\"\nall-strategies = true\nmax-spool = \"1M\"\n[debuginfod]\nurls = [\"https://d\"]\nmax-size = \"1G\"\n[limits]\ncpu-percent = 0.5\nmemory = \"200M\"\n",
        )
        .expect("a configuration");
        let request = config.request().expect("a request");
        assert_eq!(request.mode, CaptureMode::Both { stack_bytes: 32 << 10, every: 1 });
        assert_eq!((request.off_cpu, request.kernel_stacks), (Some(Duration::from_millis(10)), false));
        assert_eq!((config.store.keep, config.store.max_size), (Duration::from_secs(86_400), 1 << 30));
        assert_eq!((config.limits.memory, config.http.enabled, config.store.compact), (200 << 20, false, false));
        assert_eq!((&config.debuginfod.urls[..], config.debuginfod.max_size), (&["https://d".to_owned()][..], 1 << 30));
        let [url, token_file, ca_file] = ["http://[::1]:4318", "/t", "/c"];
        let push = PushConfig {
            url: Some(url.to_owned()),
            protocol: Protocol::Pyroscope,
            token_file: Some(token_file.into()),
            credentials_file: None,
            region: None,
            ca_file: Some(ca_file.into()),
            all_strategies: true,
            max_spool: 1 << 20,
        };
        assert_eq!(config.push, push);
        let summary = config.summary().expect("a summary");
        let sent = "profiles of all strategies sent as pprof to Pyroscope at http://[::1]:4318/ingest";
        assert!(summary.contains(sent), "{summary}");
    }

    /// Check that the shipped file has every key and states the defaults.
    #[test]
    fn the_shipped_file_has_the_defaults() {
        let text = include_str!("../../packaging/agent.toml");
        assert_eq!(checked(text).expect("a configuration"), Config::default());
        let with = |keys: &[&str], text: &str| {
            keys.iter().fold(text.to_owned(), |text, key| {
                let (off, on) = (format!("\n# {key} = "), format!("\n{key} = "));
                assert_eq!(text.matches(&off).count(), 1, "{key}");
                text.replace(&off, &on)
            })
        };
        let bucket = text
            .replace("protocol = \"otlp\"", "protocol = \"s3\"")
            .replace("# url = \"https://collector.example.org:4318\"", "# url = \"https://s3.example.org/bucket\"");
        let push = checked(&with(&["url", "credentials-file", "region"], &bucket)).expect("a configuration").push;
        assert_eq!((push.region.as_deref(), push.credentials_file.is_some()), (Some(s3::DEFAULT_REGION), true));
        let whole = with(&["off-cpu", "url", "token-file", "ca-file"], text);
        assert_eq!(whole.matches("\n# [[label]]\n").count(), 2);
        let whole = ["[[label]]", "name = ", "environment = ", "cgroup = "]
            .iter()
            .fold(whole, |text, line| text.replace(&format!("\n# {line}"), &format!("\n{line}")));
        let config = checked(&whole).expect("a configuration");
        assert_eq!((config.label.len(), config.request().expect("a request").environment.len()), (2, 1));
        assert_eq!(config.off_cpu, Some(Duration::from_millis(10)));
        assert!(config.push.url.is_some() && config.push.token_file.is_some() && config.push.ca_file.is_some());
        assert_eq!(whole.lines().filter(|line| line.contains(" = ")).count(), 28);
    }

    /// Check that errors name the invalid key.
    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("rate = 0", "rate: choose 1 to 999"),
            ("rate = 1000", "rate: choose 1 to 999"),
            ("freq = 19", "unknown field `freq`"),
            ("interval = \"60\"", "not a time"),
            ("interval = \"10ms\"", "not a time"),
            ("call-graph = \"lbr\"", "call-graph: `lbr`"),
            ("[store]\npath = \"x\"", "store.path"),
            ("[store]\nkeep = \"1s\"", "store.keep"),
            ("[store]\nmax-size = \"much\"", "not a size"),
            ("[http]\nlisten = \"0.0.0.0:80\"", "no loopback address"),
            ("[limits]\ncpu-percent = 0.0", "limits.cpu-percent"),
            ("[push]\nurl = \"collector:4318\"", "push.url: `collector:4318` is not an address"),
            ("[push]\nurl = \"https://collector/?tenant=1\"", "is not an address"),
            ("[push]\nurl = \"https://collector:99999\"", "is not an address"),
            ("[push]\nurl = \"HTTP://collector\"\ntoken-file = \"/t\"", "must begin with https://"),
            ("[push]\nurl = \"https://me:secret@collector\"", "push.token-file"),
            ("[push]\nurl = \"http://collector\"\ntoken-file = \"/t\"", "must begin with https://"),
            ("[push]\nall-strategies = true", "the other settings need push.url"),
            ("[push]\nprotocol = \"pyroscope\"", "the other settings need push.url"),
            ("[push]\nprotocol = \"pprof\"", "unknown variant `pprof`, expected one of `otlp`, `pyroscope`, `s3`"),
            ("[push]\nurl = \"http://collector\"\nregion = \"eu\"", "for protocol `s3` alone"),
            ("[debuginfod]\nurls = [\"debuginfod.debian.net\"]", "debuginfod.urls: `debuginfod.debian.net` is not"),
            ("[[label]]\nname = \"a\"", "label `a`: give its source"),
            ("[[label]]\nname = \"a\"\nenv = \"A\"", "unknown field `env`"),
        ];
        let of_bucket = [
            ("https://s3", "", "give the bucket, too"),
            ("https://s3/b//c", "", "between single `/`"),
            ("https://s3/b/%20", "", "must have letters"),
            ("https://s3/b", "", "give a file with the keys"),
            ("https://me:secret@s3/b", "credentials-file = \"/k\"", "by push.credentials-file"),
            ("http://s3/b", "credentials-file = \"/k\"", "must begin with https://"),
            ("https://s3/b", "credentials-file = \"/k\"\ntoken-file = \"/t\"", "a bucket has keys"),
            ("https://s3/b", "credentials-file = \"/k\"\nall-strategies = true", "always has all strategies"),
            ("https://s3/b", "credentials-file = \"/k\"\nregion = \"a b\"", "`a b` is not a region"),
        ];
        let of_bucket = of_bucket
            .map(|(url, keys, message)| (format!("[push]\nprotocol = \"s3\"\nurl = \"{url}\"\n{keys}"), message));
        let cases = cases.into_iter().map(|(text, message)| (text.to_owned(), message));
        for (text, message) in cases.chain(of_bucket) {
            let error = format!("{:#}", checked(&text).expect_err(&text));
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
