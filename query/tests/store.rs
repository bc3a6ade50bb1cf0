//! Tests of `fpprof query` on stores that `fpprof record --live` makes; FPPROF_BIN is that program.

use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// A store with some intervals of a program that computes.
fn store() -> &'static Path {
    static STORE: OnceLock<PathBuf> = OnceLock::new();
    STORE.get_or_init(|| {
        let store = Path::new(env!("CARGO_TARGET_TMPDIR")).join("store");
        let _ = std::fs::remove_dir_all(&store);
        let fpprof = std::env::var_os("FPPROF_BIN").expect("FPPROF_BIN names fpprof");
        let record = ["record", "-q", "--live", "1s", "-F", "499", "--call-graph", "both", "-o"];
        let busy = ["--", "perl", "-e", "for (1 .. 6e7) {}"];
        let status = Command::new(fpprof).args(record).arg(&store).args(busy).status().expect("fpprof runs");
        assert!(status.success(), "{status}");
        store
    })
}

fn command(store: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fpprof-query"));
    command.arg("--store").arg(store).args(arguments).stdin(Stdio::null());
    command
}

fn query(store: &Path, arguments: &[&str]) -> Output {
    command(store, arguments).output().expect("it runs")
}

/// The rows of an answer as CSV, without the header.
fn rows(store: &Path, sql: &str) -> Vec<Vec<String>> {
    rows_of(query(store, &["--format", "csv", sql]), sql)
}

fn rows_of(Output { status, stdout, stderr }: Output, sql: &str) -> Vec<Vec<String>> {
    assert!(status.success(), "{sql}: {}", String::from_utf8_lossy(&stderr));
    let text = String::from_utf8(stdout).expect("text");
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

fn refused(store: &Path, sql: &str) -> String {
    let Output { status, stdout, stderr } = query(store, &[sql]);
    assert_eq!((status.code(), stdout.len()), (Some(1), 0), "{sql}");
    let error = String::from_utf8(stderr).expect("text");
    assert!(error.starts_with("fpprof query: ") && !error.contains("panicked"), "{error}");
    error
}

/// Check that the balance holds, that each strategy has what was stored, and that lists, maps and days can be used.
#[test]
fn sums_are_exact() {
    let of = |counter: &str| format!("SELECT sum(value) FROM counters WHERE counter = '{counter}' AND event <> ''");
    let sums = |counter: &str| rows(store(), &of(counter))[0][0].parse::<i64>().unwrap_or(0);
    let rest: i64 = ["recorded", "lost", "skipped", "dropped", "unread"].map(sums).iter().sum();
    assert_eq!(sums("fired"), rest);
    let stored = &rows(store(), "SELECT sum(value) FROM counters WHERE counter = 'stored'")[0][0];
    let by_strategy: BTreeMap<_, _> = rows(store(), "SELECT strategy, sum(samples) FROM stacks GROUP BY 1")
        .into_iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    assert_eq!(by_strategy.len(), 2, "{by_strategy:?}");
    assert!(by_strategy.values().all(|samples| samples == stored), "{by_strategy:?}: {stored}");
    let unnested = "SELECT sum(samples) FROM (SELECT samples, unnest(array_distinct(functions)) AS function FROM stacks \
                    WHERE strategy = 'dwarf' AND labels['none'] IS NULL) WHERE function = 'Perl_runops_standard'";
    let samples: i64 = rows(store(), unnested)[0][0].parse().expect("a number");
    assert!(samples > 0 && samples <= stored.parse().expect("a number"), "{samples} of {stored}");
    let days = rows(store(), "SELECT day, date_trunc('day', min(time)) FROM stacks GROUP BY 1 ORDER BY 1");
    assert!(!days.is_empty() && days.iter().all(|row| row[1].starts_with(&row[0])), "{days:?}");
}

/// Check the formats: the same number in each.
#[test]
fn formats_have_the_rows() {
    let sql = "SELECT 7 AS n, [1, 2] AS list";
    let text = |format: &str, sql: &str| {
        let Output { status, stdout, stderr } = query(store(), &["--format", format, sql]);
        (status.code(), String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned())
    };
    assert!(text("table", sql).1.contains("| 7 | [1, 2] |"));
    assert_eq!(text("json", sql).1, "{\"n\":7,\"list\":[1,2]}\n");
    assert_eq!(text("json", "SELECT NULL AS none, 7 AS n").1, "{\"none\":null,\"n\":7}\n");
    assert!(text("csv", sql).2.contains("column list: CSV has no lists"));
    assert_eq!(text("csv", "SELECT 7 AS n WHERE false").1, "n\n");
    assert!(text("table", "SELECT 7 AS n WHERE false").1.contains("| n |"));
}

/// Check that a query changes nothing, and that mistakes are named.
#[test]
fn what_is_no_question_is_refused() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("copied.csv");
    for sql in [
        &format!("COPY stacks TO '{}'", file.display()),
        "CREATE TABLE x AS SELECT 1",
        &format!("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{}'", file.display()),
        "INSERT INTO stacks SELECT * FROM stacks",
        "DROP TABLE stacks",
        "SET datafusion.execution.batch_size = 1",
    ] {
        assert!(refused(store(), sql).contains("not supported"), "{sql}");
    }
    assert!(!file.exists());
    assert!(refused(store(), "SELECT nothing FROM stacks").contains("nothing"));
    assert!(refused(store(), "SELEC 1").contains("SELEC"));
    refused(store(), "");
    refused(store(), &format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000)));
    assert!(refused(Path::new("/nonexistent"), "SELECT 1").contains("/nonexistent"));
    assert!(refused(Path::new("/usr"), "SELECT 1").contains("no store"));
    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty");
    ["stacks", "counters"].iter().for_each(|table| std::fs::create_dir_all(empty.join(table)).expect("made"));
    assert!(refused(&empty, "SELECT 1").contains("has not ended"));
    let damaged = Path::new(env!("CARGO_TARGET_TMPDIR")).join("damaged.parquet");
    std::fs::write(&damaged, "PAR1 and no more").expect("written");
    refused(&damaged, "SELECT * FROM stacks");
}

