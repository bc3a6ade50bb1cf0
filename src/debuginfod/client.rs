//! The client of debuginfod servers.

use crate::http_client;
use crate::output::{Pending, print_message};
use crate::worker::Older;
use anyhow::Context as _;
use axum::http::StatusCode;
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use ureq::tls::RootCerts;

/// Time limit for a server that sends nothing, unless `DEBUGINFOD_TIMEOUT` is set.
pub(super) const TIMEOUT: Duration = Duration::from_secs(90);
/// Time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The most requested files that are remembered.
const MAX_ASKED: usize = 1 << 16;

/// A client of debuginfod servers.
#[derive(Debug)]
pub(crate) struct Debuginfod {
    pub(super) cache: PathBuf,
    client: ureq::Agent,
    max_file_bytes: u64,
    again: Option<Again>,
    state: Mutex<State>,
}

/// After which time something is requested again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Again {
    /// From a server that failed.
    pub(super) server: Duration,
    /// A file that no server has.
    pub(super) file: Duration,
}

#[derive(Debug)]
struct State {
    servers: Vec<Server>,
    /// Files that were requested, and when they may be requested again; `None` is never.
    asked: BTreeMap<PathBuf, Option<Instant>>,
}

#[derive(Debug)]
struct Server {
    url: String,
    failed: Option<Instant>,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetched {
    /// Nothing was requested: the file is there, or was requested before.
    NotAsked,
    Found,
    /// No server has it.
    Missing,
    /// No server that could be reached has it.
    Failed,
}

impl Debuginfod {
    pub(super) fn new(
        urls: &[String],
        cache: PathBuf,
        timeout: Duration,
        max_file_bytes: u64,
        again: Option<Again>,
    ) -> Self {
        let timeout = Some(timeout);
        let config = http_client::client(RootCerts::PlatformVerifier)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(timeout)
            .timeout_per_read(timeout)
            .build();
        let server = |url: &String| Server { url: url.trim_end_matches('/').to_owned(), failed: None };
        let state = Mutex::new(State { servers: urls.iter().map(server).collect(), asked: BTreeMap::new() });
        Self { cache, client: config.new_agent(), max_file_bytes, again, state }
    }

    /// Fetches a file of the cache unless it exists; does nothing for other paths. Only one thread fetches at a time.
    ///
    /// Each server is asked in turn until one has the file. A server that fails is not asked again for a while, or ever: each
    /// failure may cost the whole timeout.
    pub(super) fn fetch(&self, path: &Path) -> Fetched {
        let Some((build_id, kind)) = parts(&self.cache, path) else { return Fetched::NotAsked };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { servers, asked } = &mut *state;
        let now = Instant::now();
        asked.retain(|_, again| again.is_none_or(|again| again > now));
        if path.symlink_metadata().is_ok() || asked.contains_key(path) {
            return Fetched::NotAsked;
        }
        let mut fetched = Fetched::Missing;
        for server in servers {
            let is_over = |since: Instant| self.again.is_some_and(|again| now.duration_since(since) >= again.server);
            if !server.failed.is_none_or(is_over) {
                fetched = Fetched::Failed;
                continue;
            }
            let url = &server.url;
            match self.download(&format!("{url}/buildid/{build_id}/{kind}"), path) {
                Ok(None) => {}
                Ok(Some(bytes)) => {
                    let kilobytes = bytes.div_ceil(1000);
                    print_message(&format!("fpprof: fetched {kind} {build_id} from {url}, {kilobytes} kB"));
                    fetched = Fetched::Found;
                    break;
                }
                Err(error) => {
                    let again = self.again.map_or("not asked again".to_owned(), |again| asked_again_in(again.server));
                    print_message(&format!("fpprof: {url}: {error:#}; it is {again}"));
                    (server.failed, fetched) = (Some(Instant::now()), Fetched::Failed);
                }
            }
        }
        let pause = self.again.map(|again| if fetched == Fetched::Failed { again.server } else { again.file });
        if asked.len() >= MAX_ASKED {
            asked.clear();
        }
        asked.insert(path.to_owned(), pause.map(|pause| Instant::now() + pause));
        fetched
    }

