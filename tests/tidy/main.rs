//! The rules of ARCHITECTURE.md as tests: dependencies between crates, maximum file sizes, where `unsafe` may be, and
//! no dependency cycles between files.

mod shape;

use shape::{Shape, is_test};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A crate's directory, and the workspace crates it may depend on. A new edge is a decision about the architecture.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("unwind", &["prefetch"]),
    ("unwind/external", &["unwind"]),
    ("unwind/prefetch", &[]),
    ("collector/recording", &[]),
    ("collector/libbpf", &[]),
    ("collector", &["libbpf", "recording"]),
    ("analysis", &["unwind", "external", "recording"]),
    // What the fuzzers run; nothing depends on it.
    ("fuzz/parsers", &["analysis", "collector", "recording", "unwind"]),
    ("fuzz/seeds", &[]),
    ("reports", &["analysis", "unwind"]),
    ("workloads", &[]),
    // Measures collectors by running them; nothing depends on it.
    ("workloads/bench-collect", &["analysis"]),
    // Measures our unwinder beside others'; nothing depends on it.
    ("workloads/bench-unwind", &["analysis", "external", "recording", "unwind"]),
    // Boots other kernels and runs the program there; nothing depends on it.
    ("workloads/kernels", &[]),
    // Measures the program's robustness by running it and its tests; nothing depends on it.
    ("workloads/reliability", &[]),
    (".", &["analysis", "collector", "recording", "reports", "unwind", "external"]),
];

/// Crate roots that must forbid `unsafe`.
const SAFE: &[&str] = &["unwind/src/lib.rs", "analysis/src/lib.rs", "reports/src/lib.rs", "src/lib.rs", "src/main.rs"];

/// Directories in which `unsafe` is allowed.
const UNSAFE: &[&str] =
    &["collector/src/sys/", "collector/src/bpf/", "unwind/external/src/sys/", "unwind/prefetch/src/"];

const MAX_LINES: usize = 600;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Files tracked or to be tracked by git, relative to the root.
fn files(endings: &[&str]) -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git must be there to list the files");
    assert!(output.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    let all = String::from_utf8(output.stdout).expect("paths are UTF-8");
    let found: Vec<String> = all
        .lines()
        .filter(|path| endings.iter().any(|ending| path.ends_with(ending)) && root().join(path).is_file())
        .map(str::to_owned)
        .collect();
    assert!(!found.is_empty(), "no file ends with {endings:?}");
    found
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of a manifest under `[dependencies]`.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1).take_while(|line| !line.starts_with('['))
}

/// Check that no crate has a dependency that the architecture does not allow.
#[test]
fn crates_depend_in_one_direction() {
    for (folder, allowed) in MAY_DEPEND_ON {
        let manifest = read(Path::new(folder).join("Cargo.toml"));
        let ours = dependencies(&manifest).filter_map(|line| line.strip_prefix("fpprof-"));
        for name in ours.filter_map(|rest| rest.split(['.', ' ', '=']).next()) {
            assert!(allowed.contains(&name), "{folder} must not depend on fpprof-{name}");
        }
    }
    let members = read("Cargo.toml").lines().filter(|line| line.trim_start().starts_with('"')).count();
    assert!(members >= MAY_DEPEND_ON.len() - 1, "a workspace member is missing from the table of this test");
}

