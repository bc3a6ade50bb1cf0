//! Programs with known stacks: each is recorded, and every strategy must give the manifest's stacks.
//!
//! The test also makes the table of `just truth`: the quality of each strategy's stacks, by program and compiler.
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

mod folded;
mod judge;
#[path = "../support/mod.rs"]
mod support;
mod table;

use folded::{chain_faults, least};
use fpprof_analysis::oracle::check_strategy;
use fpprof_analysis::strategy::Strategy;
use fpprof_workloads::{Compiler, Program, build_with, programs};
use judge::{Verdict, judge};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::stacks::stacks;
use support::{assert_balance, fpprof, number, ran, report};
use table::{Counts, Row, Table};

/// Strategies of one recording, frame pointers first; those of external libraries if they are built in.
const STRATEGIES: [&str; 6] = ["fp", "dwarf", "dwarf@8192", "elfutils", "libunwind", "sframe"];
/// Minimum share of exact `dwarf` stacks where call frame information covers all frames, per cent.
const LEAST_EXACT: f64 = 99.5;
/// Maximum share of stacks that are wrong without a flag, over all programs, per cent.
const MOST_WRONG: f64 = 0.1;
/// Maximum difference in percentage points between the true error rate of frame pointers and the one estimated without
/// the truth.
const MOST_OFF: f64 = 1.0;

/// The results of one program's recording.
struct Outcome {
    counts: Option<Counts>,
    faults: Vec<String>,
}

fn strategies() -> Vec<Strategy> {
    let all = STRATEGIES.iter().map(|name| name.parse::<Strategy>().expect("a strategy"));
    all.filter(|&strategy| check_strategy(strategy).is_ok()).collect()
}

/// Columns of the table: those strategies, and walks in the kernel, which need a separate recording.
fn columns() -> Vec<Strategy> {
    strategies().into_iter().chain([Strategy::Cfi]).collect()
}

fn record_and_judge(program: &Program, compiler: Compiler) -> Outcome {
    let dir = tempfile::tempdir().expect("a directory");
    let files = || {
        // Built for each recording: one program deletes itself.
        let recorded = |mode: &str, name: &str| {
            let built = build_with(program, compiler, &dir.path().join(name)).map_err(|error| error.to_string())?;
            record(program, &built, mode, &dir.path().join(name).join("recording"))
        };
        let copied = recorded(&format!("both,{}", program.chunk_bytes), "copied")?;
        Ok((copied, recorded(&format!("cfi,{},fp", program.chunk_bytes), "walked")?))
    };
    let (copied, walked) = match files() {
        Ok(files) => files,
        Err(fault) => return Outcome { counts: None, faults: vec![fault] },
    };
    let mut counts = judge(program, &copied, &strategies());
    if compiler != Compiler::Gcc {
        // Other compilers write no .sframe sections.
        strategies()
            .iter()
            .zip(&mut counts.classes)
            .filter(|(strategy, _)| **strategy == Strategy::Sframe)
            .for_each(|(_, of_it)| *of_it = [0; 4]);
    }
    counts.classes.extend(judge(program, &walked, &[Strategy::Fp, Strategy::Cfi]).classes.pop());
    let mut faults = faults(program, &copied);
    let walks = report(&walked, &[]);
    assert_balance(&walks);
    let different = walks.pointer("/kernel_walks/different").and_then(serde_json::Value::as_u64);
    faults.extend(different.filter(|&n| n > 0).map(|n| format!("cfi: {n} walks are not those of their copied stacks")));
    Outcome { counts: Some(counts), faults }
}

/// Records a program; returns the recording, or the reason why there is none.
fn record(program: &Program, built: &Path, call_graph: &str, file: &Path) -> Result<PathBuf, String> {
    let file = file.to_owned();
    let mut record = fpprof();
    record.args(["record", "-q", "-F", "997", "--call-graph", call_graph, "-o"]).arg(&file).arg("--");
    let dir = built.parent().expect("a directory");
    let recorded = ran(record.arg(built).arg("1").args(program.arguments).current_dir(dir));
    if recorded.status == 0 || file.exists() { Ok(file) } else { Err(recorded.stderr) }
}

