//! The spool is sent to servers that answer in all ways.

use super::*;
use crate::agent::config::StoreConfig;
use crate::agent::store::Store;
use std::fs::Permissions;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};

/// Check that statuses about the request itself are refusals, and that those that a person or time mends are not.
#[test]
fn refusals_are_about_the_request() {
    for (status, retried) in
        [(400, false), (413, false), (418, false), (422, false), (404, true), (429, true), (507, true)]
    {
        assert_eq!(is_retried(StatusCode::from_u16(status).expect("a status")), retried, "{status}");
    }
}

/// A server that answers each request with these bytes, and ends the connection.
fn server(answer: fn(&str) -> String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut request, mut byte) = (Vec::new(), [0]);
            // Of the whole request, or closing the connection would reset it: the path may end so, too.
            let is_whole =
                |request: &[u8]| request.ends_with(b"profile") && request.windows(4).any(|bytes| bytes == b"\r\n\r\n");
            while !is_whole(&request) && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                request.push(byte[0]);
            }
            // The client may leave before the end of a long answer.
            let _ = stream.write_all(answer(&String::from_utf8_lossy(&request)).as_bytes());
        }
    });
    url
}

/// Sends requests of so many samples with the names `name=0` and so on to this URL.
fn pushing_to(url: &str, protocol: &str, dir: &Path, samples: &[u64]) -> (Pushing, Arc<Spool>) {
    let store = StoreConfig { path: dir.join("store"), ..StoreConfig::default() };
    let spool = Arc::new(Spool::open(&Store::open(&store, "web-1").expect("a store")).expect("a spool"));
    let config = format!("[push]\nurl = \"{url}\"\nprotocol = \"{protocol}\"");
    let config: Config = toml::from_str(&config).expect("valid");
    let collector = Collector::new(&config, &spool).expect("a collector").expect("one");
    let request = |(n, &samples)| Request { samples, body: format!("name={n}\nprofile").into_bytes() };
    let requests: Vec<_> = samples.iter().enumerate().map(request).collect();
    assert_eq!(collector.add(1, &requests), Added::default());
    (Pushing { metrics: Arc::new(Metrics::new()), to: Some(Active::new(collector)) }, spool)
}

/// Check that a request that is never answered lets the others pass.
#[test]
fn requests_without_an_answer_let_others_pass() {
    let url = server(|request| match request.contains("name=0") {
        true => String::new(),
        false => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(),
    });
    let dir = tempfile::tempdir().expect("a directory");
    let (mut pushing, spool) = pushing_to(&url, "pyroscope", dir.path(), &[3, 5]);
    (0..20).for_each(|_| _ = pushing.send_one(TIMEOUT));
    // At the end it is sent once more, not again and again.
    pushing.last(Instant::now() + TIMEOUT);
    let text = pushing.metrics.text().expect("text");
    assert!(text.contains("fpprof_pushed_samples_total{outcome=\"accepted\"} 5"), "{text}");
    assert!(text.contains("fpprof_push_retries_total{status=\"none\"} 20"), "{text}");
    assert_eq!(spool.size().files, 1);
}

/// Check that an answer of a collector that is too long to be read does not count as acceptance: one to a request that it
/// took whole is empty.
#[test]
fn long_answers_are_refusals() {
    let url = server(|_| {
        let words = "x".repeat(2 << 20);
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{words}", words.len())
    });
    let dir = tempfile::tempdir().expect("a directory");
    let (mut pushing, spool) = pushing_to(&url, "otlp", dir.path(), &[3]);
    pushing.send_one(TIMEOUT);
    let text = pushing.metrics.text().expect("text");
    assert!(text.contains("fpprof_pushed_samples_total{outcome=\"partly_refused\"} 3"), "{text}");
    assert_eq!(spool.size().files, 0);
}

