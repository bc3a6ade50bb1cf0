//! Programs of many languages, compiler options and run-time libraries under the oracle of `fpprof verify`: `dwarf` is
//! never wrong without a flag unless libdw and libunwind are too, and the verdict of `report` on the same samples
//! agrees with the oracle. The test also makes the second table of `just truth`.

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
use support::{fpprof, number, ran};
use table::{Row, Table, percent};

/// Minimum number of checked instructions for a meaningful result.
const LEAST_CHECKED: u64 = 1000;
/// Turns between two windows of checked instructions.
const LEAP: &str = "200";
const RECORDING: &str = "checked.fpprof";
/// Minimum number of programs with a verdict.
const LEAST_VERDICTS: usize = 10;
/// Maximum difference in percentage points between a share in the report and the oracle's.
const MAX_DIFFERENCE: f64 = 1.0;

/// Why `dwarf` is wrong in the places that [`is_explained`] accepts.
const WHY: &str = "
Why ours, libdw and libunwind are wrong there: no row can say it.

- Exceptions of C++, D and Rust: before `_Unwind_Resume` or `_Unwind_RaiseException` of libgcc goes to the handler,
  `uw_install_context_1` writes the handler's registers into the slots where that function has saved its caller's. Until it
  goes there the frames are still on the stack, but the frame pointer of the caller is gone, and the row takes the handler's.
- `__longjmp` of glibc: its last rows tell where it jumps to and not who has called it. Their frame is the buffer that
  `setjmp` has filled, which is no place on the stack.
";

/// The list of programs in its file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    program: Vec<Entry>,
}

/// A program, or several that differ in compiler options.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    build: String,
    #[serde(default)]
    options: Vec<String>,
    run: Option<Vec<String>>,
}

/// A program to check.
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

/// The oracle's and the report's results for the same samples.
struct Checked {
    verification: Value,
    report: Value,
    /// The report's first line.
    verdict: String,
    /// Samples at the start of Go's new threads whose stack is broken there, by fp and by dwarf.
    new_threads: [u64; 2],
}

/// Builds and checks a program.
///
/// # Errors
/// If building or running the program fails; the error says why.
fn verify(subject: &Subject) -> Result<Checked, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let built = ran(Command::new("sh").args(["-ec", &subject.build]).current_dir(dir.path()));
    if built.status != 0 {
        return Err(format!("cannot be built: {}", built.stderr));
    }
    let mut command = fpprof();
    command.args(["verify", "--json", "--show", "100000", "--seed", "1", "--leap", LEAP]);
    command.args(["--recording", RECORDING, "--"]).args(&subject.run);
    let verification = json(&run_in(dir.path(), &mut command)?)?;
    if verification["run"]["ended"] != "exited with status 0" {
        return Err(format!("ended otherwise: {}", verification["run"]["ended"]));
    }
    let report = |options: &[&str]| {
        let mut command = fpprof();
        run_in(dir.path(), command.args(["report", RECORDING, "--strategies", "fp,dwarf"]).args(options))
    };
    let verdict = report(&[])?.lines().next().unwrap_or_default().to_owned();
    let new_threads = |strategy| -> Result<u64, String> {
        let mut command = fpprof();
        let folded = command.args(["export", RECORDING, "--format", "folded", "--strategy", strategy]);
        let folded = run_in(dir.path(), folded)?;
        let of_clone = folded.lines().filter_map(|line| line.rsplit_once(' ')).filter(|(stack, _)| {
            let frames: Vec<&str> = stack.split(';').skip(1).collect();
            matches!(*frames, [end, leaf] if end.starts_with('[') && leaf.starts_with("runtime.clone"))
        });
        Ok(of_clone.filter_map(|(_, n)| n.parse::<u64>().ok()).sum())
    };
    let new_threads = [new_threads("fp")?, new_threads("dwarf")?];
    Ok(Checked { verification, report: json(&report(&["--json"])?)?, verdict, new_threads })
}

