//! Imports perf's recordings of programs that perf itself cannot unwind: their stacks must be those of the manifest.

use crate::support::stacks::{Stack, commonest, stacks};
use crate::support::{Ran, compile, fpprof, ran, report, until_enough};
use fpprof_workloads::{Program, build, programs};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn program(name: &str) -> &'static Program {
    programs().iter().find(|program| program.name == name).unwrap_or_else(|| panic!("no program {name}"))
}

/// Records a program with perf and imports the file; returns the recording.
fn imported(dir: &Path, program: &Path, options: &[&str]) -> PathBuf {
    let (perf_data, recording) = (recorded(dir, program, &[], options), dir.join("recording"));
    let ran = ran(fpprof().arg("import").arg(&perf_data).arg("-o").arg(&recording));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(!ran.stderr.contains("damaged") && !ran.stderr.contains("corrupt"), "{}", ran.stderr);
    recording
}

/// Records a program with perf, whose cache is in `dir`, until there are enough samples; returns the file.
fn recorded(dir: &Path, program: &Path, arguments: &[&str], options: &[&str]) -> PathBuf {
    let perf_data = dir.join("perf.data");
    until_enough("samples", |seconds| {
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-e", "cpu-clock", "-F", "499", "-o"])
            .arg(&perf_data)
            .args(options)
            .env("HOME", dir);
        let perf = perf.arg("--").arg(program).arg(seconds.to_string()).args(arguments);
        let output = perf.output().unwrap_or_else(|error| panic!("perf: {error}"));
        assert!(output.status.success(), "{output:?}");
        let all: u64 = samples(&folded(&perf_data, &["--no-inline"]).stdout).sum();
        (all >= 100).then_some(())
    });
    perf_data
}

/// The sample counts of folded stacks.
fn samples(folded: &str) -> impl Iterator<Item = u64> {
    folded.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
}

/// Per cent of the samples in the program's functions whose stacks match the manifest.
fn percent(program: &Program, stacks: &[Stack]) -> u64 {
    let outcomes = program.chains.iter().flat_map(|chain| chain.dwarf);
    let outcomes: Vec<_> = outcomes.collect();
    let is_right = |stack: &Stack| {
        let names: Vec<&str> = stack.names.iter().map(String::as_str).collect();
        outcomes.iter().any(|outcome| outcome.matches(&names, &stack.class, &stack.stop))
    };
    let all: u64 = stacks.iter().map(|stack| stack.samples).sum();
    let right: u64 = stacks.iter().filter(|stack| is_right(stack)).map(|stack| stack.samples).sum();
    (right * 100).checked_div(all).unwrap_or(0)
}

/// Check that an import that fails, or whose process is killed, leaves the recording that was there, and no other file; and that
/// one that succeeds moves it aside.
#[test]
fn failed_imports_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let built = build(program("leaf_with_frame"), dir.path()).unwrap();
    let recording = imported(dir.path(), &built, &["--call-graph", "fp"]);
    let before = std::fs::read(&recording).unwrap();
    let entries = || std::fs::read_dir(dir.path()).unwrap().count();
    let n_entries = entries();
    let perf_data = std::fs::read(dir.path().join("perf.data")).unwrap();
    let empty = dir.path().join("empty");
    std::fs::write(&empty, &perf_data[..104]).unwrap();
    let failed = ran(fpprof().arg("import").arg(&empty).arg("-o").arg(&recording));
    assert_eq!(failed.status, 1, "{}", failed.stderr);
    std::fs::remove_file(empty).unwrap();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 1; exec \"$@\"", "sh"]).arg(fpprof().get_program());
    let killed = ran(limited.args(["import", "perf.data", "-o"]).arg(&recording).current_dir(dir.path()));
    assert!(killed.status != 0 && killed.stderr.contains("larger file than it may"), "{killed:?}");
    assert!(std::fs::read(&recording).unwrap() == before && entries() == n_entries, "{killed:?}");
    let again = ran(fpprof().args(["import", "perf.data", "-o"]).arg(&recording).current_dir(dir.path()));
    assert_eq!(again.status, 0, "{}", again.stderr);
    assert!(std::fs::read(dir.path().join("recording.old")).unwrap() == before);
}

