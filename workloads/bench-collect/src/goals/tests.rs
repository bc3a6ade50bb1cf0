use super::*;
use crate::judge::Judged;

fn one_run(key: Mode, rate: u64, round: u32, figures: Figures) -> Run {
    Run { key, mode: key.to_string(), rate, round, figures: Some(figures), error: None }
}

fn ours(iops: f64, bytes: u64, lost: &[(&str, u64)]) -> Figures {
    let lost_by_cause: BTreeMap<String, u64> = lost.iter().map(|&(cause, n)| (cause.to_owned(), n)).collect();
    let judged = Judged {
        recorded: Some(1000),
        lost: Some(lost_by_cause.values().sum()),
        lost_by_cause,
        stacks: Some(1000),
        complete: Some(999),
        ..Judged::default()
    };
    let (start_s, stop_s, svg_s) = (0.1, 0.01, Some(0.2));
    Figures { iops, iops_without: None, bytes, judged, start_s, stop_s, svg_s, cpu_s: 0.1, max_rss_bytes: 40_000_000 }
}

fn found<'a>(goals: &'a [Goal], beginning: &str) -> &'a Goal {
    goals.iter().find(|goal| goal.goal.starts_with(beginning)).expect("a goal of that name")
}

/// Check that the median of the rounds decides, and that a loss in any round counts and is reported with its cause.
#[test]
fn rounds_decide() {
    let runs = vec![
        one_run(DWARF, USUAL, 0, ours(100.0, 140_000, &[])),
        one_run(DWARF, USUAL, 1, ours(100.0, 149_000, &[("nested", 1)])),
        one_run(DWARF, USUAL, 2, ours(100.0, 190_000, &[])),
        one_run(FP, USUAL, 0, ours(101.0, 12_100, &[])),
        one_run(DWARF, FAST, 0, ours(100.0, 60_000, &[("ring_full", 1)])),
    ];
    let goals = GoalRuns { rounds: 3, seconds: 5, runs, rustc: Some((1000, 989)) }.goals(&[]);
    let verdict = |beginning| found(&goals, beginning).is_reached;
    assert_eq!((verdict("complete stacks of nbdkit"), verdict("their bytes")), (Some(true), Some(true)));
    assert_eq!(found(&goals, "their bytes").measured, "149.0 B (140.0–190.0, n = 3)");
    assert_eq!(
        (verdict("bytes a sample on disk, fp"), verdict("complete stacks of rustc")),
        (Some(false), Some(false))
    );
    assert_eq!((verdict("lost at 999"), verdict("lost at 4999")), (Some(false), Some(true)));
    assert_eq!(found(&goals, "lost at 999").measured, "1 of 3001 (1 nested), 0.033 %, 3 rounds together");
    assert_eq!((verdict("end of the command"), verdict("start")), (Some(true), Some(true)));
}

/// Check that a goal without measurements is neither reached nor missed, and that one pair of runs decides nothing.
#[test]
fn nothing_is_made_up() {
    let none = GoalRuns { rounds: 1, seconds: 5, runs: Vec::new(), rustc: None };
    for goal in none.goals(&[]) {
        assert_eq!((goal.is_reached, goal.measured.as_str()), (None, "–"), "{}", goal.goal);
        assert!(goal.line().ends_with("| not measured |\n"), "{}", goal.line());
    }
    let runs = vec![one_run(DWARF, USUAL, 0, ours(1.0, 1, &[])), one_run(FP, USUAL, 0, ours(9.0, 1, &[]))];
    let goals = GoalRuns { rounds: 1, runs, ..none }.goals(&[]);
    assert_eq!(found(&goals, "slow-down").is_reached, None);
}

/// Check that a slow-down beyond the interval is reported, unless the time of the BPF program explains it.
#[test]
fn slow_downs_are_explained() {
    let iops = [(100.0, 101.0), (100.0, 101.1), (100.0, 100.9)];
    let runs = (0..).zip(iops).flat_map(|(round, (dwarf, fp))| {
        [one_run(DWARF, USUAL, round, ours(dwarf, 1, &[])), one_run(FP, USUAL, round, ours(fp, 1, &[]))]
    });
    let runs = GoalRuns { rounds: 3, seconds: 5, runs: runs.collect(), rustc: None };
    let cost = |dwarf_ns: f64| BpfCost {
        stack_bytes: 65_536,
        record_bytes: 65_536.0,
        ns_per_sample: vec![vec![500.0], vec![dwarf_ns], vec![dwarf_ns]],
        memcpy_ns: vec![2000.0],
        hot_memcpy_ns: vec![1500.0],
        handler: None,
    };
    assert_eq!(found(&runs.goals(&[cost(2500.0)]), "slow-down").is_reached, Some(false));
    assert_eq!(found(&runs.goals(&[cost(12_500.0)]), "slow-down").is_reached, Some(true));
    let goals = runs.goals(&[cost(2500.0)]);
    assert_eq!(
        found(&goals, "BPF program, chunk").measured,
        "2500 ns (2500–2500, n = 1); memcpy of as much: 2000 ns (2000–2000, n = 1)"
    );
}
