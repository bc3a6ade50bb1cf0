//! Exports opened in their target programs: the importers of the Firefox Profiler and of speedscope, and the
//! OpenTelemetry Collector's reader.
//!
//! `just viewers` installs them. Go's pprof and inferno are in `tests/live/formats.rs`.

#[path = "../../reports/tests/support/browser.rs"]
#[expect(dead_code, reason = "every test binary uses a part of it")]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "what helps a test fails by panicking")]
mod browser;
#[path = "../support/mod.rs"]
mod support;

use base64::Engine as _;
use browser::Browser;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use support::{fpprof, number, ran, record, report};

const VIEWERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/viewers");

fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// A recording of nbdkit and fio that all tests share.
fn recording() -> &'static Path {
    static RECORDING: OnceLock<PathBuf> = OnceLock::new();
    RECORDING.get_or_init(|| {
        let file = target().join("viewers");
        let workload = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/nbdkit-fio.sh");
        record(&file, &["--call-graph", "both,65536"], &[workload, "3"]);
        file
    })
}

fn exported(format: &str) -> PathBuf {
    let file = target().join(format!("viewers.{format}"));
    let run = ran(fpprof().arg("export").arg(recording()).args(["--format", format, "-o"]).arg(&file));
    assert_eq!(run.status, 0, "{}", run.stderr);
    file
}

fn printed(command: &mut Command) -> String {
    let run = ran(command);
    assert_eq!(run.status, 0, "{command:?}: {}{}", run.stdout, run.stderr);
    run.stdout
}

/// Check that the Firefox Profiler finds as many samples as were recorded, and fio's functions in the busiest thread.
#[test]
fn the_firefox_profiler_reads_it() {
    let sessions = target().join("profiler-cli");
    let command = |args: &[&str]| {
        let mut command = Command::new(format!("{VIEWERS}/node_modules/.bin/profiler-cli"));
        command.env("HOME", &sessions).args(args);
        command
    };
    let cli = |args: &[&str]| printed(&mut command(args));
    std::fs::create_dir_all(&sessions).expect("a directory of our own");
    let file = exported("firefox");
    // It waits half a second for its server to start, which is too short on a busy machine.
    let is_loaded = (0..30).any(|_| {
        let loaded = ran(&mut command(&["load", file.to_str().expect("UTF-8")])).status == 0;
        if !loaded {
            ran(&mut command(&["stop", "--all"]));
        }
        loaded
    });
    assert!(is_loaded, "profiler-cli does not load {}", file.display());
    let json = |args: &[&str]| -> Value { serde_json::from_str(&cli(&[args, &["--json"]].concat())).expect("JSON") };
    let functions = cli(&["thread", "functions"]);
    let threads = json(&["thread", "list"]);
    let threads = threads["threads"].as_array().expect("threads").clone();
    let samples = |thread: &Value| {
        let handle = thread["threadHandle"].as_str().expect("a handle");
        number(&json(&["thread", "samples", "--thread", handle, "--include-idle"])["categoryBreakdown"], "totalSamples")
    };
    let n: u64 = threads.iter().map(samples).sum();
    cli(&["stop", "--all"]);
    assert_eq!(n, number(&report(recording(), &[]), "recorded"));
    assert!(functions.contains("fio!td_io_queue"), "{functions}");
}

/// Check that speedscope opens the export in a browser, without an error, and lists fio's functions.
#[test]
fn speedscope_reads_it() {
    let encoded =
        base64::engine::general_purpose::STANDARD.encode(std::fs::read(exported("speedscope")).expect("it is there"));
    let script = target().join("viewers.speedscope.js");
    std::fs::write(&script, format!("speedscope.loadFileFromBase64('nbdkit and fio', '{encoded}')")).expect("written");
    let page =
        format!("{VIEWERS}/node_modules/speedscope/dist/release/index.html#localProfilePath={}", script.display());
    let mut browser = Browser::start(1200, 800);
    browser.open_without_script(Path::new(&page));
    let shows = |browser: &mut Browser, text: &str| {
        let look = format!(
            "new Promise(done => {{ const end = Date.now() + 30000; const look = () => \
             document.body.innerText.includes({text:?}) ? done(true) : \
             Date.now() > end ? done(document.body.innerText) : setTimeout(look, 50); look(); }})"
        );
        let found = browser.eval(&look);
        assert_eq!(found, Value::Bool(true), "{text} is not shown; {:?}", browser.errors);
    };
    // The busiest of more than 40 threads.
    shows(&mut browser, "fio (");
    // The table of functions, the hottest first.
    browser.key("3");
    shows(&mut browser, "Symbol Name");
    shows(&mut browser, "libnbd.so.0");
    let failures =
        browser.errors.iter().filter(|message| message.contains("exception") || message.contains(r#""type":"error""#));
    assert_eq!(failures.count(), 0, "{:?}", browser.errors);
}

/// Check that the Collector's own code finds every sample, and as many complete stacks as the report.
#[test]
fn the_collector_reads_it() {
    let reader = target().join("viewers-otlp");
    let built =
        Command::new("go").args(["build", "-o"]).arg(&reader).arg(".").current_dir(format!("{VIEWERS}/otlp")).status();
    assert!(built.expect("go is needed").success());
    let samples: Value = serde_json::from_str(&printed(Command::new(reader).arg(exported("otlp")))).expect("JSON");
    let n: u64 = samples.as_object().expect("an object").values().filter_map(Value::as_u64).sum();
    let report = report(recording(), &[]);
    assert_eq!(n, number(&report, "recorded"));
    assert_eq!(number(&samples, "complete"), number(&report["strategies"]["dwarf"], "complete"));
}
