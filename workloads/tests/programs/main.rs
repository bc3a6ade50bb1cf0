//! Tests that every program builds, runs, and contains its construct.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod binary;
mod constructs;

use binary::Binary;
use fpprof_workloads::{Chain, Compiler, Frame, Program, build_with, programs};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

fn program(name: &str) -> &'static Program {
    programs().iter().find(|program| program.name == name).unwrap()
}

/// Check that every program builds with each of its compilers without warnings, has the functions that its chains name,
/// and runs to its end.
#[test]
fn every_program_builds_and_runs() {
    let pairs =
        programs().iter().flat_map(|program| program.compilers.iter().map(move |&compiler| (program, compiler)));
    let pairs: Vec<(&Program, Compiler)> = pairs.collect();
    assert!(programs().iter().all(|program| !program.compilers.is_empty()));
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&(program, compiler)) = pairs.get(next.fetch_add(1, Ordering::Relaxed)) {
            builds_and_runs(program, compiler);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            scope.spawn(work);
        }
    });
}

fn builds_and_runs(program: &'static Program, compiler: Compiler) {
    let directory = tempfile::tempdir().unwrap();
    let built = build_with(program, compiler, directory.path()).unwrap();
    if program.parts.iter().all(|part| !part.is_stripped) {
        assert_named_functions_exist(program, &built);
    }
    let mut run = Command::new(&built);
    if program.name == "pid_reuse" {
        // It chooses process ids, so it needs a pid namespace of its own.
        run = Command::new("unshare");
        run.args(["--pid", "--fork"]).arg(&built);
    }
    let output = run.arg("0.2").args(program.arguments).output().unwrap();
    assert!(output.status.success(), "{} {compiler:?}: {output:?}", program.name);
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{} {compiler:?}: {output:?}", program.name);
}

/// Check that a program refuses an invalid time, rather than running forever.
#[test]
fn programs_refuse_other_times() {
    let directory = tempfile::tempdir().unwrap();
    let leaf = program("leaf");
    let built = build_with(leaf, leaf.compilers[0], directory.path()).unwrap();
    for seconds in ["0", "-1", "x", ""] {
        let output = Command::new(&built).arg(seconds).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{seconds}: {output:?}");
    }
}

/// Check that names are unique, that every chain states something, and that every source is built into some program.
#[test]
fn the_manifest_is_complete() {
    let names: BTreeSet<&str> = programs().iter().map(|program| program.name).collect();
    assert_eq!(names.len(), programs().len());
    let parts = || programs().iter().flat_map(|program| program.parts);
    let used: BTreeSet<&str> = parts().flat_map(|part| part.sources).copied().collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name == "program.h" || used.contains(&*name), "{name} is in no program");
    }
    for program in programs() {
        assert!(!program.chains.is_empty() && !program.parts.is_empty(), "{}", program.name);
        // A chain may be a part of another. A lower sum would be no test; programs that start others spend much of
        // their time elsewhere.
        let percent: u32 = program.chains.iter().map(|chain| u32::from(chain.least_percent)).sum();
        assert!(percent >= 20, "{}", program.name);
        for chain in program.chains {
            assert!((1..=100).contains(&chain.least_percent), "{}", program.name);
            assert!(!chain.truth.is_empty() && !chain.dwarf.is_empty(), "{}", program.name);
        }
    }
}

/// Checks that every function of a chain exists in the program, so that no misspelt name goes unnoticed.
fn assert_named_functions_exist(program: &'static Program, built: &Path) {
    let files = program.parts.iter().map(|part| Binary::new(&built.with_file_name(part.output)));
    let functions: BTreeSet<String> = files.flat_map(|file| file.functions().into_keys()).collect();
    let named = program.chains.iter().flat_map(frames).filter_map(|frame| match frame {
        Frame::Named(name) | Frame::Repeated(name, _) => Some(name),
        Frame::Any | Frame::Many => None,
    });
    for name in named.chain(program.never.iter().copied()) {
        // A stub has the name of its target; the vDSO belongs to the kernel.
        let function = name.strip_suffix("@plt").unwrap_or(name);
        assert!(functions.contains(function) || name.starts_with("__vdso_"), "{}: {name}", built.display());
    }
}

fn frames(chain: &'static Chain) -> Vec<Frame> {
    let outcomes = chain.fp.iter().chain(chain.dwarf).flat_map(|outcome| outcome.frames);
    chain.truth.iter().chain(outcomes).copied().collect()
}
