//! Serves the metrics and handles signals, in one thread.

use super::config::HttpConfig;
use super::cost;
use super::metrics::Metrics;
use super::stopping::{PARSING, Stopping};
use super::systemd::notify;
use crate::http::{CurrentAccess, Limits, Listener, give_up_capabilities, serve};
use crate::output::print_message;
use anyhow::Context as _;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use rustix::thread::gettid;
use sd_notify::NotifyState;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Orders to the agent's main loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// SIGINT or SIGTERM.
    Stop,
    /// SIGHUP: read the configuration again.
    Reload,
    /// The rules of what runs here do not fit into the small table.
    EnlargeRuleTable,
    /// A CPU has come online that has no ring.
    AddRings,
    /// The recorder has ended. Sent after every recording, requested or not.
    Ended,
}

/// Content type of `OpenMetrics` text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const LIMITS: Limits =
    Limits { connections: 16, pending: 16, time: Duration::from_secs(10), stall: Duration::from_secs(5) };

/// Starts to listen, and to forward signals as orders. One to stop also begins the end.
///
/// # Errors
/// If the address is taken, or signals cannot be caught.
pub(super) fn start(
    config: &HttpConfig,
    metrics: Arc<Metrics>,
    orders: Sender<Order>,
    stopping: Arc<Stopping>,
) -> anyhow::Result<()> {
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
        cost::count_apart(gettid());
        // This thread parses requests of any local user.
        drop_capabilities("the thread that serves metrics");
        runtime.block_on(async {
            for (mut signal, order) in signals {
                let (orders, stopping) = (orders.clone(), Arc::clone(&stopping));
                tokio::spawn(async move {
                    while signal.recv().await.is_some() && orders.send(order).is_ok() {
                        if order == Order::Stop {
                            notify(NotifyState::Stopping);
                            stopping.begin(Instant::now());
                            tokio::time::sleep(PARSING).await;
                            stopping.stop_parsing();
                        }
                    }
                });
            }
            match listener.map(tokio::net::TcpListener::from_std) {
                Some(Ok(listener)) => {
                    serve(&Listener::Tcp(listener), CurrentAccess::default(), routes(metrics), LIMITS).await
                }
                _ => std::future::pending().await,
            }
        });
    })?;
    Ok(())
}

/// Drops the capabilities of the calling thread; a failure is only printed.
pub(super) fn drop_capabilities(thread: &str) {
    if let Err(error) = give_up_capabilities() {
        print_message(&format!("fpprof: {thread} keeps its privileges: {error:#}"));
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
