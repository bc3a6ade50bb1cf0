//! Programs of many languages, options of compilers and run-time libraries under the oracle of `fpprof verify`: ours is never
//! wrong in silence, but where libdw and libunwind are too. The test also makes the second table of `just truth`.

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/verify_table.rs"]
mod table;

use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{fpprof, ran};
use table::Table;

/// The fewest instructions that say anything about a program.
const LEAST_CHECKED: u64 = 1000;
/// Turns between two windows in which instructions are checked.
const LEAP: &str = "200";

/// The programs, as their file has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    program: Vec<Entry>,
}

/// A program, or several that differ in the compiler's options.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    build: String,
    #[serde(default)]
    options: Vec<String>,
    run: Option<Vec<String>>,
}

/// A program.
struct Subject {
    name: String,
    build: String,
    run: Vec<String>,
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/many")
}

fn subjects() -> Vec<Subject> {
    let text = std::fs::read_to_string(sources().join("programs.toml")).expect("the manifest is there");
    let manifest: Manifest = toml::from_str(&text).expect("the manifest is right");
    manifest.program.into_iter().flat_map(subjects_of).collect()
}

fn subjects_of(entry: Entry) -> Vec<Subject> {
    let run = entry.run.unwrap_or_else(|| vec!["./p".to_owned()]);
    let options = if entry.options.is_empty() { vec![String::new()] } else { entry.options };
    let of = |option: &String| Subject {
        name: entry.name.replace("{option}", option),
        build: entry.build.replace("{option}", option).replace("{sources}", &sources().display().to_string()),
        run: run.clone(),
    };
    options.iter().map(of).collect()
}

/// Builds and checks a program.
///
/// # Errors
/// What went wrong, of the building or of the program.
fn verify(subject: &Subject) -> Result<Value, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let built = ran(Command::new("sh").args(["-ec", &subject.build]).current_dir(dir.path()));
    if built.status != 0 {
        return Err(format!("cannot be built: {}", built.stderr));
    }
    let mut command = fpprof();
    command.args(["verify", "--json", "--show", "100000", "--seed", "1", "--leap", LEAP, "--"]);
    let ran = ran(command.args(&subject.run).current_dir(dir.path()));
    let report: Value = serde_json::from_str(&ran.stdout).map_err(|error| format!("{error}: {}", ran.stderr))?;
    if report["run"]["ended"] != "exited with status 0" {
        return Err(format!("ended otherwise: {}", report["run"]["ended"]));
    }
    Ok(report)
}

/// All of them, two at a time.
fn verify_all(subjects: &[Subject]) -> Vec<Result<Value, String>> {
    let (next, reports) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((index, subject)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            subjects.get(index).map(|subject| (index, subject))
        } {
            let report = verify(subject);
            reports.lock().expect("no other panics").push((index, report));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let mut reports = reports.into_inner().expect("no thread panicked");
    reports.sort_by_key(|(index, _)| *index);
    reports.into_iter().map(|(_, report)| report).collect()
}

/// Whether a strategy is wrong in silence in a stack that not all have right.
fn is_wrong(shown: &Value, strategy: &str) -> bool {
    let of_it = |stack: &&Value| stack["strategy"] == strategy;
    shown["stacks"].as_array().into_iter().flatten().find(of_it).is_some_and(|stack| stack["class"] == "wrong")
}

/// Whether ours is wrong in silence where not both of the others are.
fn is_ours_alone(shown: &Value) -> bool {
    is_wrong(shown, "dwarf") && ["elfutils", "libunwind"].iter().any(|other| !is_wrong(shown, other))
}

/// Check that ours is never wrong in silence, but where libdw and libunwind are too.
#[test]
fn many_programs_are_never_wrong_alone() {
    let subjects = subjects();
    let mut table = Table::new("Programs of many kinds against their true stacks", "verify-many");
    let mut faults = Vec::new();
    for (subject, report) in subjects.iter().zip(verify_all(&subjects)) {
        match report {
            Ok(report) => table.add(&subject.name, report),
            Err(fault) => faults.push(format!("{}: {fault}", subject.name)),
        }
    }
    table.publish(|shown| is_wrong(shown, "dwarf"));
    for row in table.rows() {
        let shown = row.report["disagreements"].as_array().into_iter().flatten();
        let alone = shown.filter(|shown| is_ours_alone(shown));
        faults.extend(alone.map(|shown| format!("{}: wrong at {}, {}", row.name, shown["culprit"], shown["row"])));
        // A place is shown with the first stack of its kind only: the others of it count here.
        let least = row.wrong("elfutils").min(row.wrong("libunwind"));
        if row.wrong("dwarf") > least {
            faults.push(format!("{}: {} stacks wrong without a flag, another's {least}", row.name, row.wrong("dwarf")));
        }
        if row.checked < LEAST_CHECKED {
            faults.push(format!("{}: only {} instructions were checked", row.name, row.checked));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