/// Check that a query that needs more memory than allowed is refused with the way out, and that small ones are not.
#[test]
fn memory_is_bounded() {
    let output =
        query(store(), &["--max-memory", "1", "SELECT a.* FROM stacks a CROSS JOIN stacks b ORDER BY a.functions"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(error.contains("more than 1 MB of memory") && error.contains("--max-memory"), "{error}");
    assert_eq!(rows_of(query(store(), &["--format", "csv", "--max-memory", "100", "SELECT 7"]), "7"), [["7"]]);
}

/// Check that files that are replaced by others during queries change no sum.
#[test]
fn merged_files_change_no_sum() {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moving");
    let _ = std::fs::remove_dir_all(&own);
    let copied = Command::new("cp").arg("-a").arg(store()).arg(&own).status().expect("cp runs");
    assert!(copied.success());
    let day = std::fs::read_dir(own.join("stacks")).expect("days").flatten().next().expect("a day").path();
    let beside = day.with_extension("beside");
    std::fs::create_dir(&beside).expect("made");
    for file in std::fs::read_dir(&day).expect("files").flatten() {
        let name = file.file_name().to_string_lossy().replace("Z-", "Z_-");
        std::fs::hard_link(file.path(), beside.join(name)).expect("linked");
    }
    let spare = own.join("spare");
    std::fs::rename(&beside, &spare).expect("moved");
    let sql = "SELECT sum(samples) FROM stacks";
    let before = rows(&own, sql);
    for n in 0..20 {
        let mut asked = command(&own, &["--format", "csv", sql]);
        let asked = asked.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        // As the agent exchanges a day for the merged one, at another moment of each query.
        std::thread::sleep(Duration::from_millis(4 * n));
        renameat_with(CWD, &day, CWD, &spare, RenameFlags::EXCHANGE).expect("exchanged");
        assert_eq!(rows_of(asked.wait_with_output().expect("it ends"), sql), before);
    }
}
