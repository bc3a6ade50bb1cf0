//! The HTTP server shared by `fpprof agent` and `fpprof serve`: few connections at a time, each for a limited time, and
//! no privileges.

use anyhow::Context as _;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

/// Time limit for receiving the head of a request.
const MAX_REQUEST_TIME: Duration = Duration::from_secs(10);
/// Pause after a failure to accept a connection, for instance for want of descriptors.
const PAUSE: Duration = Duration::from_secs(1);

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

/// The most connections at a time, and the longest time of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    pub(crate) time: Duration,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// Serves connections forever. Any user of this machine may connect, so their number and duration are limited: nobody
/// can use up this process's descriptors.
pub(crate) async fn serve(listener: &Listener, routes: &Router, limits: Limits) {
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        // The semaphore is never closed.
        let place = Arc::clone(&places).acquire_owned().await;
        let Ok(stream) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let service = TowerToHyperService::new(routes.clone());
        tokio::spawn(async move {
            let _place = place;
            let mut connection = http1::Builder::new();
            // An idle connection, or one whose request does not arrive, would occupy a place.
            connection.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(MAX_REQUEST_TIME);
            let answered = connection.serve_connection(TokioIo::new(stream), service);
            // A client that has gone or takes too long is dropped.
            let _ = tokio::time::timeout(limits.time, answered).await;
        });
    }
}

/// Drops all capabilities of this thread for good, and forbids gaining any by exec; threads that it starts later
/// inherit both.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn give_up_capabilities() -> anyhow::Result<()> {
    let none = CapabilitySet::empty();
    let given_up = set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none });
    given_up.context("cannot drop capabilities")?;
    set_no_new_privs(true).context("cannot set no_new_privs")
}
