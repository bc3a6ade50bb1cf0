//! Fetches programs and debug information from debuginfod servers, by build id, into the cache that all debuginfod
//! clients share.
//!
//! # Sources
//! debuginfod(8), "WEBAPI": `/buildid/BUILDID/debuginfo` and `/executable`; `debuginfod_find_debuginfo(3)`: environment variables,
//! and the cache's `BUILDID/debuginfo` and `BUILDID/executable`.

use crate::exit::Usage;
use crate::http_client;
use crate::output::{Pending, print_message};
use anyhow::Context as _;
use axum::http::StatusCode;
use fpprof_analysis::modules::FileModules;
use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use ureq::tls::RootCerts;

/// Time limit for a server that sends nothing, unless `DEBUGINFOD_TIMEOUT` is set.
const TIMEOUT_S: u64 = 90;
/// Time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Files of this size or larger are not kept.
const MAX_FILE_BYTES: u64 = 4 << 30;

/// A client of the servers in `DEBUGINFOD_URLS`.
#[derive(Debug)]
pub(crate) struct Debuginfod {
    cache: PathBuf,
    client: ureq::Agent,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Servers that have not failed yet.
    urls: Vec<String>,
    /// Files that were requested; they are not requested again.
    asked: BTreeSet<PathBuf>,
}

/// Finds modules on this machine and in the cache of debuginfod clients.
pub(crate) fn local_files() -> FileModules {
    let files = FileModules::new();
    match cache() {
        Some(cache) => files.with_debuginfod_cache(cache),
        None => files,
    }
}

/// The cache directory, as debuginfod clients choose it; `None` if no variable names one.
fn cache() -> Option<PathBuf> {
    let of = |variable: &str| std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let below = || {
        let caches = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
        caches.map(|dir| dir.join("debuginfod_client"))
    };
    of("DEBUGINFOD_CACHE_PATH").or_else(below)
}

fn urls() -> Vec<String> {
    let urls = std::env::var("DEBUGINFOD_URLS").unwrap_or_default();
    urls.split_whitespace().map(|url| url.trim_end_matches('/').to_owned()).collect()
}

/// Checks that there are servers and a cache directory.
///
/// # Errors
/// If one is missing; the message says which variable to set.
pub(crate) fn check() -> anyhow::Result<()> {
    if urls().is_empty() {
        let words = "--debuginfod: set DEBUGINFOD_URLS to the servers to ask, such as https://debuginfod.debian.net or \
                     https://debuginfod.elfutils.org";
        return Err(Usage(words.to_owned()).into());
    }
    cache().map(drop).ok_or_else(|| Usage("--debuginfod: set DEBUGINFOD_CACHE_PATH to a directory".to_owned()).into())
}

/// The path below a root directory where `--symfs` looks for a debug file of the cache, by its build id. `None` for
/// other files.
pub(crate) fn place_below_root(path: &Path) -> Option<PathBuf> {
    let (build_id, kind) = parts(&cache()?, path)?;
    let (dir, rest) = build_id.split_at_checked(2)?;
    (kind == "debuginfo").then(|| format!("usr/lib/debug/.build-id/{dir}/{rest}.debug").into())
}

/// Parses the path of a file in the cache into build id and kind. Strict, since the request may come from a process
/// that hostile files have taken over.
fn parts<'p>(cache: &Path, path: &'p Path) -> Option<(&'p str, &'p str)> {
    let mut parts = path.strip_prefix(cache).ok()?.iter().map(|part| part.to_str());
    let (build_id, kind) = (parts.next()??, parts.next()??);
    let is_build_id = (8..=128).contains(&build_id.len()) && build_id.bytes().all(|c| c.is_ascii_hexdigit());
    let is_kind = matches!(kind, "debuginfo" | "executable");
    (is_build_id && is_kind && parts.next().is_none()).then_some((build_id, kind))
}

impl Debuginfod {
    /// Creates a client; `None` if there is no cache directory.
    pub(crate) fn new() -> Option<Self> {
        let timeout = std::env::var("DEBUGINFOD_TIMEOUT").ok().and_then(|seconds| seconds.parse().ok());
        let timeout = Some(Duration::from_secs(timeout.unwrap_or(TIMEOUT_S)));
        let config = http_client::client(RootCerts::PlatformVerifier)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(timeout)
            .timeout_per_read(timeout)
            .build();
        let state = Mutex::new(State { urls: urls(), asked: BTreeSet::new() });
        Some(Self { cache: cache()?, client: config.new_agent(), state })
    }

    /// Fetches a file of the cache unless it exists; does nothing for other paths. Only one thread fetches at a time.
    ///
    /// Each server is asked in turn until one has the file. A server that fails is not asked again: each failure may
    /// cost the whole timeout.
    pub(crate) fn fetch(&self, path: &Path) {
        let Some((build_id, kind)) = parts(&self.cache, path) else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if path.symlink_metadata().is_ok() || !state.asked.insert(path.to_owned()) {
            return;
        }
        let mut is_found = false;
        state.urls.retain(|url| {
            if is_found {
                return true;
            }
            match self.download(&format!("{url}/buildid/{build_id}/{kind}"), path) {
                Ok(None) => true,
                Ok(Some(bytes)) => {
                    is_found = true;
                    let kilobytes = bytes.div_ceil(1000);
                    print_message(&format!("fpprof: fetched {kind} {build_id} from {url}, {kilobytes} kB"));
                    true
                }
                Err(error) => {
                    print_message(&format!("fpprof: {url}: {error:#}; it is not asked again"));
                    false
                }
            }
        });
    }

    /// Downloads a file and returns its size; `None` if the server does not have it.
    fn download(&self, url: &str, path: &Path) -> anyhow::Result<Option<u64>> {
        let mut response = self.client.get(url).call()?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(None),
            status => anyhow::bail!("it answers {status}"),
        }
        let dir = path.parent().context("a path in the cache")?;
        DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(|| dir.display().to_string())?;
        let (mut file, pending) = Pending::create(path)?;
        // A truncated file could not be recognised later, so it must not be committed.
        let bytes = io::copy(&mut response.body_mut().as_reader().take(MAX_FILE_BYTES), &mut file)?;
        anyhow::ensure!(bytes < MAX_FILE_BYTES, "the file has more than {} GiB", MAX_FILE_BYTES >> 30);
        pending.commit()?;
        Ok(Some(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