/// Returns the standard output of a command.
///
/// # Errors
/// If it fails, with its error output.
fn run_in(dir: &Path, command: &mut Command) -> Result<String, String> {
    let ran = ran(command.current_dir(dir));
    if ran.status == 0 { Ok(ran.stdout) } else { Err(ran.stderr) }
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Checks all programs, two at a time.
fn verify_all(subjects: &[Subject]) -> Vec<Result<Checked, String>> {
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

/// Whether a strategy is wrong without a flag in a shown disagreement.
fn is_wrong(shown: &Value, strategy: &str) -> bool {
    let of_it = |stack: &&Value| stack["strategy"] == strategy;
    shown["stacks"].as_array().into_iter().flatten().find(of_it).is_some_and(|stack| stack["class"] == "wrong")
}

/// Whether `dwarf` is wrong without a flag and not both of the other unwinders are.
fn is_ours_alone(shown: &Value) -> bool {
    is_wrong(shown, "dwarf") && ["elfutils", "libunwind"].iter().any(|other| !is_wrong(shown, other))
}

/// Whether a place where `dwarf` is wrong is one of those explained in [`WHY`].
fn is_explained(shown: &Value) -> bool {
    let name = |frame: &Value| frame["name"].as_str().unwrap_or_default().to_owned();
    let truth: Vec<String> = shown["truth"].as_array().into_iter().flatten().map(name).collect();
    let is_installing = truth.get(1).is_some_and(|caller| caller.starts_with("_Unwind_"));
    is_installing || shown["culprit"].as_str().is_some_and(|culprit| culprit.starts_with("__longjmp "))
}

/// Differences between the report's and the oracle's shares, if the report gives a verdict.
fn differences(row: &Row, checked: &Checked) -> Vec<String> {
    let Checked { report, verdict, .. } = checked;
    let complete = number(&report["strategies"]["dwarf"], "complete");
    let of = |strategy, what| number(row.verdicts(strategy), what);
    // Stacks that both other unwinders have wrong as well may be reported as complete.
    let right = of("dwarf", "exact") - of("dwarf", "roots_missed");
    // Go's own function table says where its stacks end, in stripped programs too.
    let is_go = matches!(row.name.split(',').next(), Some("go" | "cgo"));
    let missed = ["fp", "dwarf"].map(|strategy| of(strategy, "roots_missed"));
    // A new thread is recognised once it sets up its stack, but not at the two instructions before.
    let missed = [missed[0].saturating_sub(checked.new_threads[0]), missed[1].saturating_sub(checked.new_threads[1])];
    let missed = (is_go && missed != [0, 0]).then(|| format!("{}: roots not recognised: {missed:?}", row.name));
    let mut shares = vec![("complete", complete, complete.clamp(right, right + row.wrong("dwarf")))];
    if has_verdict(checked) {
        let relations = report["agreements"][0]["relations"].as_object().expect("counts");
        let worse = relations.iter().filter(|(relation, _)| !["same", "longer"].contains(&relation.as_str()));
        let n_worse = worse.filter_map(|(_, n)| n.as_u64()).sum();
        shares.push(("not right with frame pointers", n_worse, row.checked - of("fp", "exact")));
    }
    let is_far = |ours, oracles| (percent(ours, row.checked) - percent(oracles, row.checked)).abs() > MAX_DIFFERENCE;
    let far = shares.into_iter().filter(|&(_, ours, oracles)| is_far(ours, oracles));
    let far =
        far.map(|(what, ours, oracles)| format!("{}: {ours} {what}, by the oracle {oracles}; {verdict}", row.name));
    far.chain(missed).collect()
}

/// Whether the report gives a verdict.
fn has_verdict(checked: &Checked) -> bool {
    !checked.verdict.contains("No verdict")
}

/// Check that `dwarf` is never wrong without a flag unless libdw and libunwind are too, and that the report's verdict
/// has the oracle's shares.
#[test]
fn many_programs_are_never_wrong_alone() {
    let subjects = subjects();
    let mut table = Table::new("Programs of many kinds against their true stacks", "verify-many", WHY);
    let (mut faults, mut n_verdicts) = (Vec::new(), 0);
    for (subject, checked) in subjects.iter().zip(verify_all(&subjects)) {
        match checked {
            Ok(checked) => {
                table.add(&subject.name, checked.verification.clone());
                faults.extend(table.rows().last().map(|row| differences(row, &checked)).unwrap_or_default());
                n_verdicts += usize::from(has_verdict(&checked));
            }
            Err(fault) => faults.push(format!("{}: {fault}", subject.name)),
        }
    }
    table.publish(|shown| is_wrong(shown, "dwarf"));
    if n_verdicts < LEAST_VERDICTS {
        faults.push(format!("only {n_verdicts} verdicts"));
    }
    for row in table.rows() {
        let shown = row.report["disagreements"].as_array().into_iter().flatten();
        let bad = shown.filter(|shown| is_ours_alone(shown) || is_wrong(shown, "dwarf") && !is_explained(shown));
        faults.extend(bad.map(|shown| format!("{}: wrong at {}, {}", row.name, shown["culprit"], shown["row"])));
        // A place is shown only with the first stack of its kind; the counts include the others.
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
