use super::{
    Attributed, Baselines, BetterWhen, Experiment, ExperimentEnvironment, ExperimentMethod, ExperimentRow, Measured,
    Metric, Run, SCHEMA, StackEnds, Stacks, Tool,
};
use crate::experiment::Aggregate;
use crate::statistics::Estimate;
use std::collections::BTreeMap;

fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|&(name, n)| (name.to_owned(), n)).collect()
}

/// A run of fpprof: 10 s, 100 samples fired, 90 recorded, 4 + 3 lost, 2 skipped, 1 dropped.
fn run(repeat: u32, bytes: u64, metric: f64) -> Run {
    Run {
        bytes: Measured::Value(bytes),
        fired: Measured::Value(100),
        recorded: Measured::Value(90),
        lost: Measured::Value(counts(&[("ring_full", 4), ("throttled", 3)])),
        skipped: Measured::Value(2),
        dropped: Measured::Value(1),
        lost_chunks: Measured::Value(2),
        collector_cpu_s: Measured::Value(0.5),
        collector_stop_cpu_s: Measured::Value(0.1),
        bpf_ns_per_sample: Measured::Value(800.0),
        attributed: Measured::Value(Attributed { on_target_percent: 1.5, all_percent: 2.5 }),
        max_rss_bytes: Measured::Value(1 << 20),
        ..Run::unrecorded(repeat, Measured::Value(10.0), Measured::Value(metric), "not in this test")
    }
}

fn experiment(better_when: BetterWhen, rows: Vec<ExperimentRow>) -> Experiment {
    let environment = ExperimentEnvironment {
        date: String::new(),
        machine: String::new(),
        cpu_model: "CPU".to_owned(),
        cpus: 1,
        memory_bytes: 0,
        kernel: "6.18".to_owned(),
        distribution: String::new(),
        versions: Vec::new(),
    };
    let metric = Metric { name: "m".to_owned(), unit: String::new(), regex: "m=(.*)".to_owned(), better_when };
    let mut experiment = Experiment {
        schema: SCHEMA,
        environment,
        command: vec!["true".to_owned()],
        rate: "999 Hz".to_owned(),
        event: "cpu-clock".to_owned(),
        repeats: 2,
        order: Vec::new(),
        metric: Some(metric),
        rows,
        notes: Vec::new(),
    };
    experiment.complete();
    experiment
}

fn alone(repeat: u32, metric: f64) -> Run {
    Run::unrecorded(repeat, Measured::Value(10.0), Measured::Value(metric), "nobody records")
}

fn mean(estimate: &Measured<Estimate>) -> f64 {
    estimate.value().expect("a mean").mean
}

fn close(got: f64, want: f64) {
    assert!((got - want).abs() < 1e-9 * want.abs().max(1.0), "got {got}, want {want}");
}

/// Check that means, sums and shares agree with hand-computed ones.
#[test]
fn sums_are_those_worked_by_hand() {
    let sums = Aggregate::new(&[run(0, 9_000, 1.0), run(1, 18_000, 3.0)], &Baselines::default());
    assert_eq!(sums.n, 2);
    close(mean(&sums.bytes), 13_500.0);
    // 9,000 / 90 = 100 and 18,000 / 90 = 200.
    close(mean(&sums.bytes_per_sample), 150.0);
    close(mean(&sums.metric), 2.0);
    // 0.5 s of 10 s.
    close(mean(&sums.collector_cpu_percent), 5.0);
    close(mean(&sums.max_rss_bytes), 1_048_576.0);
    assert_eq!(sums.samples.fired.value(), Some(&200));
    assert_eq!(sums.samples.lost.value(), Some(&counts(&[("ring_full", 8), ("throttled", 6)])));
    assert_eq!(sums.samples.n_lost(), Some(14));
    // (14 lost + 2 dropped) / (180 recorded + 14 + 2).
    close(sums.samples.lost_share().expect("a share"), 16.0 / 196.0);
    assert_eq!(sums.lost_chunks.value(), Some(&4));
    let balance = sums.balance.value().expect("a balance");
    assert_eq!((balance.runs, balance.exact, balance.worst_unaccounted), (2, 2, 0));
}

