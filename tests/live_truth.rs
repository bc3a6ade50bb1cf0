//! Programs whose stacks are known: each is recorded, and every strategy must say what its manifest says.

mod support;

use fpprof_workloads::{Chain, Outcome, Program, build, programs};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{assert_balance, fpprof, number, ran, report};

/// One distinct user stack of a recording: names leaf first, class and name of its stop reason, samples.
struct Stack {
    names: Vec<String>,
    class: String,
    stop: String,
    samples: u64,
}

/// The user stacks of a recording under a strategy, from the folded export.
fn stacks(file: &Path, strategy: &str) -> Vec<Stack> {
    let folded = ran(fpprof().arg("export").arg(file).args(["--format", "folded", "--strategy", strategy]));
    assert_eq!(folded.status, 0, "{}", folded.stderr);
    folded.stdout.lines().filter_map(stack).collect()
}

/// `comm;[truncated: reason];main;burn 42`, root first; `None` for a stack that is all kernel.
fn stack(line: &str) -> Option<Stack> {
    let (frames, samples) = line.rsplit_once(' ')?;
    let mut frames = frames.split(';').skip(1).peekable();
    let marker = frames.next_if(|frame| frame.starts_with("[truncated: ") || frame.starts_with("[broken: "));
    let (class, stop) = match marker.and_then(|marker| marker.trim_matches(['[', ']']).split_once(": ")) {
        Some((class, stop)) => (class.to_owned(), stop.to_owned()),
        None => ("complete".to_owned(), String::new()),
    };
    let user = frames.filter(|frame| !frame.ends_with("_[k]"));
    let plain = |frame: &str| {
        ["_[i]", "_[h]", "_[fp]"].iter().fold(frame, |name, end| name.strip_suffix(end).unwrap_or(name)).to_owned()
    };
    let mut names: Vec<String> = user.map(plain).collect();
    names.reverse();
    (!names.is_empty()).then(|| Stack { names, class, stop, samples: samples.parse().unwrap_or(0) })
}

/// Per cent of the samples that have one of the outcomes.
fn percent(stacks: &[Stack], outcomes: &[Outcome]) -> u64 {
    let all: u64 = stacks.iter().map(|stack| stack.samples).sum();
    let is_right = |stack: &&Stack| {
        let names: Vec<&str> = stack.names.iter().map(String::as_str).collect();
        outcomes.iter().any(|outcome| outcome.matches(&names, &stack.class, &stack.stop))
    };
    let right: u64 = stacks.iter().filter(is_right).map(|stack| stack.samples).sum();
    (right * 100).checked_div(all).unwrap_or(0)
}

fn commonest(stacks: &[Stack]) -> String {
    let most = stacks.iter().max_by_key(|stack| stack.samples);
    most.map_or("no stacks".to_owned(), |most| format!("{} < … {} {}", most.names.join("<"), most.class, most.stop))
}

/// What of a program's recording is not as its manifest says.
fn faults(program: &Program) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let built = match build(program, dir.path()) {
        Ok(built) => built,
        Err(error) => return vec![format!("{}: {error}", program.name)],
    };
    let file = dir.path().join("recording");
    let call_graph = format!("both,{}", program.chunk_bytes);
    let mut record = fpprof();
    record
        .args(["record", "-q", "-F", "499", "--call-graph", &call_graph, "-o"])
        .arg(&file)
        .arg("--")
        .arg(&built)
        .arg("1");
    let recorded = ran(record.args(program.arguments).current_dir(dir.path()));
    if recorded.status != 0 && !file.exists() {
        return vec![format!("{}: {}", program.name, recorded.stderr)];
    }
    let summary = report(&file, &[]);
    assert_balance(&summary);
    let (dwarf, fp) = (stacks(&file, "dwarf"), stacks(&file, "fp"));
    let mut faults: Vec<String> = program.chains.iter().flat_map(|chain| chain_faults(chain, &dwarf, &fp)).collect();
    let never = dwarf.iter().filter(|stack| stack.names.iter().any(|name| program.never.contains(&name.as_str())));
    faults.extend(never.map(|stack| format!("never on the stack: {}", stack.names.join("<"))));
    let suspects_wanted = program.chains.iter().flat_map(|chain| chain.fp).any(|outcome| outcome.is_leaf_skip_suspect);
    if suspects_wanted && number(summary.pointer("/strategies/fp").expect("fp was analysed"), "leaf_skip_suspects") == 0
    {
        faults.push("no frame-pointer stack says that the leaf's caller is missing".to_owned());
    }
    faults.into_iter().map(|fault| format!("{} ({}): {fault}", program.name, program.about)).collect()
}

fn chain_faults(chain: &Chain, dwarf: &[Stack], fp: &[Stack]) -> Vec<String> {
    let judge = |strategy: &str, stacks: &[Stack], outcomes: &[Outcome]| {
        let percent = percent(stacks, outcomes);
        let is_right = outcomes.is_empty() || percent >= u64::from(chain.least_percent);
        (!is_right).then(|| {
            format!(
                "{strategy}: {percent} % as stated, not {} %; commonest: {}",
                chain.least_percent,
                commonest(stacks)
            )
        })
    };
    [judge("dwarf", dwarf, chain.dwarf), judge("fp", fp, chain.fp)].into_iter().flatten().collect()
}

/// Check that every program's stacks are what its manifest says under both strategies: complete where they can be,
/// truncated or broken with the reason where not, and never a wrong frame that is called right.
#[test]
fn every_program_gives_its_stacks() {
    let (next, faults_found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(program) = programs().get(next.fetch_add(1, Ordering::Relaxed)) {
            let faults = faults(program);
            faults_found.lock().unwrap().extend(faults);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(work);
        }
    });
    let faults = faults_found.into_inner().unwrap();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
