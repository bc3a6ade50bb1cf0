//! What every HTTP server of ours does: a few connections at a time, each for a while, and no privileges.

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

/// A request comes within this time.
const MAX_REQUEST_TIME: Duration = Duration::from_secs(10);
/// After a connection that could not be accepted.
const PAUSE: Duration = Duration::from_secs(1);

/// Where connections come from.
#[derive(Debug)]
pub(crate) enum Listener {
    /// This machine, by a port.
    Tcp(TcpListener),
    /// This machine, by the name of a socket.
    Unix(UnixListener),
}

/// Most connections at a time, and how long each may last.
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

/// Answers, a few connections at a time and each for a while: any user of this machine may connect, and none is to use up the
/// descriptors of this process.
pub(crate) async fn serve(listener: &Listener, routes: &Router, limits: Limits) {
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        // It is never closed.
        let place = Arc::clone(&places).acquire_owned().await;
        let Ok(stream) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let service = TowerToHyperService::new(routes.clone());
        tokio::spawn(async move {
            let _place = place;
            let mut connection = http1::Builder::new();
            // A connection that waits for another request, or whose request does not come, would take a place.
            connection.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(MAX_REQUEST_TIME);
            let answered = connection.serve_connection(TokioIo::new(stream), service);
            // Who has gone or takes too long gets no more.
            let _ = tokio::time::timeout(limits.time, answered).await;
        });
    }
}

/// Gives up what this thread may do beyond other processes of its user, for good; so do the threads that it starts from now on.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn give_up_capabilities() -> anyhow::Result<()> {
    let none = CapabilitySet::empty();
    let given_up = set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none });
    given_up.context("cannot drop capabilities")?;
    set_no_new_privs(true).context("cannot set no_new_privs")
}
