//! Tests of `fpprof record --live`: what is recorded is unwound at once, and is in a store or counted.

use crate::agent::{Agent, read};
use crate::support::serving::Serving;
use crate::support::{fpprof, ran};
use nix::sys::signal::Signal;
use serde_json::json;

/// Uses four seconds of CPU time in a child, however fast the machine is, then exits with 7.
const COMMAND: [&str; 3] =
    ["perl", "-e", "alarm 200; if (fork) { wait; exit 7 } do { for (1 .. 1e6) {} } while (times)[0] < 4"];

/// Check that a command's samples are stored in several files under each strategy with exact sums, that the exit status is
/// the command's and the cost is not, that the page shows them, and that a second recording adds to the store.
#[test]
fn a_command_is_stored() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = dir.path().join("store");
    let record = || {
        let options = ["record", "--live", "2s", "-F", "499", "--call-graph", "both", "-o"];
        let ended = ran(fpprof().args(options).arg(&store).arg("--").args(COMMAND));
        assert_eq!(ended.status, 7, "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("(fpprof serve {})", store.display())), "{}", ended.stderr);
        let figure = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>().parse::<i64>();
        let recorded =
            ended.stderr.split_once("= recorded ").and_then(|(_, rest)| rest.split_once(" + ")).expect("a balance");
        figure(recorded.0).expect("a number")
    };
    let first = record();
    let stored = read(&store, 0);
    stored.assert_balance();
    assert_eq!((stored.counter("recorded"), stored.samples.len()), (first, 2), "{stored:?}");
    let files = std::fs::read_dir(store.join("counters")).expect("days").flatten();
    let n_files = files.map(|day| std::fs::read_dir(day.path()).expect("files").count()).sum::<usize>();
    assert!(n_files > 1, "{n_files}");
    // The command used each tick that was recorded; recording and unwinding it takes much less.
    assert!(stored.counter("cpu_ns") * 499 < first * 1_000_000_000, "{stored:?}");
    let both = first + record();
    let stored = read(&store, 0);
    stored.assert_balance();
    assert_eq!(stored.counter("recorded"), both);
    let mut serving = Serving::start(&store);
    for strategy in stored.samples.keys() {
        assert_eq!(serving.answer(&format!("flamegraph?strategy={strategy}"))["total"], json!(both), "{strategy}");
    }
    let functions = serving.answer("functions?process=perl&function=Perl_runops_standard");
    assert!(functions["callers"][0]["total"].as_i64() > Some(0), "{functions}");
    assert_eq!(serving.end(Signal::SIGTERM).code(), Some(0));
}

/// Check that only one process at a time writes to a store.
#[test]
fn a_store_has_one_writer() {
    let agent = Agent::start("rate = 99\ncall-graph = \"fp\"", &[]);
    agent.wait_for_samples(1.0);
    let refused = ran(fpprof().args(["record", "--live", "-o"]).arg(agent.store()).args(["--", "true"]));
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("another fpprof writes to it"), "{}", refused.stderr);
    agent.end().assert_balance();
}

/// Check that what cannot be recorded leaves nothing behind, and that what is no directory stays as it is.
#[test]
fn failures_leave_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let live = |output: &str, command: &str| {
        ran(fpprof().args(["record", "--live", "-o"]).arg(path(output)).args(["--", command]))
    };
    let ended = live("store", "/nonexistent/command");
    assert_eq!(ended.status, 127, "{}", ended.stderr);
    assert!(!path("store").exists());
    std::fs::write(path("file"), "mine").expect("written");
    let ended = live("file", "true");
    assert_eq!(ended.status, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("choose a directory"), "{}", ended.stderr);
    assert_eq!(std::fs::read(path("file")).expect("the file"), b"mine");
}
