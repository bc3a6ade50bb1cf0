//! Fetches programs and debug information from debuginfod servers, by build id, into the cache that all debuginfod
//! clients share or, for the agent, into one of its own.
//!
//! # Sources
//! debuginfod(8), "WEBAPI": `/buildid/BUILDID/debuginfo` and `/executable`; `debuginfod_find_debuginfo(3)`: environment variables,
//! and the cache's `BUILDID/debuginfo` and `BUILDID/executable`.

mod background;
mod client;

use crate::exit::Usage;
pub(crate) use background::{Background, Servers};
use client::{Debuginfod, TIMEOUT, parts};
use fpprof_analysis::modules::FileModules;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// perf's build-id cache, in the home directory (perf-config(1), `buildid.dir`).
const PERF_CACHE: &str = ".debug";
/// Files larger than this are not kept.
const MAX_FILE_BYTES: u64 = 4 << 30;

/// Fetches missing files, for somebody who waits for them or not.
#[derive(Debug, Clone)]
pub(crate) enum Fetcher {
    /// A request ends when the file is there, or is known to be nowhere.
    Waiting(Arc<Debuginfod>),
    /// A request ends at once; the file is there later.
    Background(Arc<Background>),
}

/// Finds modules on this machine, in the cache of debuginfod clients, and in perf's.
pub(crate) fn local_files() -> FileModules {
    let mut files = FileModules::new();
    if let Some(cache) = cache() {
        files = files.with_debuginfod_cache(cache);
    }
    if let Some(home) = directory_of("HOME") {
        files = files.with_perf_cache(home.join(PERF_CACHE));
    }
    files
}

/// The directory that an environment variable names.
fn directory_of(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The cache directory, as debuginfod clients choose it; `None` if no variable names one.
fn cache() -> Option<PathBuf> {
    let below = || {
        let caches = directory_of("XDG_CACHE_HOME").or_else(|| directory_of("HOME").map(|home| home.join(".cache")));
        caches.map(|dir| dir.join("debuginfod_client"))
    };
    directory_of("DEBUGINFOD_CACHE_PATH").or_else(below)
}

fn urls() -> Vec<String> {
    let urls = std::env::var("DEBUGINFOD_URLS").unwrap_or_default();
    // elfutils' words about signatures (`ima:enforcing`), which distributions put between the addresses.
    urls.split_whitespace().filter(|word| !word.starts_with("ima:")).map(str::to_owned).collect()
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

/// The path below a root directory where `--symfs` looks for a file of perf's cache, or a debug file of the other, by its
/// build id. `None` for other files.
pub(crate) fn place_below_root(path: &Path) -> Option<PathBuf> {
    let in_home = directory_of("HOME").and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned));
    if let Some(kept) = in_home.filter(|path| path.starts_with(PERF_CACHE)) {
        return Some(kept);
    }
    let (build_id, kind) = parts(&cache()?, path)?;
    let (dir, rest) = build_id.split_at_checked(2)?;
    (kind == "debuginfo").then(|| format!("usr/lib/debug/.build-id/{dir}/{rest}.debug").into())
}

impl Fetcher {
    /// Waits for files from the servers in `DEBUGINFOD_URLS`; `None` if there is no cache directory.
    pub(crate) fn of_environment() -> Option<Self> {
        let timeout = std::env::var("DEBUGINFOD_TIMEOUT").ok().and_then(|seconds| seconds.parse().ok());
        let timeout = timeout.map_or(TIMEOUT, Duration::from_secs);
        Some(Self::Waiting(Arc::new(Debuginfod::new(&urls(), cache()?, timeout, MAX_FILE_BYTES, None))))
    }

    /// Fetches a file of the cache; does nothing for other paths.
    pub(crate) fn fetch(&self, path: &Path) {
        match self {
            Self::Waiting(debuginfod) => _ = debuginfod.fetch(path),
            Self::Background(background) => background.want(path),
        }
    }
}