/// The crates of the program with their features, as they are built. The program that measures reliability is no part of it.
fn built_crates(edges: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--quiet", "--locked", "--workspace", "--exclude", "fpprof-reliability"])
        .args(["--features", "libdw,libunwind", "--prefix", "none", "--format", "{p} {f}", "--edges", edges])
        .current_dir(root())
        .output()
        .expect("cargo must be there to list the crates");
    assert!(output.status.success(), "cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("names are UTF-8");
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// Crates that tests need with more features than the program would be compiled twice, and so would all that need them:
/// such features are in `workspace.dependencies`.
#[test]
fn tests_and_program_share_one_build() {
    let with_tests = built_crates("normal,dev,no-proc-macro");
    let program = built_crates("normal,no-proc-macro");
    let other: Vec<_> = program.iter().filter(|built| !with_tests.contains(built)).collect();
    assert!(
        program.len() > 100 && other.is_empty(),
        "{} crates; with other features in tests: {other:?}",
        program.len()
    );
}

/// Check that only the collector and the external unwinders can contain `unsafe`.
#[test]
fn unsafe_code_stays_where_it_belongs() {
    for path in SAFE {
        assert!(read(path).contains("#![forbid(unsafe_code)]"), "{path} must forbid unsafe code");
    }
    let word = concat!("unsafe", " {");
    for path in files(&[".rs"]) {
        let allowed = UNSAFE.iter().any(|folder| path.starts_with(folder)) || path.contains("tests/");
        assert!(allowed || !read(&path).contains(word), "{path}: unsafe belongs under {UNSAFE:?}");
    }
}

/// Check that no source file is too long.
#[test]
fn files_stay_small() {
    for path in files(&[".rs", ".c", ".h", ".py", ".sh"]) {
        let lines = read(&path).lines().count();
        assert!(is_test(&path) || lines <= MAX_LINES, "{path} has {lines} lines; split it");
    }
}

/// Check that a crate's files have no dependency cycle, and that no file has a copy of another's lines. Prints the
/// output of `just shape`.
#[test]
fn files_need_each_other_in_one_direction() {
    let sources = files(&[".rs", ".c", ".h", ".js", ".py", ".sh"]).into_iter();
    // Without third-party files: the bundle of the page's script and its libraries.
    let sources = sources.filter(|path| !path.starts_with("reports/assets/")).map(|path| (path.clone(), read(path)));
    let manifests = files(&["/Cargo.toml"]);
    let crates: Vec<&str> = manifests.iter().filter_map(|path| path.strip_suffix("Cargo.toml")).collect();
    let shape = Shape::of(&sources.collect(), &crates);
    println!("{shape}");
    assert!(shape.cycles.is_empty(), "files need each other in a ring:\n{}", shape.cycles.join("\n"));
    assert!(shape.copies.is_empty(), "copies:\n{}", shape.copies.join("\n"));
}

/// Check that there is no unfinished code, and none that never runs.
#[test]
fn nothing_is_left_for_later() {
    let words = [concat!("#[", "ignore"), concat!("todo", "!("), concat!("unimplemented", "!("), concat!("FIX", "ME")];
    for path in files(&[".rs", ".c", ".h", ".sh", ".md", "justfile"]) {
        let text = read(&path);
        for word in words {
            assert!(!text.contains(word), "{path} contains `{word}`");
        }
    }
}

/// Check that each fuzzer's program, which nothing else builds, calls the function of its name.
#[test]
fn fuzzers_call_their_parsers() {
    let (parsers, manifest) = (read("fuzz/parsers/src/lib.rs"), read("fuzz/Cargo.toml"));
    let targets = files(&[".rs"]).into_iter().filter(|path| path.starts_with("fuzz/targets/"));
    for path in targets {
        let name = path.trim_start_matches("fuzz/targets/").trim_end_matches(".rs");
        let call = format!("libfuzzer_sys::fuzz_target!(|input: &[u8]| fpprof_fuzz_parsers::{name}(input));\n");
        assert_eq!(read(&path), format!("#![no_main]\n{call}"), "{path}");
        assert!(manifest.contains(&format!("path = \"targets/{name}.rs\"")), "{path} is not in fuzz/Cargo.toml");
        let words = parsers.split(|c: char| !c.is_alphanumeric() && c != '_');
        assert!(words.into_iter().any(|word| word == name), "{path} calls a function that is not there");
    }
}

/// Check that every BPF C file names its licence.
#[test]
fn bpf_files_name_their_licence() {
    for path in files(&[".c", ".h"]).iter().filter(|path| path.starts_with("collector/src/bpf/")) {
        let first = read(path).lines().next().unwrap_or_default().to_owned();
        assert!(first.contains("SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause"), "{path}: {first}");
    }
}