/// Check that a balance that does not hold is reported, with its sign, and the worst of several is kept.
#[test]
fn broken_balance_is_found() {
    let mut runs = [run(0, 1, 1.0), run(1, 1, 1.0), run(2, 1, 1.0)];
    runs[1].fired = Measured::Value(97);
    runs[2].recorded = Measured::Value(89);
    let sums = Aggregate::new(&runs, &Baselines::default());
    let balance = sums.balance.value().expect("a balance");
    assert_eq!((balance.runs, balance.exact, balance.worst_unaccounted), (3, 1, -3));
    runs[0].lost = Measured::Value(counts(&[("a", u64::MAX), ("b", u64::MAX)]));
    let sums = Aggregate::new(&runs, &Baselines::default());
    assert_eq!(sums.balance.value().expect("a balance").worst_unaccounted, i64::MIN);
}

/// Check that every comparison is made within a round, identified by its number and not its position.
#[test]
fn rounds_are_paired_by_number() {
    let none = vec![alone(0, 100.0), alone(1, 200.0), alone(2, 400.0)];
    // Round 2 first, round 1 missing: pairs (400, 200) and (100, 50).
    let treated = vec![run(2, 1, 200.0), run(0, 1, 50.0), run(7, 1, 1.0)];
    let rows = vec![
        ExperimentRow::new("none".to_owned(), Tool::Nobody, ExperimentMethod::None, None, none),
        ExperimentRow::new("fp".to_owned(), Tool::Fpprof, ExperimentMethod::Fp, None, treated),
    ];
    let higher = experiment(BetterWhen::Higher, rows.clone());
    let sums = &higher.rows[1].aggregate;
    let metric = sums.metric_vs_none.value().expect("a ratio");
    close(metric.ratio, 0.5);
    assert_eq!(metric.n, 2);
    // Half the throughput is twice as slow; half the latency is twice as fast.
    close(sums.slow_down.value().expect("a ratio").ratio, 2.0);
    let lower = experiment(BetterWhen::Lower, rows);
    close(lower.rows[1].aggregate.slow_down.value().expect("a ratio").ratio, 0.5);
}

/// Check that the first row without a recorder is the baseline, and that the second is compared with it.
#[test]
fn baseline_is_compared_with_itself() {
    let row = |label: &str, metric| {
        ExperimentRow::new(
            label.to_owned(),
            Tool::Nobody,
            ExperimentMethod::None,
            None,
            vec![alone(0, metric), alone(1, metric)],
        )
    };
    let sample = experiment(BetterWhen::Lower, vec![row("none", 10.0), row("none (again)", 11.0)]);
    assert_eq!(sample.rows[0].aggregate.slow_down.reason(), Some("no baseline"));
    close(sample.rows[1].aggregate.slow_down.value().expect("a ratio").ratio, 1.1);
}

/// Check that sizes are compared with the frame-pointer row of the same tool.
#[test]
fn sizes_are_compared_within_a_tool() {
    let row = |label: &str, tool, method, bytes| {
        ExperimentRow::new(label.to_owned(), tool, method, None, vec![run(0, bytes, 1.0), run(1, bytes, 1.0)])
    };
    let sample = experiment(
        BetterWhen::Lower,
        vec![
            row("perf fp", Tool::Perf, ExperimentMethod::Fp, 1_000),
            row("fp", Tool::Fpprof, ExperimentMethod::Fp, 100),
            row("dwarf,4096", Tool::Fpprof, ExperimentMethod::Dwarf, 300),
            row("perf dwarf,4096", Tool::Perf, ExperimentMethod::Dwarf, 7_000),
        ],
    );
    let times = |index: usize| sample.rows[index].aggregate.bytes_vs_fp.value().map(|times| times.ratio);
    assert_eq!((times(0), times(1)), (None, None));
    close(times(2).expect("a ratio"), 3.0);
    close(times(3).expect("a ratio"), 7.0);
}

