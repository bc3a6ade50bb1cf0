//! Tests of `fpprof serve` over its socket: answers, refusals and exit.

use crate::support::serving::{Serving, write_stacks, write_weighed};
use crate::support::{Ended, fpprof, ran, wait_until};
use fpprof_unwind::{BrokenReason, Root, StopReason};
use nix::sys::signal::Signal;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

const COMPLETE: StopReason = StopReason::Complete(Root::Start);
const BROKEN: StopReason = StopReason::Broken(BrokenReason::RaNotExec);

/// Writes a store: two minutes of one machine and one of another, under two strategies.
pub(crate) fn store(path: &Path) {
    let whole: [_; 3] = [
        ("nginx", "_start;main;serve;copy", COMPLETE, 60),
        ("nginx", "_start;main;serve", COMPLETE, 10),
        ("db", "_start;main;sort", COMPLETE, 30),
    ];
    let broken: [_; 2] = [("nginx", "serve;copy", BROKEN, 70), ("db", "sort", BROKEN, 30)];
    let later: [_; 2] = [("nginx", "_start;main;serve;copy", COMPLETE, 20), ("db", "_start;main;sort", COMPLETE, 180)];
    write_stacks(path, 0, "web-1", &[("cfi", &whole), ("fp", &broken)]);
    write_stacks(path, 1, "web-1", &[("cfi", &later), ("fp", &[("db", "sort", BROKEN, 200)])]);
    write_stacks(path, 1, "web-2", &[("cfi", &[("idle", "_start;wait", COMPLETE, 5)]), ("fp", &[])]);
}

/// Sums the samples of a strategy, read by the `parquet` crate alone.
fn stored(store: &Path, strategy: &str) -> i64 {
    let files = std::fs::read_dir(store.join("stacks/day=2026-11-26")).expect("a day").flatten();
    let tables =
        files.map(|file| SerializedFileReader::new(File::open(file.path()).expect("a file")).expect("Parquet"));
    let mut samples = 0;
    for table in tables {
        for row in table.get_row_iter(None).expect("rows").map(|row| row.expect("a row")) {
            let field = |name: &str| row.get_column_iter().find(|(column, _)| *column == name).expect("a column").1;
            if let (Field::Str(name), Field::Long(n)) = (field("strategy"), field("samples")) {
                samples += if name == strategy { *n } else { 0 };
            }
        }
    }
    samples
}

/// Check that each answer has the samples of the table for one strategy, in the requested range and under the requested
/// filters.
#[test]
fn answers_are_what_is_stored() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path());
    let serving = Serving::start(dir.path());
    for strategy in ["cfi", "fp"] {
        let n = stored(dir.path(), strategy);
        for question in ["flamegraph", "functions"] {
            let answer = serving.answer(&format!("{question}?strategy={strategy}"));
            assert_eq!(answer["total"], json!(n), "{strategy}: {answer}");
        }
    }
    let total = |question: &str| serving.answer(question)["total"].clone();
    assert_eq!(total("flamegraph"), json!(305), "the strategy is the one without broken stacks");
    assert_eq!(total("flamegraph?unit=weight"), json!(3050));
    assert_eq!(total("flamegraph?to=2026-11-26T12:01:00Z"), json!(100));
    assert_eq!(total("flamegraph?from=1795694460"), json!(205));
    assert_eq!(total("flamegraph?host=web-2"), json!(5));
    assert_eq!(total("flamegraph?service=db.service&host=web-1"), json!(210));
    assert_eq!(total("flamegraph?service=db.service&service=nginx.service"), json!(300));
    assert_eq!(total("flamegraph?process=nothing"), json!(0));
    let facets = serving.answer("facets");
    assert_eq!(facets["choice"]["strategy"], "cfi");
    assert_eq!(facets["facets"]["host"], json!([{"name": "web-1", "samples": 300}, {"name": "web-2", "samples": 5}]));
    assert_eq!(facets["store"]["span"], json!([1_795_694_400.0, 1_795_694_460.0]));
    assert_eq!(facets["files"], json!({"read": 3, "unread": {"count": 0, "first": []}}));
    assert_eq!(serving.answer("facets?from=0&to=1")["files"]["read"], json!(0), "other days are not opened");
    let functions = serving.answer("functions?function=main");
    let names = |list: &Value| -> Vec<String> {
        let list = list.as_array().expect("a list").iter();
        list.map(|one| format!("{} {}", one["name"].as_str().unwrap_or("-"), one["total"])).collect()
    };
    assert_eq!(names(&functions["callers"]), ["_start 300"]);
    assert_eq!(names(&functions["callees"]), ["sort 210", "serve 90"]);
    let quality = serving.answer("quality");
    assert_eq!(quality["ends"]["fp"], json!({"broken": {"ra_not_exec": 300}}));
    assert_eq!(serving.answer("cost")["points"], json!([]));
}

