//! Where stacks end: programs without rows near their entry point, of another C library, of Go and C together; return
//! addresses that do not follow a call; registers saved in the red zone.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::stacks::{Stack, commonest, stacks};
use support::{compile, fpprof, number, ran, record, report, source, until_enough};

/// A program built in its own directory, and its recording.
struct Recorded {
    _dir: tempfile::TempDir,
    file: PathBuf,
}

impl Recorded {
    /// Builds and records a program. `SECONDS` in the arguments is replaced by its run time, which grows until there
    /// are enough samples, however busy the machine is.
    fn new(make: impl FnOnce(&Path), arguments: &[&str], call_graph: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (program, file) = (dir.path().join("program"), dir.path().join("recording"));
        make(&program);
        until_enough("samples", |seconds| {
            let seconds = seconds.to_string();
            let arguments = arguments.iter().map(|&argument| if argument == "SECONDS" { &*seconds } else { argument });
            let command: Vec<&str> = [program.to_str().unwrap()].into_iter().chain(arguments).collect();
            record(&file, &["-q", "-F", "997", "--call-graph", call_graph], &command);
            (number(&report(&file, &[]), "recorded") >= 200).then_some(())
        });
        Self { _dir: dir, file }
    }

    fn stacks(&self, strategy: &str) -> Vec<Stack> {
        stacks(&self.file, strategy)
    }

    fn quality(&self, strategy: &str) -> Value {
        report(&self.file, &[])["strategies"][strategy].clone()
    }
}

/// (all samples, samples with exactly these names, leaf first, and this end).
fn exactly(stacks: &[Stack], names: &[&str], class: &str, stop: &str) -> (u64, u64) {
    let is = |stack: &&Stack| stack.names == names && stack.class == class && stack.stop == stop;
    (stacks.iter().map(|stack| stack.samples).sum(), stacks.iter().filter(is).map(|stack| stack.samples).sum())
}

fn assert_nearly_all(stacks: &[Stack], names: &[&str], class: &str, stop: &str) {
    let (all, right) = exactly(stacks, names, class, stop);
    assert!(all > 100 && right * 100 >= all * 95, "{right} of {all}: {}", commonest(stacks));
}

fn made_from(name: &'static str, compiler: &'static str, flags: &'static [&'static str]) -> impl FnOnce(&Path) {
    move |program| compile(compiler, flags, program, &source(name))
}

fn workload(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/programs").join(name)
}

/// Check that an assembly program with frame pointers, all of it near its entry point and without rows, is complete by
/// frame pointers and truncated by call frame information, and that the report does not judge the former by the latter.
#[test]
fn code_near_the_entry_point_is_no_root() {
    let flags = &["-nostdlib", "-static"];
    let recorded = Recorded::new(made_from("entry.S", "gcc", flags), &[], "both,8192");
    assert_nearly_all(&recorded.stacks("fp"), &["burn", "mid", "outer", "_start"], "complete", "");
    assert_nearly_all(&recorded.stacks("dwarf"), &["burn"], "truncated", "no_cfi");
    let ran_report = ran(fpprof().arg("report").arg(&recorded.file));
    let verdict = ran_report.stdout.lines().next().unwrap();
    assert!(verdict.contains("No verdict on frame pointers and no chunk size"), "{verdict}");
}

/// Check that musl programs, whose start code and signal trampoline have no rows, are unwound to their entry point.
#[test]
fn musl_is_unwound_to_its_entry_point() {
    let make =
        |name: &'static str| move |program: &Path| compile("musl-gcc", &["-O2", "-static"], program, &workload(name));
    let chain = Recorded::new(make("chain.c"), &["SECONDS"], "dwarf,8192");
    let names = ["burn", "mid", "outer", "main", "libc_start_main_stage2", "_start"];
    assert_nearly_all(&chain.stacks("dwarf"), &names, "complete", "");
    let signal = Recorded::new(make("altstack.c"), &["SECONDS", "same-stack"], "dwarf,8192");
    let quality = signal.quality("dwarf");
    let (samples, complete) = (number(&quality, "samples"), number(&quality, "complete"));
    assert!(samples > 100 && complete * 100 >= samples * 95, "{quality:#}");
    let found = signal.stacks("dwarf");
    let is_through = |stack: &&Stack| {
        ["burn", "on_illegal", "interrupted"].iter().all(|name| stack.names.iter().any(|own| own == name))
    };
    let through: u64 = found.iter().filter(is_through).map(|stack| stack.samples).sum();
    assert!(through * 100 >= samples * 95, "{through} of {samples}: {}", commonest(&found));
}