    /// Downloads a file and returns its size; `None` if the server does not have it, or if it is too large.
    fn download(&self, url: &str, path: &Path) -> anyhow::Result<Option<u64>> {
        let mut response = self.client.get(url).call()?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(None),
            status => anyhow::bail!("it answers {status}"),
        }
        let dir = path.parent().context("a path in the cache")?;
        DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(|| dir.display().to_string())?;
        let (mut file, pending) = Pending::create(path, Older::Replaced)?;
        // A truncated file could not be recognised later, so it must not be committed.
        let most = self.max_file_bytes;
        let bytes = io::copy(&mut response.body_mut().as_reader().take(most.saturating_add(1)), &mut file)?;
        if bytes > most {
            print_message(&format!("fpprof: {url}: it has more than {} MB, and is left out", most / 1_000_000));
            return Ok(None);
        }
        pending.commit()?;
        Ok(Some(bytes))
    }
}

fn asked_again_in(pause: Duration) -> String {
    format!("asked again in {} minutes", pause.as_secs() / 60)
}

/// Parses the path of a file in the cache into build id and kind. Strict, since the request may come from a process
/// that hostile files have taken over.
pub(super) fn parts<'p>(cache: &Path, path: &'p Path) -> Option<(&'p str, &'p str)> {
    let mut parts = path.strip_prefix(cache).ok()?.iter().map(|part| part.to_str());
    let (build_id, kind) = (parts.next()??, parts.next()??);
    let is_build_id = (8..=128).contains(&build_id.len()) && build_id.bytes().all(|c| c.is_ascii_hexdigit());
    let is_kind = matches!(kind, "debuginfo" | "executable");
    (is_build_id && is_kind && parts.next().is_none()).then_some((build_id, kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    /// A server that gives these answers, one to each connection.
    fn serve(answers: Vec<String>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        std::thread::spawn(move || {
            for (answer, stream) in answers.into_iter().zip(listener.incoming().flatten()) {
                let mut stream = BufReader::new(stream);
                let head = stream.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty());
                head.for_each(drop);
                let _ = stream.get_mut().write_all(answer.as_bytes());
            }
        });
        url
    }

    fn answer(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
    }

    /// Check that a server that fails is asked again after the pause, that what it does not have and what is too large is not,
    /// and that nothing is left of a file that is too large.
    #[test]
    fn failures_and_missing_files_differ() {
        let (failing, missing, large) =
            (answer("500 Error", ""), answer("404 Not Found", ""), answer("200 OK", "12345"));
        let url = serve(vec![failing.clone(), answer("200 OK", "1234"), missing, large, failing]);
        let cache = tempfile::tempdir().expect("a directory");
        let client = |again| Debuginfod::new(&[format!("{url}/")], cache.path().to_owned(), TIMEOUT, 4, again);
        let patient = client(Some(Again { server: Duration::ZERO, file: Duration::from_secs(3600) }));
        let file = |id: &str| cache.path().join(id).join("debuginfo");
        let (first, second, third) = (file("0123456789abcde0"), file("0123456789abcde1"), file("0123456789abcde2"));
        assert_eq!([(); 3].map(|()| patient.fetch(&first)), [Fetched::Failed, Fetched::Found, Fetched::NotAsked]);
        assert_eq!(std::fs::read(&first).expect("a file"), b"1234");
        assert_eq!([(); 2].map(|()| patient.fetch(&second)), [Fetched::Missing, Fetched::NotAsked]);
        assert_eq!([(); 2].map(|()| patient.fetch(&third)), [Fetched::Missing, Fetched::NotAsked]);
        let left = std::fs::read_dir(third.parent().expect("a directory")).expect("entries").count();
        assert_eq!(left, 0);
        // Without a pause, a server that fails is asked only once, and so is each file.
        let once = client(None);
        assert_eq!(
            [&second, &second, &third].map(|path| once.fetch(path)),
            [Fetched::Failed, Fetched::NotAsked, Fetched::Failed]
        );
    }

    /// Check that only files of the cache are requested, and only by build id.
    #[test]
    fn only_build_ids_are_asked_for() {
        let cache = Path::new("/cache");
        let id = "0123456789abcdef";
        let path = format!("/cache/{id}/debuginfo");
        assert_eq!(parts(cache, Path::new(&path)), Some((id, "debuginfo")));
        for path in [
            format!("/cache/{id}/source"),
            format!("/cache/{id}/debuginfo/x"),
            format!("/cache/../{id}/debuginfo"),
            format!("/other/{id}/debuginfo"),
            "/cache/0123456789abcdeg/debuginfo".to_owned(),
            "/cache/abc/debuginfo".to_owned(),
        ] {
            assert_eq!(parts(cache, Path::new(&path)), None, "{path}");
        }
    }
}
