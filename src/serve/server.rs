//! The HTTP server: checks requests, and answers one query at a time.

use super::access::{AccessArgs, Pipes};
use super::address::{Bound, Listen};
use super::answers::{Failure, answer};
use super::files::Files;
use crate::exit::{DONE, print_failure};
use crate::http::{Access, CurrentAccess, Limits, give_up_capabilities, serve};
use crate::output::print_message;
use crate::worker::limit_memory;
use axum::Router;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use fpprof_collector::ignores_hangup;
use fpprof_reports::store::{Page, page};
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc};

/// A browser opens six connections; a query and the [`MAX_WAITING`] before it take up to a minute each.
const LIMITS: Limits =
    Limits { connections: 32, pending: 256, time: Duration::from_secs(600), stall: Duration::from_secs(30) };
/// The most queries that may wait for their turn.
const MAX_WAITING: usize = 8;
/// Answers contain names chosen by others: these headers keep browsers from treating them as anything but data.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// The server's state.
struct Server {
    files: Files,
    /// Whether every request that comes here had the token, or came through a socket that only its owner can open.
    is_private: bool,
    page: Page,
    /// Held by the query being answered.
    turn: Arc<Semaphore>,
    /// Places for queries: one being answered, [`MAX_WAITING`] waiting.
    places: Semaphore,
}

/// What a signal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Stop,
    Reload,
}

/// Serves until SIGINT or SIGTERM; returns the exit status. `access` is what was read of the files in `args`, which are read
/// again on SIGHUP; without such files, SIGHUP ends the server, too.
///
/// # Errors
/// If the address is taken, or privileges cannot be dropped.
pub(crate) fn run(files: Files, listen: &Listen, args: &AccessArgs, access: Access) -> anyhow::Result<u8> {
    let bound = Bound::new(listen)?;
    // Before other threads start, so that they inherit it: from here on the process parses requests and files it must
    // not trust.
    give_up_capabilities()?;
    // A table may be far larger unpacked than its file.
    limit_memory()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build()?;
    let page = page(&files.name());
    let (turn, places) = (Arc::new(Semaphore::new(1)), Semaphore::new(MAX_WAITING + 1));
    let is_private = access.token.is_some() || matches!(listen, Listen::Unix(_));
    let server = Server { files, is_private, page, turn, places };
    let url = bound.url(access.tls.is_some())?;
    runtime.block_on(async {
        let (order, mut orders) = mpsc::channel(1);
        // Without files to read again, the end of the terminal ends the server, but not under nohup(1).
        let hangup = match args.has_files() {
            true => Some(Order::Reload),
            false => (!ignores_hangup()?).then_some(Order::Stop),
        };
        let stops = [SignalKind::interrupt(), SignalKind::terminate()].map(|kind| (kind, Order::Stop));
        for (kind, meant) in stops.into_iter().chain(hangup.map(|order| (SignalKind::hangup(), order))) {
            let (mut signal, order) = (signal(kind)?, order.clone());
            tokio::spawn(async move { while signal.recv().await.is_some() && order.send(meant).await.is_ok() {} });
        }
        let listener = bound.listener()?;
        let current = CurrentAccess::new(access);
        let access = current.clone();
        tokio::spawn(async move { serve(&listener, access, routes(server), LIMITS).await });
        print_message(&format!("fpprof: {url}"));
        while orders.recv().await == Some(Order::Reload) {
            read_again(listen, args, &current);
        }
        anyhow::Ok(())
    })?;
    // A query still running ends with the process.
    runtime.shutdown_background();
    Ok(DONE)
}

/// Replaces what clients need by what the files say now. If one cannot be used, all stay as they were.
fn read_again(listen: &Listen, args: &AccessArgs, current: &CurrentAccess) {
    match args.read(listen, Pipes::Refused) {
        Ok(access) => {
            current.set(access);
            print_message("fpprof: read the token and the certificate again");
        }
        Err(error) => {
            print_failure(&error, "token and certificate stay as they were");
        }
    }
}

fn routes(server: Server) -> Router {
    let server = Arc::new(server);
    Router::new()
        .route("/", get(show))
        .route("/favicon.ico", get(async || StatusCode::NO_CONTENT))
        .route("/api/{question}", get(ask))
        .fallback(async || {
            failed(StatusCode::NOT_FOUND, "the page is at /, and its answers as JSON at /api/flamegraph and others")
        })
        .layer(from_fn_with_state(Arc::clone(&server), protect))
        .with_state(server)
}

async fn show(State(server): State<Arc<Server>>) -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], server.page.html.clone()).into_response()
}

/// Adds the security headers to every answer, and refuses requests that pages of others have a browser send.
///
/// With a token the `Host` header does not matter: a page that reaches this server under a name of its own does not know
/// the token, and a browser sends a password only to the name that it was typed for. Browsers do not reach Unix sockets.
async fn protect(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let mut response = if request.method() != Method::GET {
        let refusal = failed(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered");
        ([(header::ALLOW, "GET")], refusal).into_response()
    } else if !server.is_private && !is_of_this_machine(request.headers()) {
        let message = "the Host header names another machine: open the page as localhost or 127.0.0.1";
        failed(StatusCode::FORBIDDEN, message)
    } else if is_api && is_of_another_page(request.headers()) {
        failed(StatusCode::FORBIDDEN, "another page asked")
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let policy = HeaderValue::from_str(&server.page.policy);
    headers.insert(header::CONTENT_SECURITY_POLICY, policy.unwrap_or(HeaderValue::from_static("default-src 'none'")));
    response
}

/// Whether the `Host` header names this machine. In DNS rebinding, a remote site resolves its own name to this
/// machine's address, but the browser still sends that name.
fn is_of_this_machine(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    host.is_some_and(|authority| {
        let host = authority.host();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
    })
}

/// Whether a page of another origin sent the request. All major browsers send `Sec-Fetch-Site` since 2023; programs do
/// not.
fn is_of_another_page(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    site.is_some_and(|site| site != "same-origin" && site != "none")
}

/// Sets the flag when dropped: the client has gone, or has its answer.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn ask(State(server): State<Arc<Server>>, Path(question): Path<String>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let Ok(_place) = server.places.try_acquire() else {
        return failed(StatusCode::SERVICE_UNAVAILABLE, "too many requests at a time; try again");
    };
    // The semaphore is never closed.
    let turn = Arc::clone(&server.turn).acquire_owned().await;
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let _waiting = Waiting(Arc::clone(&is_cancelled));
    let worker = Arc::clone(&server);
    let answered = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        answer(&worker.files, &question, &pairs, &is_cancelled)
    });
    match answered.await {
        Ok(Ok(json)) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Ok(Err(failure)) => failed(status(&failure), &failure.to_string()),
        Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn status(failure: &Failure) -> StatusCode {
    match failure {
        Failure::Parameter(_) => StatusCode::BAD_REQUEST,
        Failure::Unknown => StatusCode::NOT_FOUND,
        Failure::TooMuch(_) | Failure::Changed | Failure::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        Failure::Json(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn failed(status: StatusCode, message: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], json!({ "error": message }).to_string()).into_response()
}