/// Check that stubs of lld, for which it writes no rows, are unwound to their callers, and so are returns from handlers in the
/// system call: by copied stacks and in the kernel.
#[test]
fn stubs_and_returns_from_handlers_are_unwound() {
    const LLD: &[&str] = &["-O1", "-fno-builtin", "-fuse-ld=lld"];
    const IBT: &[&str] = &["-O1", "-fno-builtin", "-fuse-ld=lld", "-Wl,-z,force-ibt"];
    for (flags, call_graph, strategy) in
        [(LLD, "dwarf,16384", "dwarf"), (IBT, "dwarf,16384", "dwarf"), (LLD, "cfi", "cfi")]
    {
        let recorded = Recorded::new(made_from("stubs.c", "gcc", flags), &["SECONDS"], call_graph);
        let found = recorded.stacks(strategy);
        let below = |leaf: fn(&str) -> bool, caller: &str| -> u64 {
            let is = |stack: &&Stack| leaf(&stack.names[0]) && stack.names.iter().any(|name| name == caller);
            found.iter().filter(is).map(|stack| stack.samples).sum()
        };
        let all: u64 = found.iter().map(|stack| stack.samples).sum();
        let complete: u64 = found.iter().filter(|stack| stack.class == "complete").map(|stack| stack.samples).sum();
        assert!(complete * 100 >= all * 99, "{flags:?} {call_graph}: {complete} of {all}: {}", commonest(&found));
        let (stubs, returns) =
            (below(|leaf| leaf.ends_with("@plt"), "outer"), below(|leaf| leaf == "__restore_rt", "raise"));
        assert!(stubs > 0 && returns > 0, "{flags:?} {call_graph}: {stubs}, {returns} of {all}: {}", commonest(&found));
    }
}

/// Builds a Go program with these options.
fn go(name: &'static str, arch: &'static str, options: &'static [&'static str]) -> impl FnOnce(&Path) {
    move |program| {
        let mut build = Command::new("go");
        build.arg("build").args(options).arg("-o").arg(program).arg(source(name)).env("GOARCH", arch);
        let made = ran(&mut build);
        assert_eq!(made.status, 0, "go is needed: {}", made.stderr);
    }
}

/// Check that C code called by Go on the scheduler's stack ends in its root, and that goroutines of 32-bit programs
/// have their root.
#[test]
fn go_has_its_roots() {
    for (name, arch, arguments, root) in
        [("cgo.go", "amd64", &[][..], "g0"), ("goroutine.go", "386", &["SECONDS"][..], "goexit")]
    {
        let recorded = Recorded::new(go(name, arch, &[]), arguments, "dwarf,16384");
        let quality = recorded.quality("dwarf");
        let (samples, complete) = (number(&quality, "samples"), number(&quality, "complete"));
        assert!(samples > 50 && complete * 100 >= samples * 95, "{name}: {quality:#}");
        assert!(number(&quality["roots"], root) * 2 > samples, "{name}: {quality:#}");
    }
}

/// Check that Go programs without symbols have names and roots from Go's own function table: goroutines, position
/// dependent or not, and C on the scheduler's stack, where another linker has put code before Go's.
#[test]
fn stripped_go_has_names_and_roots() {
    let chain = ["main.burn", "main.mid", "main.outer", "main.main.gowrap1", "runtime.goexit"];
    for mode in ["-buildmode=exe", "-buildmode=pie"] {
        let options: &'static [&'static str] = if mode.ends_with("pie") {
            &["-buildmode=pie", "-ldflags", "-s -w"]
        } else {
            &["-buildmode=exe", "-ldflags", "-s -w"]
        };
        let recorded = Recorded::new(go("goroutine.go", "amd64", options), &["SECONDS"], "both,16384");
        let quality = recorded.quality("fp");
        let (samples, complete) = (number(&quality, "samples"), number(&quality, "complete"));
        assert!(samples > 100 && complete * 100 >= samples * 95, "{mode}: {quality:#}");
        assert!(number(&quality["roots"], "goexit") * 2 > samples, "{mode}: {quality:#}");
        let summary = report(&recorded.file, &[]);
        // Assembly without a frame of its own gives a few chains with arbitrary beginnings.
        let doubtful = summary["no_call_before"]["fp"].as_u64().unwrap_or(0);
        assert!(doubtful * 50 <= samples, "{mode}: {doubtful} of {samples}");
        let found = recorded.stacks("fp");
        let (_, exact) = exactly(&found, &chain, "complete", "");
        // The load determines how much the run-time library does otherwise.
        assert!(exact * 5 > samples, "{mode}: {exact} of {samples}: {}", commonest(&found));
    }
    let make = |program: &Path| {
        go("cgo.go", "amd64", &[])(program);
        assert_eq!(ran(Command::new("strip").arg(program)).status, 0, "strip is needed");
    };
    let recorded = Recorded::new(make, &[], "dwarf,16384");
    let quality = recorded.quality("dwarf");
    let (samples, roots) = (number(&quality, "samples"), &quality["roots"]);
    assert!(samples > 50 && number(roots, "g0") * 100 >= samples * 90, "{quality:#}");
    let found = recorded.stacks("dwarf");
    let is_named = |stack: &&Stack| stack.names.last().is_some_and(|name| name == "runtime.asmcgocall");
    let named: u64 = found.iter().filter(is_named).map(|stack| stack.samples).sum();
    assert!(named * 100 >= samples * 90, "{named} of {samples}: {}", commonest(&found));
}