/// The deviations of a program's recording from its manifest.
fn faults(program: &Program, file: &Path) -> Vec<String> {
    let summary = report(file, &[]);
    assert_balance(&summary);
    let (dwarf, fp) = (stacks(file, "dwarf"), stacks(file, "fp"));
    let mut faults: Vec<String> = program.chains.iter().flat_map(|chain| chain_faults(chain, &dwarf, &fp)).collect();
    let never = dwarf.iter().filter(|stack| stack.names.iter().any(|name| program.never.contains(&name.as_str())));
    faults.extend(never.map(|stack| format!("never on the stack: {}", stack.names.join("<"))));
    let by_fp = summary.pointer("/strategies/fp").expect("fp was analysed");
    let (suspects, samples) = (number(by_fp, "leaf_skip_suspects"), number(by_fp, "samples"));
    let suspected = program.chains.iter().filter(|chain| chain.fp.iter().any(|outcome| outcome.is_leaf_skip_suspect));
    let too_few = suspected.map(|chain| least(chain, samples)).filter(|&wanted| suspects < wanted);
    faults.extend(
        too_few
            .map(|wanted| format!("fp: {suspects} of {samples} say that the leaf's caller is missing, not {wanted}")),
    );
    faults
}

/// Runs every program with each of its compilers, in the order of the manifest.
fn all_outcomes() -> (Vec<Row>, Vec<String>) {
    let pairs: Vec<(&Program, Compiler)> = programs()
        .iter()
        .flat_map(|program| program.compilers.iter().map(move |&compiler| (program, compiler)))
        .collect();
    // A program that chooses process ids affects those of all others, so it runs alone.
    let is_alone = |program: &Program| program.name == "pid_reuse";
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(program, compiler)) = pairs.get(index) else { break };
            if is_alone(program) {
                continue;
            }
            let outcome = record_and_judge(program, compiler);
            outcomes.lock().expect("no other panics").push((index, outcome));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(work);
        }
    });
    let mut outcomes = outcomes.into_inner().expect("no thread panicked");
    for (index, &(program, compiler)) in pairs.iter().enumerate().filter(|(_, (program, _))| is_alone(program)) {
        outcomes.push((index, record_and_judge(program, compiler)));
    }
    outcomes.sort_by_key(|(index, _)| *index);
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    for (index, outcome) in outcomes {
        let (program, compiler) = pairs[index];
        let who = format!("{} with {} ({})", program.name, compiler.name(), program.about);
        faults.extend(outcome.faults.into_iter().map(|fault| format!("{who}: {fault}")));
        rows.extend(outcome.counts.map(|counts| Row { program: program.name, compiler: compiler.name(), counts }));
    }
    (rows, faults)
}

/// Writes the table to the build's target directory, and prints it.
fn publish(table: &Table) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/truth");
    let json = serde_json::to_string_pretty(&table.json()).expect("plain values");
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    std::fs::write(folder.join("truth.md"), table.markdown()).expect("the table can be written");
    std::fs::write(folder.join("truth.json"), json + "\n").expect("the table can be written");
    #[expect(clippy::print_stdout, reason = "what `just truth` is for")]
    {
        println!("{}\nwritten to {}", table.markdown(), folder.display());
    }
}

/// The totals that exceed the limits.
fn beyond_limits(table: &Table) -> Vec<String> {
    let (real, suspected) = table.described.fp_errors();
    let of_ours = [Strategy::Dwarf, Strategy::Cfi].map(|strategy| {
        let exact = table.described.percent(table.index(strategy), Verdict::Exact);
        let wrong = table.all.percent(table.index(strategy), Verdict::Wrong);
        [
            (
                exact < LEAST_EXACT,
                format!("{strategy}: {exact:.3} % exact where all is described, not {LEAST_EXACT} %"),
            ),
            (wrong > MOST_WRONG, format!("{strategy}: {wrong:.3} % wrong without a flag, more than {MOST_WRONG} %")),
        ]
    });
    // What the assembler omits from .sframe is no fault of a walk.
    let mut sframe = Counts::new(table.strategies.len(), false);
    table.rows.iter().filter(|row| row.program != "hand_switch").for_each(|row| sframe.add(&row.counts));
    let sframe = sframe.percent(table.index(Strategy::Sframe), Verdict::Wrong);
    let checks = [
        (sframe > MOST_WRONG, format!("sframe: {sframe:.3} % wrong without a flag, more than {MOST_WRONG} %")),
        (
            (real - suspected).abs() > MOST_OFF,
            format!("fp: {real:.2} % not right, but {suspected:.2} % by disagreement: more than {MOST_OFF} apart"),
        ),
        (table.described.n_judged == 0, "no sample was judged".to_owned()),
    ];
    of_ours.into_iter().flatten().chain(checks).filter(|(is_beyond, _)| *is_beyond).map(|(_, words)| words).collect()
}

/// Check that every program's stacks match its manifest under both strategies: complete where possible, else truncated
/// or broken with the reason, and never a wrong frame reported as right. Over all programs, nearly all `dwarf` stacks
/// must be exact, hardly any wrong without a flag, and the error rate of frame pointers must be estimated correctly
/// without the truth.
#[test]
fn every_program_gives_its_stacks() {
    let (rows, mut faults) = all_outcomes();
    let table = Table::new(&columns(), rows);
    publish(&table);
    faults.extend(beyond_limits(&table));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