/// Check that a sum is missing if any run lacks its part, and that a mean has the number of its runs.
#[test]
fn parts_are_not_shown_as_the_whole() {
    let mut runs = [run(0, 100, 1.0), run(1, 300, 1.0)];
    runs[1].fired = Measured::missing("perf does not count ticks");
    runs[1].bytes = Measured::missing("the file was lost");
    let sums = Aggregate::new(&runs, &Baselines::default());
    assert_eq!(sums.samples.fired.reason(), Some("perf does not count ticks"));
    assert_eq!(sums.bytes.value().map(|bytes| (bytes.mean, bytes.n)), Some((100.0, 1)));
    assert_eq!(sums.balance.value().map(|balance| balance.runs), Some(1));
    let empty = Aggregate::new(&[], &Baselines::default());
    assert_eq!((empty.n, empty.samples.recorded.reason()), (0, Some("no runs")));
    assert_eq!(empty.bytes.reason(), Some("no values"));
}

/// Check that stacks are added up by strategy and process name, reason by reason.
#[test]
fn stacks_are_added_up() {
    let ends = |complete, chunk_end| StackEnds {
        samples: complete + chunk_end,
        complete,
        truncated: counts(&[("chunk_end", chunk_end)]),
        broken: BTreeMap::new(),
    };
    let stacks = |strategy: &str, fio: StackEnds, flame_graph: Measured<String>| Stacks {
        strategy: strategy.to_owned(),
        unwound_by: None,
        processes: [("fio".to_owned(), fio), ("sh".to_owned(), ends(1, 0))].into(),
        flame_graph,
    };
    let mut runs = [run(0, 1, 1.0), run(1, 1, 1.0), run(2, 1, 1.0)];
    let file = Measured::Value("fio.svg".to_owned());
    runs[0].stacks = Measured::Value(vec![
        stacks("fp", ends(0, 9), Measured::missing("not drawn")),
        stacks("dwarf", ends(8, 1), Measured::missing("not drawn")),
    ]);
    runs[2].stacks = Measured::Value(vec![stacks("dwarf", ends(7, 2), file.clone())]);
    let sums = Aggregate::new(&runs, &Baselines::default());
    let strategies = sums.stacks.value().expect("stacks");
    assert_eq!(strategies.iter().map(|s| s.strategy.as_str()).collect::<Vec<_>>(), ["fp", "dwarf"]);
    let dwarf = &strategies[1];
    assert_eq!((dwarf.all.samples, dwarf.all.complete, dwarf.all.n_truncated(), dwarf.all.n_broken()), (20, 17, 3, 0));
    assert!(dwarf.all.adds_up());
    assert_eq!(dwarf.flame_graph, file);
    let names: Vec<_> = dwarf.processes.iter().map(|p| (p.name.as_str(), p.ends.samples)).collect();
    assert_eq!(names, [("fio", 18), ("sh", 2)]);
    assert_eq!(dwarf.processes[0].ends.truncated, counts(&[("chunk_end", 3)]));
}

/// Check that ends that do not add up are detected, even if a sum would overflow.
#[test]
fn ends_that_do_not_add_up_are_found() {
    let mut ends = StackEnds { samples: 3, complete: 2, truncated: counts(&[("no_cfi", 1)]), broken: BTreeMap::new() };
    assert!(ends.adds_up());
    ends.broken = counts(&[("loop", u64::MAX)]);
    assert!(!ends.adds_up());
    ends.add(&ends.clone());
    assert_eq!(ends.n_broken(), u64::MAX);
}

/// Check that a figure is serialised as an object with its value, a missing one with its reason, and that nothing else
/// is accepted.
#[test]
fn missing_figures_have_reasons() {
    let json = |measured: &Measured<u64>| serde_json::to_string(measured).unwrap();
    assert_eq!(json(&Measured::Value(0)), r#"{"value":0}"#);
    assert_eq!(json(&Measured::missing("why")), r#"{"value":null,"reason":"why"}"#);
    let read = |text| serde_json::from_str::<Measured<u64>>(text);
    assert_eq!(read(r#"{"value":7}"#).unwrap(), Measured::Value(7));
    assert_eq!(read(r#"{"value":null,"reason":"why"}"#).unwrap(), Measured::missing("why"));
    assert!(read(r#"{"value":null}"#).is_err());
    assert!(read("{}").is_err());
    assert!(read(r#"{"value":1,"reason":"why"}"#).is_err());
}
