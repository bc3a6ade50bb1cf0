//! Serves the metrics, and hears signals: one thread.

use super::config::HttpConfig;
use super::metrics::Metrics;
use crate::output::print_message;
use anyhow::Context as _;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

/// What the agent is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// By SIGINT or SIGTERM.
    Stop,
    /// By SIGHUP: read the configuration again.
    Reload,
    /// The recorder has ended by itself.
    Ended,
}

/// The type of `OpenMetrics` text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Connections at a time, and how long each may last.
const MAX_CONNECTIONS: usize = 16;
const MAX_CONNECTION_TIME: Duration = Duration::from_secs(10);
/// After a connection that could not be accepted.
const PAUSE: Duration = Duration::from_secs(1);

/// Begins to listen, and passes on signals from now on.
///
/// # Errors
/// If the address is taken, or signals cannot be caught.
pub(super) fn start(config: &HttpConfig, metrics: Arc<Metrics>, orders: Sender<Order>) -> anyhow::Result<()> {
    let listener = if config.enabled {
        let listener = TcpListener::bind(config.listen).with_context(|| format!("http.listen {}", config.listen))?;
        listener.set_nonblocking(true)?;
        Some(listener)
    } else {
        None
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _in_runtime = runtime.enter();
        [
            (signal(SignalKind::interrupt())?, Order::Stop),
            (signal(SignalKind::terminate())?, Order::Stop),
            (signal(SignalKind::hangup())?, Order::Reload),
        ]
    };
    std::thread::Builder::new().name("fpprof-http".to_owned()).spawn(move || {
        // What any user sends is parsed here.
        drop_capabilities("the thread that serves metrics");
        runtime.block_on(async {
            for (mut signal, order) in signals {
                let orders = orders.clone();
                tokio::spawn(async move { while signal.recv().await.is_some() && orders.send(order).is_ok() {} });
            }
            match listener.map(tokio::net::TcpListener::from_std) {
                Some(Ok(listener)) => serve(&listener, &routes(metrics)).await,
                _ => std::future::pending().await,
            }
        });
    })?;
    Ok(())
}

/// Gives up the capabilities of the calling thread.
pub(super) fn drop_capabilities(thread: &str) {
    let none = CapabilitySet::empty();
    let given_up = set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none });
    if let Err(error) = given_up {
        print_message(&format!("fpprof: {thread} keeps its privileges: {error}"));
    }
}

/// Answers, a few connections at a time and each for a moment: any user of this machine may connect, and none is to use up
/// the agent's descriptors.
async fn serve(listener: &tokio::net::TcpListener, routes: &Router) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // It is never closed.
        let place = Arc::clone(&places).acquire_owned().await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let service = TowerToHyperService::new(routes.clone());
        tokio::spawn(async move {
            let _place = place;
            let answered = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // Who has gone or takes too long gets no more.
            let _ = tokio::time::timeout(MAX_CONNECTION_TIME, answered).await;
        });
    }
}

fn routes(metrics: Arc<Metrics>) -> Router {
    let of_health = Arc::clone(&metrics);
    Router::new()
        .route("/metrics", get(move || async move { text(&metrics) }))
        .route("/-/healthy", get(move || async move { health(&of_health) }))
}

fn text(metrics: &Metrics) -> axum::response::Response {
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

fn health(metrics: &Metrics) -> (StatusCode, &'static str) {
    if metrics.is_healthy() {
        (StatusCode::OK, "healthy\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the last interval has not ended in time\n")
    }
}