/// Check that a comparison of two ranges compares shares, and that one of two strategies, or of a range with a part of it, has
/// no confidence interval, as samples are on both sides.
#[test]
fn comparisons_have_two_sides() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path());
    let serving = Serving::start(dir.path());
    let answer = serving.answer("compare?host=web-1&before.to=1795694460&after.from=1795694460");
    assert_eq!(answer["total"], json!([100, 200]));
    let functions = answer["functions"].as_array().expect("functions");
    let sort = &functions.iter().find(|function| function["name"] == "sort").expect("a function")["total"];
    assert_eq!(sort["points"], json!(60.0), "{sort}");
    assert!(sort["interval"]["low"].as_f64() > Some(40.0) && sort["interval"]["high"].as_f64() < Some(80.0), "{sort}");
    let answer = serving.answer("compare?host=web-1&before.strategy=fp&after.strategy=cfi");
    assert_eq!(answer["total"], json!([300, 300]));
    assert_eq!(answer["functions"][0]["self"]["interval"], Value::Null);
    let part = serving.answer("compare?host=web-1&before.to=1795694460");
    assert_eq!((&part["total"], &part["functions"][0]["self"]["interval"]), (&json!([100, 300]), &Value::Null));
    assert_eq!(
        (&answer["about"]["before"]["strategy"], &answer["about"]["after"]["strategy"]),
        (&json!("fp"), &json!("cfi"))
    );
}

/// Check that amounts are CPU time where samples stand for different amounts of it: of one range, and of a comparison of which
/// one side does, whichever it is.
#[test]
fn ranges_may_have_several_rates() {
    let dir = tempfile::tempdir().expect("a directory");
    let rows: [_; 2] = [("nginx", "_start;main", COMPLETE, 30), ("db", "_start;main;sort", COMPLETE, 10)];
    write_stacks(dir.path(), 0, "web-1", &[("cfi", &rows)]);
    write_weighed(dir.path(), 1, "web-1", &[("cfi", &[("db", "_start;main;sort", COMPLETE, 2)])], 100);
    write_stacks(dir.path(), 2, "web-1", &[("cfi", &rows)]);
    let serving = Serving::start(dir.path());
    for (question, unit, total) in [
        ("flamegraph?to=1795694460", "samples", json!(40)),
        ("flamegraph", "weight", json!(1000)),
        ("functions", "weight", json!(1000)),
        ("flamegraph?unit=samples", "samples", json!(82)),
    ] {
        let answer = serving.answer(question);
        assert_eq!((&answer["unit"], &answer["total"]), (&json!(unit), &total), "{question}");
    }
    for (question, total) in [
        ("compare?before.to=1795694520&after.from=1795694520", json!([600, 400])),
        ("compare?before.from=1795694520&after.to=1795694520", json!([400, 600])),
    ] {
        let answer = serving.answer(question);
        assert_eq!((&answer["about"]["unit"], &answer["total"]), (&json!("weight"), &total), "{question}");
    }
}