/// Check that a file that cannot be read now lets the others pass and is tried again, and that one that is gone is counted.
#[test]
fn unreadable_requests_are_tried_again() {
    let url = server(|_| "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned());
    let dir = tempfile::tempdir().expect("a directory");
    let (mut pushing, spool) = pushing_to(&url, "pyroscope", dir.path(), &[3, 5]);
    let (entry, _) = spool.take(Protocol::Pyroscope).expect("a request");
    let path = spool.path(&entry);
    spool.give_back(entry);
    std::fs::rename(&path, dir.path().join("request")).expect("moved");
    // Reading it fails with EISDIR.
    std::fs::create_dir(&path).expect("made");
    pushing.last(Instant::now() + TIMEOUT);
    assert_eq!(spool.size().files, 1);
    std::fs::remove_dir(&path).expect("removed");
    pushing.send_one(TIMEOUT);
    assert_eq!(spool.size().files, 0);
    let text = pushing.metrics.text().expect("text");
    assert!(text.contains("fpprof_pushed_samples_total{outcome=\"accepted\"} 5"), "{text}");
    assert!(text.contains("fpprof_pushed_samples_total{outcome=\"unreadable\"} 3"), "{text}");
}

/// Check that pauses are asked for in seconds or until a date, and are limited.
#[test]
fn servers_ask_for_a_pause() {
    let now = "2026-11-30T10:00:00Z".parse().expect("a time");
    for (value, seconds) in [
        ("120", Some(120)),
        ("86400", Some(600)),
        ("Mon, 30 Nov 2026 10:00:30 GMT", Some(30)),
        ("Mon, 30 Nov 2026 09:00:00 GMT", Some(0)),
        ("soon", None),
    ] {
        assert_eq!(retry_after(value, now), seconds.map(Duration::from_secs), "{value}");
    }
}

/// Check that a token is refused that only privileges can read: the thread that sends it has none.
#[test]
fn tokens_are_read_without_privileges() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    std::fs::write(&file, "secret").expect("written");
    let config = format!("[push]\nurl = \"http://127.0.0.1:1\"\ntoken-file = \"{}\"", file.display());
    let config: Config = toml::from_str(&config).expect("valid");
    check(&config.push).expect("an own file");
    std::fs::set_permissions(&file, Permissions::from_mode(0o400)).expect("its mode");
    chown(&file, Some(65534), None).expect("its owner");
    let error = check(&config.push).expect_err("a file of another user");
    assert!(format!("{error:#}").contains("Permission denied"), "{error:#}");
}

/// Check that a request to Pyroscope ends as refused after some answers with status 422 and unknown words, and that the next
/// one has as many tries of its own.
#[test]
fn unclear_answers_come_to_an_end() {
    let url =
        server(|_| "HTTP/1.1 422 Unprocessable Entity\r\nContent-Length: 4\r\nConnection: close\r\n\r\nwhat".into());
    let dir = tempfile::tempdir().expect("a directory");
    let (mut pushing, spool) = pushing_to(&url, "pyroscope", dir.path(), &[3, 5]);
    let metrics = Arc::clone(&pushing.metrics);
    for n in 1..=2 * MAX_UNCLEAR {
        pushing.send_one(TIMEOUT);
        assert_eq!(spool.size().files, u64::from(2 - n / MAX_UNCLEAR), "{n}");
    }
    let text = metrics.text().expect("text");
    assert!(text.contains("fpprof_pushed_samples_total{outcome=\"refused\"} 8"), "{text}");
    assert!(text.contains(&format!("fpprof_push_retries_total{{status=\"422\"}} {}", 2 * (MAX_UNCLEAR - 1))), "{text}");
}

/// Check that pauses double up to their limit, each random in its upper half, and restart after a success.
#[test]
fn pauses_grow() {
    let mut pause = Pause::default();
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        let most = Duration::from_secs(seconds);
        assert!((most / 2..=most).contains(&pause.next()));
    }
    assert!(pause.end() && pause.is_over() && !pause.end());
    assert!(pause.next() <= MIN_PAUSE);
}