/// Whether a process handles SIGINT.
fn catches_sigint(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
    u64::from_str_radix(caught.trim(), 16).expect("hexadecimal") & 1 << 1 != 0
}

/// Check that a signal which also ends the program on the other side of a pipe does not end an import before it has all that this
/// program writes.
#[test]
fn interrupted_imports_are_completed() {
    let dir = tempfile::tempdir().unwrap();
    let built = build(program("leaf_with_frame"), dir.path()).unwrap();
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-F", "499", "-g", "-o", "-", "--"]).arg(built).arg("1");
    let data = perf.env("HOME", dir.path()).output().expect("perf is needed").stdout;
    let whole = dir.path().join("whole");
    std::fs::write(&whole, &data).unwrap();
    let recording = dir.path().join("recording");
    let n_samples = |ran: Ran| {
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert!(!ran.stderr.contains("damaged"), "{}", ran.stderr);
        report(&recording, &[])["recorded"].as_u64().unwrap()
    };
    let expected = n_samples(ran(fpprof().arg("import").arg(&whole).arg("-o").arg(&recording)));
    let mut import = fpprof();
    import
        .args(["import", "-", "-o"])
        .arg(&recording)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut import = import.spawn().unwrap();
    let mut stdin = import.stdin.take().unwrap();
    let (first, rest) = data.split_at(data.len() / 2);
    stdin.write_all(first).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while !catches_sigint(import.id()) {
        assert!(Instant::now() < until && import.try_wait().unwrap().is_none(), "it does not read");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill(Pid::from_raw(import.id().cast_signed()), Signal::SIGINT).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    stdin.write_all(rest).unwrap();
    drop(stdin);
    let output = import.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let ran = Ran { status: output.status.code().unwrap_or(-1), stdout: String::new(), stderr };
    assert_eq!(n_samples(ran), expected);
}

/// Check that files without `.eh_frame_hdr`, from other linkers, static ones, with musl, and with rows in
/// `.debug_frame` are unwound to their roots.
#[test]
fn layouts_perf_cannot_unwind() {
    let names = [
        "no_eh_frame_hdr",
        "lld",
        "gold",
        "static_no_pie",
        "static_pie",
        "musl",
        "musl_static",
        "debug_frame",
        "compressed_debug_frame",
    ];
    for name in names {
        let dir = tempfile::tempdir().unwrap();
        let built = build(program(name), dir.path()).unwrap();
        let recording = imported(dir.path(), &built, &["--call-graph", "dwarf,16384"]);
        let stacks = stacks(&recording, "dwarf");
        let percent = percent(program(name), &stacks);
        assert!(percent >= 95, "{name}: {percent} %: {}", commonest(&stacks));
    }
}

/// Check that callchains alone give the frame-pointer stacks, that a compressed recording unwinds like any other, and
/// that no cost of recording is reported.
#[test]
fn callchains_and_compressed_stacks() {
    let dir = tempfile::tempdir().unwrap();
    let built = build(program("leaf_with_frame"), dir.path()).unwrap();
    let recording = imported(dir.path(), &built, &["--call-graph", "fp"]);
    let found = stacks(&recording, "fp");
    let chain = ["burn", "mid", "outer", "main"];
    let right = |stack: &&Stack| stack.names.iter().take(4).eq(chain.iter());
    let count = |found: &[Stack]| found.iter().filter(right).map(|stack| stack.samples).sum::<u64>();
    let all: u64 = found.iter().map(|stack| stack.samples).sum();
    assert!(count(&found) * 100 >= all * 95 && all > 20, "{} of {all}: {}", count(&found), commonest(&found));
    let recording = imported(dir.path(), &built, &["--call-graph", "dwarf,16384", "-z"]);
    let found = stacks(&recording, "dwarf");
    assert!(percent(program("leaf_with_frame"), &found) >= 95, "{}", commonest(&found));
    let text = ran(fpprof().arg("report").arg(&recording)).stdout;
    assert!(text.contains("own cost  unknown: recorded by another program\n") && !text.contains("overhead"), "{text}");
    let report = report(&recording, &[]);
    assert!(report["cost"].is_null() && report["volume"]["ring_bytes_per_sample"].is_null());
}

/// Check that a program that has been moved is found below `--symfs`, and in the cache of the perf that recorded it, and
/// only there.
#[test]
fn files_of_another_machine() {
    let dir = tempfile::tempdir().unwrap();
    let built = build(program("static_no_pie"), dir.path()).unwrap();
    let recording = imported(dir.path(), &built, &["--call-graph", "dwarf,16384", "--buildid-all"]);
    let root = dir.path().join("root");
    let moved = root.join(built.strip_prefix("/").unwrap());
    std::fs::create_dir_all(moved.parent().unwrap()).unwrap();
    std::fs::rename(&built, &moved).unwrap();
    let complete = |home: &Path, options: &[&str]| {
        let report = ran(fpprof().arg("report").arg(&recording).arg("--json").args(options).env("HOME", home));
        let report: serde_json::Value = serde_json::from_str(&report.stdout).unwrap();
        report.pointer("/strategies/dwarf/complete").and_then(serde_json::Value::as_u64).unwrap_or(0)
    };
    let symfs = ["--symfs", root.to_str().unwrap()];
    assert_eq!(complete(&root, &[]), 0, "the program is gone");
    assert!(complete(&root, &symfs) > 20);
    assert!(complete(dir.path(), &[]) > 20, "perf has a copy");
    let in_place = dir.path().join("perf.data");
    assert_eq!(folded(&in_place, &[]).stdout, folded(&recording, &[]).stdout);
    let found = folded(&in_place, &symfs).stdout;
    assert_eq!(found, folded(&recording, &symfs).stdout);
    assert!(found.contains(";burn "), "{found}");
}

/// Check that functions of the vDSO and of the kernel get their names from perf's cache, but no names of a kernel that was
/// loaded elsewhere.
#[test]
fn names_are_in_perfs_cache() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("calls.c"), dir.path().join("calls"));
    let text = "#include <stdlib.h>
        #include <time.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            struct timespec now;
            time_t end = time(0) + atoi(argv[1]) + 1;
            do for (int i = 0; i < 1000; i++) clock_gettime(CLOCK_MONOTONIC, &now), getppid(); while (time(0) < end);
        }";
    std::fs::write(&source, text).unwrap();
    compile("gcc", &["-O1"], &program, &source);
    let perf_data = recorded(dir.path(), &program, &[], &["--call-graph", "dwarf,4096"]);
    let found = |home: &Path| {
        let ran = ran(fpprof().args(["export", "--format", "folded"]).arg(&perf_data).env("HOME", home));
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        ran.stdout
    };
    let elsewhere = dir.path().join("elsewhere");
    let (with, without) = (found(dir.path()), found(&elsewhere));
    assert!(with.contains(";__vdso_clock_gettime") && with.contains("getppid_[k]"), "{with}");
    assert!(!without.contains(";__vdso_clock_gettime"), "{without}");
    let table = std::fs::read_dir(dir.path().join(".debug/[kernel.kallsyms]")).unwrap().next().unwrap().unwrap();
    let table = table.path().join("kallsyms");
    let original = std::fs::read_to_string(&table).unwrap();
    let renamed = original.replace("sys_getppid\n", "sys_renamed\n");
    std::fs::write(&table, &renamed).unwrap();
    assert!(found(dir.path()).contains("sys_renamed_[k]"));
    // The table of another boot: the symbol that perf recorded is at another address.
    let moved =
        |line: &str| if line.ends_with("text") { line.replacen("ffffffff", "fffffffe", 1) } else { line.to_owned() };
    std::fs::write(&table, renamed.lines().map(|line| moved(line) + "\n").collect::<String>()).unwrap();
    assert_eq!(found(dir.path()), with);
}