/// Check that invalid queries are refused with a hint, and requests from other machines' pages with advice.
#[test]
fn wrong_requests_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path());
    let serving = Serving::start(dir.path());
    for (question, status, words) in [
        ("flamegraph?from=yesterday", 400, "from: expected a time"),
        ("flamegraph?hots=a", 400, "hots: no such parameter"),
        ("flamegraph?strategy=fp&strategy=cfi", 400, "strategy: expected one"),
        ("compare?before.event=x", 400, "before.event: both sides"),
        ("nothing", 404, "no such endpoint; /api/ has facets"),
    ] {
        let (got, answer) = serving.ask(question);
        assert!(
            got == status && answer["error"].as_str().is_some_and(|error| error.contains(words)),
            "{question}: {answer}"
        );
    }
    let status = |first: &str, headers: &str| serving.request(first, headers).0;
    for host in ["localhost", "127.0.0.1:7475", "[::1]:80", "LOCALHOST:1"] {
        assert_eq!(status("GET /", &format!("Host: {host}\r\n")), 200, "{host}");
    }
    for headers in
        ["Host: evil.example\r\n", "Host: 10.0.0.1\r\n", "Host: localhost.evil.example\r\n", "Host: \r\n", ""]
    {
        assert!([400, 403].contains(&status("GET /", headers)), "{headers}");
    }
    assert_eq!(status("GET /api/facets", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n"), 403);
    assert_eq!(status("POST /api/facets", "Host: localhost\r\nContent-Length: 0\r\n"), 405);
    let (_, _, head) = serving.request("HEAD /", "Host: localhost\r\n");
    assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("allow: GET\r\n"), "{head}");
    assert_eq!(status("GET /../etc/passwd", "Host: localhost\r\n"), 404);
    let (_, _, head) = serving.request("GET /", "Host: localhost\r\n");
    for line in ["content-security-policy: default-src 'none'; script-src 'sha256-", "x-content-type-options: nosniff"]
    {
        assert!(head.contains(line), "{head}");
    }
    assert!(head.contains("cache-control: no-store") && !head.to_lowercase().contains("access-control"), "{head}");
}

/// Check that an unreadable file is named and counted, and that the others are still used.
#[test]
fn files_that_cannot_be_read_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path());
    let day = dir.path().join("stacks/day=2026-11-26");
    let whole = std::fs::read(day.join("120000.000000Z-web-1.parquet")).expect("a table");
    std::fs::write(day.join("120200.000000Z-web-1.parquet"), "no table").expect("written");
    // As if a file were removed between listing and opening it.
    std::os::unix::fs::symlink("gone", day.join("120300.000000Z-web-1.parquet")).expect("a link");
    let serving = Serving::start(dir.path());
    let unread = |answer: &Value| answer["files"]["unread"].clone();
    let answer = serving.answer("flamegraph");
    assert_eq!((&answer["total"], &unread(&answer)["count"]), (&json!(305), &json!(2)), "{answer}");
    assert!(
        unread(&answer)["first"][0].as_str().is_some_and(|words| words.contains("day=2026-11-26/120200")),
        "{answer}"
    );
    std::fs::remove_file(day.join("120300.000000Z-web-1.parquet")).expect("removed");
    // Whichever byte is damaged, the file is read as a whole or named.
    let damaged = day.join("120200.000000Z-web-1.parquet");
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        std::fs::write(&damaged, bytes).expect("written");
        let answer = serving.answer("facets");
        let n_unread = unread(&answer)["count"].as_u64().expect("a number");
        assert_eq!(answer["files"]["read"].as_u64().expect("a number") + n_unread, 4, "{at}: {answer}");
    }
}

/// Check that what is no store, recording or table is refused.
#[test]
fn what_cannot_be_served_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let none = ran(fpprof().args(["serve", "--listen", "127.0.0.1:0"]).arg(dir.path()));
    assert!(none.status == 1 && none.stderr.contains("no store of `fpprof agent`"), "{}", none.stderr);
    let missing = ran(fpprof().args(["serve", "--listen", "127.0.0.1:0", "/nonexistent/store"]));
    assert!(missing.status == 1 && missing.stderr.contains("/nonexistent/store"), "{}", missing.stderr);
    let file = dir.path().join("file");
    std::fs::write(&file, "no recording").expect("written");
    let wrong = ran(fpprof().args(["serve", "--listen", "127.0.0.1:0"]).arg(&file));
    assert_eq!(wrong.status, 1, "{}", wrong.stderr);
}