/// Check that a return address that does not follow a call is counted and marked, in an otherwise complete stack, and
/// that programs with signals, threads and contexts have none, by call frame information or frame pointers.
#[test]
fn forged_return_addresses_are_reported() {
    let recorded = Recorded::new(made_from("forged.S", "gcc", &[]), &[], "dwarf,8192");
    let summary = report(&recorded.file, &[]);
    let (samples, doubtful) = (number(&summary, "recorded"), number(&summary["no_call_before"], "dwarf"));
    assert!(samples > 100 && doubtful * 100 >= samples * 95, "{doubtful} of {samples}");
    let export = ran(support::fpprof().arg("export").arg(&recorded.file).args(["--format", "folded"]));
    let marked = export.stdout.lines().filter(|line| line.contains(";main_[?];forge;burn")).count();
    assert!(marked > 0 && !export.stdout.contains("forge_[?]"), "{}", export.stdout);
    let sound =
        [("altstack.c", &["SECONDS", "same-stack"][..]), ("threads.c", &["SECONDS"]), ("coroutine.c", &["SECONDS"])];
    let flags = ["-O2", "-fno-omit-frame-pointer", "-pthread"];
    for (compiler, more, (name, arguments)) in [("gcc", &[][..]), ("musl-gcc", &["-static"])]
        .into_iter()
        .flat_map(|(compiler, more)| sound.map(|sound| (compiler, more, sound)))
        .filter(|(compiler, _, (name, _))| (*compiler, *name) != ("musl-gcc", "coroutine.c"))
    {
        let make = |program: &Path| compile(compiler, &[&flags, more].concat(), program, &workload(name));
        let sound = Recorded::new(make, arguments, "both,8192");
        let summary = report(&sound.file, &[]);
        let doubtful = |strategy: &str| summary["no_call_before"][strategy].as_u64().unwrap_or(0);
        assert_eq!(doubtful("dwarf"), 0, "{compiler} {name}");
        // The loader uses the frame pointer as a general register.
        assert!(doubtful("fp") * 50 <= number(&summary, "recorded"), "{compiler} {name}: {}", doubtful("fp"));
        let by_fp =
            sound.stacks("fp").iter().filter(|stack| stack.names.len() > 1).map(|stack| stack.samples).sum::<u64>();
        assert!(by_fp > 50, "{compiler} {name}: {by_fp}");
    }
}

/// Check that registers saved in a function's red zone are found there, by every unwinder.
#[test]
fn red_zones_are_unwound() {
    for option in [&["-O2", "-mtune=k8"], &["-O2", "-march=k8"], &["-O2", "-mtune=x86-64"]] {
        red_zone_is_unwound(option);
    }
}

fn red_zone_is_unwound(options: &'static [&'static str]) {
    let make = |program: &Path| {
        made_from("red_zone.c", "gcc", options)(program);
        let code = ran(Command::new("objdump").arg("-d").arg(program)).stdout;
        assert!(
            code.lines().any(|line| line.contains("%rbp,-0x") && line.ends_with("(%rsp)")),
            "{options:?} saves no frame pointer in the red zone"
        );
    };
    let recorded = Recorded::new(make, &[], "dwarf,8192");
    for strategy in ["dwarf", "elfutils", "libunwind"] {
        let found = recorded.stacks(strategy);
        let is_exact = |stack: &&Stack| {
            let names: Vec<&str> = stack.names.iter().map(String::as_str).collect();
            stack.class == "complete" && matches!(*names, ["leaf", "caller", "main", ..] | ["caller", "main", ..])
        };
        let all: u64 = found.iter().map(|stack| stack.samples).sum();
        let exact: u64 = found.iter().filter(is_exact).map(|stack| stack.samples).sum();
        let counted = format!("{options:?} {strategy}: {exact} of {all}: {}", commonest(&found));
        assert!(all > 100 && exact * 1000 >= all * 995, "{counted}");
    }
}

/// Check that a core, which has the memory below the stack pointer, gives the registers saved there.
#[test]
fn cores_have_the_red_zone() {
    let dir = tempfile::tempdir().unwrap();
    let (program, core) = (dir.path().join("program"), dir.path().join("core"));
    made_from("red_zone.c", "gcc", &["-O2", "-mtune=k8"])(&program);
    let mut debugger = Command::new("gdb");
    let generate = format!("generate-core-file {}", core.display());
    debugger
        .args(["-q", "-batch", "-ex", "break leaf", "-ex", "run", "-ex", "stepi 20", "-ex", &generate])
        .arg(&program);
    let made = ran(&mut debugger);
    assert!(core.exists(), "gdb is needed: {} {}", made.stdout, made.stderr);
    let unwound = ran(support::fpprof().args(["unwind", "--json", "--core"]).arg(&core).arg("--exe").arg(&program));
    let unwound: Value = serde_json::from_str(&unwound.stdout).unwrap();
    let thread = &unwound["threads"][0];
    let names: Vec<&str> =
        thread["frames"].as_array().unwrap().iter().filter_map(|frame| frame["symbol"].as_str()).collect();
    assert_eq!(
        (&names[..3], thread["status"].as_str()),
        (&["leaf", "caller", "main"][..], Some("complete")),
        "{thread:#}"
    );
}