/// The folded stacks of a recording, or of a perf.data file.
fn folded(file: &Path, options: &[&str]) -> Ran {
    let ran = ran(fpprof().args(["export", "--format", "folded"]).args(options).arg(file));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    ran
}

/// The first number after `key` in a text.
fn number_after(text: &str, key: &str) -> Option<u64> {
    let digits = text.split_once(key)?.1.trim_start();
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Check that for each kind of perf.data file, written to a file and to a pipe, as many samples are imported as perf
/// counts in it, and that all are accounted for; and that files without times or stacks are refused with that reason.
#[test]
fn counts_are_perfs_own() {
    let dir = tempfile::tempdir().unwrap();
    let (perf_data, recording) = (dir.path().join("perf.data"), dir.path().join("recording"));
    let kinds = [
        &["-g"][..],
        &["-g", "-c", "500000", "--no-inherit", "-T"],
        &["-g", "--per-thread", "-T"],
        &["-g", "-a"],
        &["-g", "-z"],
        &["-g", "-d", "-T", "-W", "--sample-cpu", "--phys-data", "--running-time"],
        &["-g", "--namespaces", "--switch-events", "--all-cgroups"],
        &["-g", "-e", "cpu-clock,task-clock,context-switches"],
        &["-g", "-e", "{cpu-clock,task-clock}:S"],
        &["--call-graph", "dwarf,4096"],
        &["--call-graph", "dwarf,4096", "-a", "-z"],
        &["--call-graph", "dwarf,4096", "--user-callchains", "--buildid-all"],
        &["-g", "--user-regs=ip,sp,bp", "--intr-regs=ip,sp", "-F", "99"],
    ];
    let busy = "i=0; while [ $i -lt 80000 ]; do i=$((i+1)); done";
    for kind in kinds {
        // perf cannot read its own compressed output from a pipe.
        let outputs = [perf_data.to_str().unwrap(), "-"].into_iter().take(if kind.contains(&"-z") { 1 } else { 2 });
        for output in outputs {
            let mut perf = Command::new("perf");
            let rate: &[&str] = if kind.contains(&"-c") { &[] } else { &["-F", "999"] };
            // Its cache of files is there, not in the user's.
            perf.env("HOME", dir.path())
                .args(["record", "-q", "-e", "cpu-clock"])
                .args(rate)
                .args(kind)
                .args(["-o", output]);
            let perf = perf.args(["--", "sh", "-c", busy]).output().unwrap();
            let case = format!("{kind:?} {output}: {}", String::from_utf8_lossy(&perf.stderr));
            assert!(perf.status.success(), "{case}");
            if output == "-" {
                std::fs::write(&perf_data, &perf.stdout).unwrap();
            }
            let counted = ran(Command::new("perf").args(["report", "--stats", "-i"]).arg(&perf_data));
            let samples = number_after(&counted.stdout, "SAMPLE events:").filter(|&samples| samples > 0);
            assert!(samples.is_some(), "{case}: {counted:?}");
            let imported = ran(fpprof().arg("import").arg(&perf_data).arg("-o").arg(&recording));
            assert_eq!(imported.status, 0, "{case}: {}", imported.stderr);
            assert_eq!(
                number_after(&imported.stderr, "imported"),
                samples,
                "{case}: {}{}",
                counted.stdout,
                imported.stderr
            );
            let report = report(&recording, &[]);
            assert_eq!(report["unaccounted"], 0, "{case}: {report:#}");
        }
    }
    for (kind, words) in [(&["--per-thread", "-g"][..], "perf record --timestamp"), (&["-T"], "perf record -g")] {
        let mut perf = Command::new("perf");
        perf.env("HOME", dir.path()).args(["record", "-q", "-e", "cpu-clock"]).args(kind).arg("-o").arg(&perf_data);
        assert_eq!(ran(perf.args(["--", "sh", "-c", busy])).status, 0);
        let refused = ran(fpprof().arg("import").arg(&perf_data).arg("-o").arg(&recording));
        assert!(refused.status == 1 && refused.stderr.contains(words), "{kind:?}: {refused:?}");
    }
}

/// Check that the stacks of a perf.data file are the same whether it is imported first or folded directly, with
/// registers and stack, with callchains and compressed, at every level of detail; and that perf's pipe output must be
/// imported.
#[test]
fn export_folds_perf_data_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let built = build(program("leaf_with_frame"), dir.path()).unwrap();
    let perf_data = dir.path().join("perf.data");
    for options in
        [&["--call-graph", "dwarf,16384"][..], &["--call-graph", "fp"], &["--call-graph", "dwarf,16384", "-z"]]
    {
        let recording = imported(dir.path(), &built, options);
        for detail in [&[][..], &["--no-inline"], &["--lines"], &["--strategy", "fp"]] {
            let in_place = folded(&perf_data, detail);
            assert_eq!(in_place.stdout, folded(&recording, detail).stdout, "{options:?} {detail:?}");
            assert!(in_place.stderr.contains("imported  "), "{}", in_place.stderr);
            assert!(in_place.stdout.contains("main;outer;mid;burn "), "{options:?} {detail:?}: {}", in_place.stdout);
        }
        let exported = |file: &Path, format| ran(fpprof().args(["export", "--format", format]).arg(file)).stdout;
        assert_eq!(exported(&perf_data, "perf-script"), exported(&recording, "perf-script"), "{options:?}");
        // perf's file has no start time; times must not count from the machine's boot.
        let firefox: serde_json::Value = serde_json::from_str(&exported(&perf_data, "firefox")).unwrap();
        let first_ms = firefox["threads"][0]["samples"]["timeDeltas"][0].as_f64().unwrap();
        assert!(first_ms < 60_000.0, "{options:?}: the first sample is at {first_ms} ms");
    }
    let pipe = dir.path().join("pipe");
    std::fs::write(&pipe, b"PERFILE2\x10\0\0\0\0\0\0\0").unwrap();
    let refused = ran(fpprof().arg("export").arg(&pipe));
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains("fpprof import"), "{}", refused.stderr);
}