/// Check that of many simultaneous queries each is answered, or refused because there are too many, and that the server
/// keeps running.
#[test]
fn many_questions_at_a_time_are_bounded() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path());
    let serving = Serving::start(dir.path());
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..40).map(|_| scope.spawn(|| serving.ask("compare?before.strategy=fp").0)).collect();
        asked.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    assert!(statuses.contains(&200) && statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    // A client that leaves early does not hold a place for long.
    for _ in 0..40 {
        let mut connection = TcpStream::connect(&serving.address).expect("it listens");
        write!(connection, "GET /api/flamegraph HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    }
    wait_until("there is room again", || serving.ask("facets").0 == 200);
}

/// Check that the table of a recording is served without a store.
#[test]
fn one_table_is_served() {
    let dir = tempfile::tempdir().expect("a directory");
    store(dir.path());
    let serving = Serving::start(&dir.path().join("stacks/day=2026-11-26/120000.000000Z-web-1.parquet"));
    assert_eq!(serving.answer("flamegraph")["total"], json!(100));
    assert_eq!(serving.answer("facets")["store"]["has_counters"], json!(false));
}

/// Check that a Unix socket is private to its owner and removed at exit, but not that of another server which came after it; that
/// a stale one is replaced, that the process has no capabilities, and that both signals end it successfully.
#[test]
fn sockets_are_private_and_ends_are_clean() {
    let dir = tempfile::tempdir().expect("a directory");
    store(&dir.path().join("store"));
    let socket = dir.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("a socket that is left"));
    let listen = format!("unix:{}", socket.display());
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut command = fpprof();
        let mut serving = Serving::started(command.args(["serve", "--listen", &listen]).arg(dir.path().join("store")));
        let mode = std::fs::metadata(&socket).expect("a socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut connection = UnixStream::connect(&socket).expect("it listens");
        write!(connection, "GET /api/facets HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert_eq!(capabilities(&serving.server), ["0000000000000000"; 2]);
        let taken = ran(fpprof().args(["serve", "--listen", &listen]).arg(dir.path().join("store")));
        assert!(taken.status == 1 && taken.stderr.contains("exists already"), "{}", taken.stderr);
        assert_eq!(serving.end(signal).code(), Some(0));
        assert!(!socket.exists());
    }
    let start = || {
        let mut command = fpprof();
        Serving::started(command.args(["serve", "--listen", &listen]).arg(dir.path().join("store")))
    };
    let mut first = start();
    std::fs::remove_file(&socket).expect("removed");
    let mut second = start();
    assert_eq!(first.end(Signal::SIGTERM).code(), Some(0));
    assert!(UnixStream::connect(&socket).is_ok(), "the second server's");
    assert_eq!(second.end(Signal::SIGTERM).code(), Some(0));
    assert!(!socket.exists());
    let mut nohup = Command::new("nohup");
    nohup.arg(env!("CARGO_BIN_EXE_fpprof")).args(["serve", "--listen", "127.0.0.1:0"]).stdin(Stdio::null());
    let mut serving = Serving::started(nohup.stdout(Stdio::null()).arg(dir.path().join("store")));
    serving.signal(Signal::SIGHUP);
    assert_eq!(serving.ask("facets").0, 200);
    assert_eq!(serving.end(Signal::SIGTERM).code(), Some(0));
}

/// The effective and permitted capabilities of a process; all its threads must agree.
pub(crate) fn capabilities(process: &Ended) -> [String; 2] {
    let threads = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("threads").flatten();
    let sets = threads.map(|thread| {
        let status = std::fs::read_to_string(thread.path().join("status")).expect("a status");
        ["CapEff:", "CapPrm:"]
            .map(|name| status.lines().find_map(|line| line.strip_prefix(name)).expect("a set").trim().to_owned())
    });
    sets.reduce(|one, other| if one == other { one } else { panic!("{one:?} and {other:?}") }).expect("a thread")
}
