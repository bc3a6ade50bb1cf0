//! The HTTP server shared by `fpprof agent` and `fpprof serve`: few connections at a time, each for a limited time, and
//! no privileges.

mod pending;
mod token;

pub(crate) use token::Token;

use anyhow::Context as _;
use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use pending::Pending;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

/// Time limit for a TLS handshake, and for receiving the head of a request.
const MAX_REQUEST_TIME: Duration = Duration::from_secs(10);
/// The largest head of a request, bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;
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

/// What clients need to be accepted; by default nothing.
#[derive(Default)]
pub(crate) struct Access {
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) token: Option<Token>,
}

/// What clients need now: it can change while connections are served, each by what was needed when it began.
#[derive(Clone, Default)]
pub(crate) struct CurrentAccess(Arc<RwLock<Arc<Access>>>);

impl CurrentAccess {
    pub(crate) fn new(access: Access) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(access))))
    }

    pub(crate) fn set(&self, access: Access) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
    }

    fn get(&self) -> Arc<Access> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The most connections at a time, and the longest time of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections whose request is answered.
    pub(crate) connections: usize,
    /// Connections whose request is still to come, has no token, or waits to be answered.
    pub(crate) pending: usize,
    pub(crate) time: Duration,
    /// The longest time without progress in sending an answer. The kernel reports progress when a third of its buffer is free.
    pub(crate) stall: Duration,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Listener {
    /// A connection, and the address of the client.
    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Option<IpAddr>)> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                (Box::new(stream), Some(address.ip()))
            }
            Self::Unix(listener) => (Box::new(listener.accept().await?.0), None),
        })
    }
}

/// Serves connections forever. Anybody who reaches the address may connect, so number and duration of connections are
/// limited: nobody can use up this process's descriptors, and whoever connects and says nothing, or reads nothing, keeps nobody
/// else out for long.
pub(crate) async fn serve(listener: &Listener, access: CurrentAccess, routes: Router, limits: Limits) {
    let Limits { connections, pending, time, stall } = limits;
    let (pending, permits) = (Pending::new(pending), Semaphore::new(connections));
    let server = Arc::new(Server { access, routes, pending, permits });
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let its = Arc::clone(&server);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(stall));
        server.pending.run(from, async move {
            // A client that has gone or takes too long is dropped.
            let _ = timeout(time, its.connection(Box::pin(stream))).await;
        });
    }
}

/// What connections have in common.
struct Server {
    access: CurrentAccess,
    routes: Router,
    pending: Pending,
    /// Permits for connections whose request was accepted.
    permits: Semaphore,
}

impl Server {
    /// Answers the one request of a connection; `None` if it is broken or takes too long.
    async fn connection(&self, stream: impl Stream + 'static) -> Option<()> {
        let access = self.access.get();
        let stream: Box<dyn Stream> = match &access.tls {
            Some(tls) => Box::new(timeout(MAX_REQUEST_TIME, tls.accept(stream)).await.ok()?.ok()?),
            None => Box::new(stream),
        };
        // Kept to the end of the connection.
        let permit = OnceLock::new();
        let service = service_fn(|request| self.answer(request, access.token.as_ref(), &permit));
        let mut connection = http1::Builder::new();
        // An idle connection, or one whose request does not arrive, would occupy a permit.
        connection.keep_alive(false).timer(TokioTimer::new()).header_read_timeout(MAX_REQUEST_TIME);
        connection.max_header_size(MAX_HEAD_BYTES);
        connection.serve_connection(TokioIo::new(stream), service).await.ok()
    }

    async fn answer<'a>(
        &'a self,
        request: Request<Incoming>,
        token: Option<&Token>,
        permit: &OnceLock<SemaphorePermit<'a>>,
    ) -> Result<Response, Infallible> {
        if let Some(token) = token
            && let Some(refusal) = token.refusal(request.headers()).await
        {
            return Ok(refusal);
        }
        // The semaphore is never closed.
        _ = self.permits.acquire().await.map(|acquired| permit.set(acquired));
        self.pending.accepted();
        TowerToHyperService::new(self.routes.clone()).call(request).await
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

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    const ANSWER_BYTES: usize = 64 << 20;

    fn ask(address: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        stream
    }

    /// Check that a client that reads nothing of an answer that fits in no buffer keeps another out only for a while, and that
    /// one that reads gets all of it.
    #[test]
    fn clients_that_read_nothing_are_dropped() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        listener.set_nonblocking(true).expect("non-blocking");
        let limits =
            Limits { connections: 1, pending: 8, time: Duration::from_secs(600), stall: Duration::from_secs(3) };
        let routes = Router::new().route("/", get(|| async { vec![b'x'; ANSWER_BYTES] }));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = Listener::Tcp(TcpListener::from_std(listener).expect("a listener"));
                serve(&listener, CurrentAccess::default(), routes, limits).await;
            });
        });
        let mut idle = ask(address);
        idle.read_exact(&mut [0]).expect("the answer begins");
        let rest = |stream: &mut TcpStream| io::copy(stream, &mut io::sink());
        let bytes = rest(&mut ask(address)).expect("an answer");
        assert!(bytes > ANSWER_BYTES as u64, "{bytes} bytes");
        assert!(rest(&mut idle).map_or(true, |bytes| bytes < ANSWER_BYTES as u64), "it was dropped");
    }
}
