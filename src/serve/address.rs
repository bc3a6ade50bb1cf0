//! Addresses the page is served at: of this machine only.

use crate::http::Listener;
use anyhow::{Context as _, ensure};
use rustix::fs::Mode;
use rustix::process::umask;
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// An address that only this machine can reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listen {
    /// A port of a loopback address.
    Tcp(SocketAddr),
    /// A Unix socket in the file system.
    Unix(PathBuf),
}

/// Parses `127.0.0.1:PORT`, `[::1]:PORT`, `localhost:PORT` or `unix:PATH`.
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
    let address: SocketAddr = spelled
        .parse()
        .map_err(|_error| "expected 127.0.0.1:PORT, [::1]:PORT or unix:PATH, with port 0 for any".to_owned())?;
    if !address.ip().is_loopback() {
        return Err(format!(
            "{} can be reached by other machines, and the page asks for no password: listen on 127.0.0.1 and forward \
             the port (ssh -L {port}:127.0.0.1:{port} HOST), or put a proxy with TLS and a password in front",
            address.ip(),
            port = address.port()
        ));
    }
    Ok(Listen::Tcp(address))
}

/// A bound address; dropping it removes the file of a Unix socket.
#[derive(Debug)]
pub(super) enum Bound {
    Tcp(std::net::TcpListener),
    Unix(UnixListener, PathBuf),
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
                Ok(Self::Unix(listener, path.clone()))
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
            Self::Unix(listener, _) => Listener::Unix(tokio::net::UnixListener::from_std(listener.try_clone()?)?),
        })
    }
}

/// The address to open.
impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => write!(f, "http://{address}/"),
                Err(error) => write!(f, "{error}"),
            },
            Self::Unix(_, path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // It may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Binds a socket that only its owner may connect to. A stale one, left by a crash, is replaced.
fn bind_unix(path: &Path) -> anyhow::Result<UnixListener> {
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        let is_left = metadata.file_type().is_socket() && UnixStream::connect(path).is_err();
        ensure!(is_left, "it exists already");
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

    /// Check that loopback addresses and Unix sockets are accepted, and that all others are refused with advice.
    #[test]
    fn only_this_machine_is_served() {
        for text in ["127.0.0.1:0", "127.1.2.3:80", "[::1]:7475", "localhost:1", "unix:/run/x"] {
            listen(text).expect(text);
        }
        for text in ["0.0.0.0:7475", "[::]:7475", "192.168.1.2:80"] {
            assert!(
                listen(text).is_err_and(|message| message.contains("ssh -L") && message.contains("password")),
                "{text}"
            );
        }
        for text in ["", "7475", "unix:", "127.0.0.1", "example.org:80"] {
            assert!(listen(text).is_err_and(|message| message.starts_with("expected ")), "{text}");
        }
    }
}