/// Check that unwinding respects the given limits, and that frame pointers are followed only on request, and then
/// marked in exports and counted in reports.
#[test]
fn unwinding_is_as_asked() {
    const DWARF: [&str; 2] = ["--call-graph", "dwarf,16384"];
    let dir = tempfile::tempdir().unwrap();
    let built = build(program("no_cfi"), dir.path()).unwrap();
    let perf_data = recorded(dir.path(), &built, program("no_cfi").arguments, &DWARF);
    let plain = folded(&perf_data, &[]).stdout;
    assert!(plain.contains("[truncated: no_cfi];no_cfi;burn ") && !plain.contains("_[fp]"), "{plain}");
    let guessed = folded(&perf_data, &["--fallback", "fp"]).stdout;
    assert!(guessed.contains(";main_[fp];no_cfi;burn ") && !guessed.contains("truncated: no_cfi"), "{guessed}");
    let built = build(program("realigned"), dir.path()).unwrap();
    let recording = imported(dir.path(), &built, &DWARF);
    assert!(folded(&recording, &[]).stdout.contains(";main;outer;realigned;burn "));
    let hasty = folded(&recording, &["--budget", "1"]).stdout;
    assert!(hasty.contains("[truncated: budget];realigned;burn "), "{hasty}");
    let shallow = folded(&recording, &["--max-depth", "2"]).stdout;
    assert!(shallow.contains("[truncated: max_depth];realigned;burn "), "{shallow}");
    let counted = report(&recording, &["--max-depth", "2"]);
    let n = counted.pointer("/strategies/dwarf/truncated").and_then(|truncated| truncated.get("max_depth"));
    assert!(
        n.and_then(serde_json::Value::as_u64).is_some_and(|n| n > 20),
        "{:?}",
        counted.pointer("/strategies/dwarf")
    );
}
