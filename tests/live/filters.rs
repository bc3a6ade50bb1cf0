//! Filters of a recording: threads, times, and the callers of one function.

use crate::support::{assert_balance, compile, fpprof, number, ran, record, report, source};
use serde_json::Value;
use std::path::Path;

/// Records the program for at least three times 200 ms of CPU time.
fn recorded(file: &Path) {
    let program = file.with_file_name("callers");
    compile("gcc", &["-O1", "-g", "-pthread"], &program, &source("callers.c"));
    record(file, &["--call-graph", "dwarf"], &[program.to_str().expect("a path"), "200"]);
}

/// The samples that pass a filter. The balance stays that of the whole recording.
fn filtered(file: &Path, whole: &Value, options: &[&str]) -> u64 {
    let part = report(file, options);
    assert_balance(&part);
    assert_eq!(number(&part, "fired"), number(whole, "fired"), "{options:?}");
    let of_stacks = part.pointer("/strategies/dwarf").expect("stacks by DWARF");
    let without = of_stacks.get("no_stack").and_then(Value::as_object);
    let without = without.map_or(0, |all| all.values().filter_map(Value::as_u64).sum::<u64>());
    let n = part.get("filtered").map(|filtered| number(filtered, "samples")).expect("a filter");
    assert_eq!(number(of_stacks, "samples") + without, n, "{options:?}");
    n
}

/// Check that two names, two threads and two halves of the time add up to the whole, that conditions are combined, that
/// every command that shows stacks applies them, and that a filter without samples is an error that lists the existing
/// names.
#[test]
fn parts_make_the_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("run.fpprof");
    recorded(&file);
    let whole = report(&file, &[]);
    let all = number(&whole, "recorded");
    assert!(whole.get("filtered").is_none());
    let of_other = filtered(&file, &whole, &["--comm", "other one"]);
    assert!(of_other > 0);
    assert_eq!(filtered(&file, &whole, &["--comm", "other one", "--comm", "callers"]), all);
    let of_main = filtered(&file, &whole, &["--comm", "callers"]);
    assert_eq!(of_main + of_other, all);
    let pid = number(&whole["processes"][0], "pid").to_string();
    assert_eq!(filtered(&file, &whole, &["--pid", &pid]), all);
    // The main thread's tid is the pid. The other thread has the same name until it sets its own.
    let of_first = filtered(&file, &whole, &["--tid", &pid]);
    assert!(of_first > 0 && of_first <= of_main, "{of_first} of {of_main}");
    let (early, late) =
        (filtered(&file, &whole, &["--time", "..0.15"]), filtered(&file, &whole, &["--time", "0.15.."]));
    assert!(early > 0 && late > 0, "{early} and {late}");
    assert_eq!(report(&file, &["--time", "0.05..0.15"])["filtered"]["duration_s"], 0.1, "rates are of that time");
    assert_eq!(early + late, all);
    assert!(filtered(&file, &whole, &["--time", "0.15..", "--comm", "other one"]) <= of_other);

    let folded = ran(fpprof().arg("export").arg(&file).args(["--comm", "other one"]));
    assert_eq!(folded.status, 0, "{}", folded.stderr);
    assert!(folded.stdout.lines().all(|line| line.starts_with("other one;")), "{}", folded.stdout);
    let samples = folded.stdout.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    assert_eq!(samples.sum::<u64>(), of_other);
    let words = ran(fpprof().arg("report").arg(&file).args(["--comm", "other one"])).stdout;
    assert!(words.contains("--comm 'other one'"), "{words}");

    let of_processes = format!("no sample matches --pid 0; the recording has processes {pid} (callers)");
    for (options, expected) in [
        (
            &["--comm", "nobody"][..],
            "no sample matches --comm nobody; the recording has threads named callers, other one",
        ),
        (&["--event", "cpu-clock", "--tid", "0"], "no sample matches --event cpu-clock --tid 0; the recording has"),
        (&["--tid", "0"], "no sample matches --tid 0; the recording has threads named callers, other one"),
        (
            &["--time", "3600.."],
            "no sample matches --time 3600..; nothing was sampled then, or the recording is shorter",
        ),
        (&["--pid", "0"], of_processes.as_str()),
    ] {
        let ran = ran(fpprof().arg("report").arg(&file).args(options));
        assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{options:?}");
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    let of_nobody = ran(fpprof().arg("diff").arg(&file).args(["--strategies", "dwarf,dwarf@4K", "--comm", "nobody"]));
    assert_eq!(of_nobody.status, 1, "{}", of_nobody.stdout);
    assert!(of_nobody.stderr.contains("no sample matches --comm nobody"), "{}", of_nobody.stderr);
    for wrong in ["5", "..", "5..2", "x..", "-1.."] {
        let ran = ran(fpprof().arg("report").arg(&file).arg(format!("--time={wrong}")));
        assert_eq!(ran.status, 2, "{wrong}: {}", ran.stderr);
    }
}

/// Check that a function's callers have the shares that the program gives them, and that its own samples and its
/// callees add up to its total.
#[test]
fn callers_and_callees() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("run.fpprof");
    recorded(&file);
    let found = report(&file, &["--function", "burn"]);
    let (total, own) = (number(&found, "total"), number(&found, "self"));
    let amounts = |list: &Value| -> Vec<(String, u64)> {
        let list = list.as_array().expect("a list").iter();
        list.map(|call| (call["function"].as_str().unwrap_or("").to_owned(), number(call, "amount"))).collect()
    };
    let callers = amounts(&found["callers"]);
    let names: Vec<&str> = callers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["thread", "often", "seldom"], "{found}");
    assert_eq!(callers.iter().map(|(_, n)| n).sum::<u64>(), total);
    assert_eq!(amounts(&found["callees"]).iter().map(|(_, n)| n).sum::<u64>() + own, total);
    let outer = report(&file, &["--function", "often"]);
    assert_eq!(
        (number(&outer, "self") + number(&outer["callees"][0], "amount"), &outer["callees"][0]["function"]),
        (number(&outer, "total"), &Value::from("burn")),
        "{outer}"
    );
    let ran = ran(fpprof().arg("report").arg(&file).args(["--function", "BUR"]));
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("no stack has a function named BUR; similar: burn"), "{}", ran.stderr);
}
