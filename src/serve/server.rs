//! The server: checks requests, and has one question answered at a time.

use super::address::{Bound, Listen};
use super::answers::{Failure, answer};
use super::files::Files;
use crate::exit::DONE;
use crate::http::{Limits, give_up_capabilities, serve};
use crate::output::print_message;
use axum::Router;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use fpprof_reports::store::{Page, page};
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, Semaphore};

/// A browser opens six; a question and those that wait before it take a minute each at most.
const LIMITS: Limits = Limits { connections: 32, time: Duration::from_secs(600) };
/// Questions that may wait for their turn.
const MAX_WAITING: usize = 8;
/// The names of an answer may be anybody's: a browser takes it for nothing but what it is.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// What questions need.
struct Server {
    files: Files,
    page: Page,
    /// One at a time, and those that wait.
    turn: Arc<Semaphore>,
    places: Semaphore,
}

/// Serves until SIGINT or SIGTERM; gives the exit status.
///
/// # Errors
/// If the address is taken, or privileges cannot be given up.
pub(crate) fn run(files: Files, listen: &Listen) -> anyhow::Result<u8> {
    let bound = Bound::new(listen)?;
    // Before there are other threads: whatever is sent, and whatever files hold, is parsed from here on.
    give_up_capabilities()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build()?;
    let page = page(&files.name());
    let server = Server { files, page, turn: Arc::new(Semaphore::new(1)), places: Semaphore::new(MAX_WAITING + 1) };
    runtime.block_on(async {
        let stop = Arc::new(Notify::new());
        for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
            let (mut signal, stop) = (signal(kind)?, Arc::clone(&stop));
            tokio::spawn(async move {
                signal.recv().await;
                stop.notify_one();
            });
        }
        let listener = bound.listener()?;
        tokio::spawn(async move { serve(&listener, &routes(server), LIMITS).await });
        print_message(&format!("fpprof: {bound}"));
        stop.notified().await;
        anyhow::Ok(())
    })?;
    // A question under way ends with the process.
    runtime.shutdown_background();
    Ok(DONE)
}

fn routes(server: Server) -> Router {
    let server = Arc::new(server);
    Router::new()
        .route("/", get(show))
        .route("/favicon.ico", get(async || StatusCode::NO_CONTENT))
        .route("/api/{question}", get(ask))
        .layer(from_fn_with_state(Arc::clone(&server), protect))
        .with_state(server)
}

async fn show(State(server): State<Arc<Server>>) -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], server.page.html.clone()).into_response()
}

/// Sets what every answer has, and refuses what does not come from this machine's own browser or programs.
async fn protect(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let mut response = if request.method() != Method::GET {
        failed(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered")
    } else if !is_of_this_machine(request.headers()) {
        let words = "the Host header names another machine: open the page as localhost or 127.0.0.1";
        failed(StatusCode::FORBIDDEN, words)
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

/// A page elsewhere can make its own name mean this machine; it cannot make a browser send another name than that.
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

/// Browsers say so since 2023.
fn is_of_another_page(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    site.is_some_and(|site| site != "same-origin" && site != "none")
}

/// Sets the flag when nobody waits any more.
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
        return failed(StatusCode::SERVICE_UNAVAILABLE, "too many questions at a time: try again");
    };
    // It is never closed.
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
        Failure::TooMuch(_) | Failure::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        Failure::Json(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn failed(status: StatusCode, words: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], json!({ "error": words }).to_string()).into_response()
}
