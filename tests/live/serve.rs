//! Tests of `fpprof serve` on real output of the agent and the recorder.

use crate::agent::Agent;
use crate::support::serving::Serving;
use crate::support::{ENDLESS, number, record_endless, report};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// The sum of a counter over all buckets and causes.
fn counted(quality: &Value, counter: &str) -> i64 {
    let ticks = quality["ticks"].as_array().expect("ticks").iter();
    ticks.filter(|tick| tick["counter"] == counter).filter_map(|tick| tick["value"].as_i64()).sum()
}

/// Check that a store is served while its agent runs, and that at the end the answers have the samples of the tables
/// under each strategy, the balance of the counters, and the cost.
#[test]
fn a_store_is_served() {
    let mut agent = Agent::start("rate = 199", &[]);
    agent.wait_for_samples(200.0);
    let mut serving = Serving::start(&agent.store());
    assert!(serving.answer("flamegraph")["total"].as_u64() >= Some(200));
    agent.wait_for_samples(50.0);
    agent.stop();
    let stored = agent.stored();
    for (strategy, &samples) in &stored.samples {
        for question in ["flamegraph", "functions"] {
            let answer = serving.answer(&format!("{question}?strategy={strategy}&event=cpu-clock"));
            assert_eq!(answer["total"], json!(samples), "{strategy}: {question}");
            assert_eq!(answer["files"]["unread"]["count"], json!(0), "{answer}");
        }
    }
    let quality = serving.answer("quality");
    for counter in ["fired", "recorded", "lost", "skipped", "dropped", "unread", "stored", "discarded"] {
        assert_eq!(counted(&quality, counter), stored.counter(counter), "{counter}");
    }
    let samples = |strategy: &str| -> i64 {
        let counts = quality["stacks"].as_array().expect("stacks").iter();
        counts.filter(|count| count["strategy"] == strategy).filter_map(|count| count["samples"].as_i64()).sum()
    };
    stored.samples.iter().for_each(|(strategy, &n)| assert_eq!(samples(strategy), n, "{strategy}"));
    let functions = serving.answer("functions?process=perl&function=Perl_runops_standard");
    assert!(functions["callers"][0]["total"].as_i64() > Some(0), "{}", functions["callers"]);
    let cost = serving.answer("cost");
    let points = cost["points"].as_array().expect("points");
    assert!(points.iter().all(|point| point["rate_hz"] == 199), "{cost}");
    assert!(points.iter().any(|point| point["cpu_percent"].as_f64() > Some(0.0)), "{cost}");
    assert_eq!(serving.end(Signal::SIGTERM).code(), Some(0));
}

/// Check that a recording is served, with the same samples as its report under each strategy.
#[test]
fn a_recording_is_served() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("run.fpprof");
    record_endless(&file, 1, &["--call-graph", "both"], &ENDLESS);
    let report = report(&file, &[]);
    let mut serving = Serving::start(&file);
    for strategy in ["dwarf", "fp"] {
        let answer = serving.answer(&format!("flamegraph?strategy={strategy}"));
        assert_eq!(answer["total"], json!(number(&report, "recorded")), "{strategy}");
        assert_eq!(
            answer["stacks"]["complete"].as_u64().unwrap_or(0),
            number(&report["strategies"][strategy], "complete")
        );
    }
    assert_eq!(serving.answer("facets")["choice"]["strategy"], "dwarf");
    assert_eq!(serving.end(Signal::SIGINT).code(), Some(0));
}
