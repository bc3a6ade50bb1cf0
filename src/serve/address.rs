//! Addresses the page is served at.

use crate::http::Listener;
use anyhow::{Context as _, ensure};
use rustix::fs::Mode;
use rustix::process::umask;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// An address to listen at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listen {
    /// A port.
    Tcp(SocketAddr),
    /// A Unix socket in the file system.
    Unix(PathBuf),
}

/// Parses `IP:PORT`, `[IPv6]:PORT`, `localhost:PORT` or `unix:PATH`.
///
/// # Errors
/// If it is none of these; the message says what to do instead.
pub(crate) fn listen(text: &str) -> Result<Listen, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        let is_path = !path.is_empty();
        return is_path.then(|| Listen::Unix(path.into())).ok_or_else(|| "expected unix:PATH".to_owned());
    }
    let spelled = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    let address = spelled.parse();
    address
        .map(Listen::Tcp)
        .map_err(|_error| "expected IP:PORT, [IPv6]:PORT or unix:PATH, with port 0 for any".to_owned())
}

/// A bound address; dropping it removes the file of a Unix socket.
#[derive(Debug)]
pub(super) enum Bound {
    Tcp(std::net::TcpListener),
    /// With its path, and what the path named when it was bound.
    Unix(UnixListener, PathBuf, Option<(u64, u64)>),
}

impl Bound {
    /// Starts to listen. Call it before there are threads: it changes the umask.
    ///
    /// # Errors
    /// If the address is taken.
    pub(super) fn new(listen: &Listen) -> anyhow::Result<Self> {
        match listen {
            Listen::Tcp(address) => {
                let listener = std::net::TcpListener::bind(address).with_context(|| format!("--listen {address}"))?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(listener))
            }
            Listen::Unix(path) => {
                let listener = bind_unix(path).with_context(|| format!("--listen unix:{}", path.display()))?;
                listener.set_nonblocking(true)?;
                Ok(Self::Unix(listener, path.clone(), identity(path)))
            }
        }
    }

    /// Registers the listener with the current tokio runtime.
    ///
    /// # Errors
    /// If it cannot be registered.
    pub(super) fn listener(&self) -> anyhow::Result<Listener> {
        Ok(match self {
            Self::Tcp(listener) => Listener::Tcp(tokio::net::TcpListener::from_std(listener.try_clone()?)?),
            Self::Unix(listener, ..) => Listener::Unix(tokio::net::UnixListener::from_std(listener.try_clone()?)?),
        })
    }

    /// The address to open.
    ///
    /// # Errors
    /// If the socket does not know it.
    pub(super) fn url(&self, has_tls: bool) -> io::Result<String> {
        let scheme = if has_tls { "https" } else { "http" };
        Ok(match self {
            Self::Tcp(listener) => format!("{scheme}://{}/", listener.local_addr()?),
            Self::Unix(_, path, _) => format!("unix:{}", path.display()),
        })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // It may have been removed, and another server may listen there by now.
        if let Self::Unix(_, path, bound) = self
            && identity(path) == *bound
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Device and inode of a file; `None` if there is none.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Binds a socket that only its owner may connect to. A stale one, left by a crash, is replaced.
fn bind_unix(path: &Path) -> anyhow::Result<UnixListener> {
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        // Other errors are those of a socket that lives: of another type, or one that is not ours to connect to.
        let nobody_listens =
            || UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        let is_left = metadata.file_type().is_socket() && nobody_listens();
        ensure!(is_left, "it exists already: remove it, or choose another path");
        std::fs::remove_file(path)?;
    }
    let before = umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    umask(before);
    Ok(listener?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that addresses are understood, and that the message for what is none says what is expected.
    #[test]
    fn addresses_are_parsed() {
        for text in
            ["127.0.0.1:0", "127.1.2.3:80", "[::1]:7475", "localhost:1", "unix:/run/x", "0.0.0.0:7475", "[::]:1"]
        {
            listen(text).expect(text);
        }
        for text in ["", "7475", "unix:", "127.0.0.1", "example.org:80"] {
            assert!(listen(text).is_err_and(|message| message.starts_with("expected ")), "{text}");
        }
    }
}
