//! Samples by all kinds of events: what a program does n times is sampled n times, with the stack of the function that
//! does it. Loads the real BPF programs, and mounts tracefs visible only to these tests.

use crate::support::stacks::{commonest, stacks};
use crate::support::{Ran, assert_balance, compile, fpprof, number, ran, report, source};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn program(dir: &Path) -> PathBuf {
    let program = dir.join("events");
    compile("gcc", &["-O1", "-pthread"], &program, &source("events.c"));
    program
}

/// Runs `fpprof` with tracefs mounted (`on`) or unmounted (`off`), according to `mount`.
fn with_tracefs(mount: &str, args: &[&str]) -> Ran {
    let script = match mount {
        "on" => "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing; exec \"$@\"",
        _ => "umount -q -R /sys/kernel/tracing /sys/kernel/debug; exec \"$@\"",
    };
    ran(Command::new("unshare").args(["-m", "sh", "-c", script, "sh"]).arg(env!("CARGO_BIN_EXE_fpprof")).args(args))
}

/// The result of a recording by `event`.
struct Recorded {
    report: serde_json::Value,
    /// Samples of the program below this function, by the best strategy.
    in_function: u64,
    stacks: String,
    /// What the program printed.
    stdout: String,
}

/// Records the program by an event, checks the balance, and counts the samples of the function.
fn recorded(options: &[&str], command: &[&str], function: &str) -> Recorded {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, file) = (program(dir.path()), dir.path().join("recording"));
    let path = |path: &Path| path.to_str().expect("a path").to_owned();
    let (program, output) = (path(&program), path(&file));
    let mut args = vec!["record", "-o", &output];
    args.extend(options);
    args.extend(["--", &program]);
    args.extend(command);
    let ran = with_tracefs("on", &args);
    assert_eq!(ran.status, 0, "{options:?}: {}", ran.stderr);
    let report = report(&file, &[]);
    assert_balance(&report);
    let found = stacks(&file, "dwarf");
    let has = |names: &[String]| names.iter().any(|name| name == function) && names.iter().any(|name| name == "main");
    let in_function = found.iter().filter(|stack| has(&stack.names)).map(|stack| stack.samples).sum();
    Recorded { report, in_function, stacks: commonest(&found), stdout: ran.stdout }
}

/// The number of lost samples in a report.
fn lost(report: &serde_json::Value) -> u64 {
    let causes = report.pointer("/lost").and_then(serde_json::Value::as_object);
    causes.expect("what was lost").values().filter_map(serde_json::Value::as_u64).sum()
}

/// Checks that the function has one sample per occurrence; a few may be lost if the report says so.
fn assert_each(options: &[&str], command: &[&str], function: &str, times: u64) -> Recorded {
    let found = recorded(options, command, function);
    let all = found.in_function + lost(&found.report);
    assert!(
        all >= times && found.in_function <= times + times / 20 + 5,
        "{options:?}: {} of {times}: {} {:#}",
        found.in_function,
        found.stacks,
        found.report
    );
    let event = found.report.pointer("/environment/event").and_then(serde_json::Value::as_str);
    assert_eq!(event, options.get(1).copied());
    found
}

/// Checks that a sleeping program has a sample each time it leaves its CPU, according to its own count.
fn assert_each_switch(options: &[&str]) -> Recorded {
    let found = recorded(options, &["nap", "300"], "nap");
    let times: u64 = found.stdout.trim().parse().expect("the program's count");
    let all = found.in_function + lost(&found.report);
    // It may leave its CPU while it counts.
    let is_each = times >= 200 && all >= times && found.in_function <= times + 10;
    assert!(is_each, "{options:?}: {} of {times}: {} {:#}", found.in_function, found.stacks, found.report);
    found
}

const COLLECTORS: [&str; 2] = ["ebpf", "perf-event"];

/// Check that each page fault, context switch and migration of a program is a sample with the stack that caused it,
/// with either collector, and that the report names the event and how it was sampled.
#[test]
fn what_the_kernel_counts() {
    for collector in COLLECTORS {
        let by = |event| ["-e", event, "--collector", collector, "--call-graph", "both,16384"];
        let faults = assert_each(&by("page-faults"), &["touch", "3000"], "touch", 3000);
        assert_eq!(faults.report["environment"]["rate"], "each");
        assert_each(&by("minor-faults"), &["touch", "1000"], "touch", 1000);
        assert_each_switch(&by("context-switches"));
        let moves = recorded(&by("cpu-migrations"), &["wander", "200"], "wander");
        assert!(moves.in_function >= 190, "{collector}: {} {:#}", moves.in_function, moves.report);
    }
}

/// Check that page faults that read from the disk are distinguished from others.
#[test]
fn faults_of_the_disk() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("data");
    let command = ["fetch", "64", file.to_str().unwrap()];
    let major = recorded(&["-e", "major-faults", "--call-graph", "both"], &command, "fetch");
    assert!((60..=70).contains(&major.in_function), "{} {:#}", major.in_function, major.report);
}

/// Check that a period thins samples out accordingly, that a rate lets the kernel do so, and that a recording says
/// which was used.
#[test]
fn counts_and_rates() {
    for collector in COLLECTORS {
        let thin = recorded(&["-e", "faults", "-c", "10", "--collector", collector], &["touch", "20000"], "touch");
        // By eBPF, other programs' faults on the same CPUs count too: every tenth of all is a sample, so the number of this
        // program's samples is random, with a standard deviation of 42.
        let all = thin.in_function + lost(&thin.report);
        assert!(all >= 1750 && thin.in_function <= 2250, "{collector}: {} {:#}", thin.in_function, thin.report);
        assert_eq!(thin.report["environment"]["event"], "page-faults");
        assert_eq!(thin.report["environment"]["rate"], "every 10 events");
    }
    // 200,000 faults take a fast machine a tenth of a second.
    let timed = recorded(&["-e", "cpu-clock", "-c", "500000"], &["touch", "200000"], "touch");
    assert!(timed.in_function > 50, "{:#}", timed.report);
    assert_eq!(timed.report["environment"]["rate"], "every 500000 ns");
    let varying = recorded(&["-e", "faults", "-F", "499"], &["touch", "200000"], "touch");
    let warnings = varying.report["warnings"].to_string();
    assert!(warnings.contains("-F changes how many page-faults a sample stands for"), "{warnings}");
    let rated = recorded(&["-e", "task-clock", "-F", "2000"], &["touch", "200000"], "touch");
    assert!(rated.in_function > 50, "{:#}", rated.report);
    assert_eq!(rated.report["environment"]["rate"], "2000 Hz");
    let both = ran(fpprof().args(["record", "-F", "9", "-c", "9", "--", "true"]));
    assert_eq!(both.status, 2, "{}", both.stderr);
}

/// Check that each hit of a tracepoint is a sample, for a system call and for the scheduler, with either collector, and
/// that hits of other programs are skipped and counted.
#[test]
fn tracepoints() {
    for collector in COLLECTORS {
        let by = |event| ["-e", event, "--collector", collector, "--call-graph", "both,16384"];
        assert_each(&by("syscalls:sys_enter_openat"), &["open", "500"], "open_files", 500);
        let switches = assert_each_switch(&by("sched:sched_switch"));
        if collector == "ebpf" {
            assert!(number(&switches.report, "skipped") > 0, "{:#}", switches.report);
        }
    }
    let thin = recorded(&["-e", "syscalls:sys_enter_openat", "-c", "7"], &["open", "7000"], "open_files");
    // As above, with a standard deviation of 29 if other programs open files, too.
    let all = thin.in_function + lost(&thin.report);
    assert!(all >= 820 && thin.in_function <= 1180, "{} {:#}", thin.in_function, thin.report);
}

/// Check that each hit of a probe is a sample with the caller's stack, wherever in the function it is placed, and that
/// hits of several threads at once are samples or counted as lost.
#[test]
fn probes() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path());
    let file = dir.path().join("recording");
    let place = |place: &str| format!("uprobe:{}:{place}", program.display());
    let record = |event: &str, command: &[&str]| {
        let options = ["-e", event, "--call-graph", "both,16384"];
        let mut args = vec!["record", "-o", file.to_str().unwrap()];
        args.extend(options);
        args.extend(["--", program.to_str().unwrap()]);
        args.extend(command);
        let ran = ran(fpprof().args(&args));
        assert_eq!(ran.status, 0, "{event}: {}", ran.stderr);
        let report = report(&file, &[]);
        assert_balance(&report);
        assert_eq!(report["environment"]["event"], *event);
        let found = stacks(&file, "dwarf");
        let chain = |names: &[String]| names.first().is_some_and(|leaf| leaf == "probed") && names[1] == "call";
        let hits: u64 = found.iter().filter(|stack| chain(&stack.names)).map(|stack| stack.samples).sum();
        (hits, report)
    };
    let nm = ran(Command::new("nm").arg(&program)).stdout;
    let line = nm.lines().find(|line| line.ends_with(" probed")).expect("the symbol");
    let address = format!("0x{}", line.split(' ').next().unwrap().trim_start_matches('0'));
    for at in ["probed", &address] {
        let (hits, report) = record(&place(at), &["call", "1000"]);
        assert_eq!(hits + lost(&report), 1000, "{at}: {report:#}");
    }
    // Of two functions of a name one must be chosen, but a variable is no function.
    let twice = dir.path().join("twice");
    let [one, other] = ["a.c", "b.c"].map(|name| dir.path().join(name));
    fs::write(
        &one,
        "static void dup(void) {} static void once(void) {} void f(void); int main() { dup(); once(); f(); }",
    )
    .unwrap();
    fs::write(&other, "static void dup(void) {} static volatile int once; void f(void) { dup(); once++; }").unwrap();
    let built = ran(Command::new("gcc").args(["-O0", "-o"]).args([&twice, &one, &other]));
    assert_eq!(built.status, 0, "{}", built.stderr);
    let event = format!("uprobe:{}:dup", twice.display());
    let refused = ran(fpprof().args(["record", "-e", &event, "--", "true"]));
    assert!(refused.status == 1 && refused.stderr.contains("has several functions `dup`"), "{}", refused.stderr);
    let event = format!("uprobe:{}:once", twice.display());
    let probed = ran(fpprof().args(["record", "-e", &event, "-o"]).arg(&file).arg("--").arg(&twice));
    assert_eq!(probed.status, 0, "{}", probed.stderr);
    assert_eq!(number(&report(&file, &[]), "fired"), 1);
    let (hits, report) = record(&place("probed"), &["threads", "5000"]);
    let recorded = number(&report, "recorded");
    assert_eq!(recorded + lost(&report), 20_000, "{report:#}");
    assert!(recorded > 0 && hits * 20 >= recorded * 19, "{hits}: {report:#}");
    let args = ["record", "-e", &place("probed"), "--collector", "perf-event", "--", "true"];
    let refused = ran(fpprof().args(args));
    assert!(
        refused.status == 1 && refused.stderr.contains("needs eBPF; record without --collector perf-event"),
        "{}",
        refused.stderr
    );
}

/// Check that of a function with several versions the default one is probed, that a version can be named, and that a
/// function whose code is chosen at the start is refused; in a stripped library, and in one with all symbols.
#[test]
fn versions_of_functions_are_distinguished() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let files = [
        (
            "work.c",
            "void work_old(void) {} void work_new(void) {} static void *pick(void) { return work_new; }
             __asm__(\".symver work_old,work@V1\\n.symver work_new,work@@V2\");
             void chosen(void) __attribute__((ifunc(\"pick\")));",
        ),
        ("map", "V1 { global: work; }; V2 { global: work; chosen; local: *; } V1;"),
        ("main.c", "void work(void); int main(void) { for (int n = 0; n < 10; n++) work(); }"),
    ];
    for (name, text) in files {
        fs::write(path(name), text).unwrap();
    }
    let library = path("libwork.so");
    let script = format!("-Wl,--version-script={}", path("map").display());
    // lld writes no versions into the table for the library itself.
    for symbols in ["-g", "-s", "-fuse-ld=lld"] {
        compile("gcc", &["-O1", "-shared", "-fPIC", symbols, &script], &library, &path("work.c"));
        let (link, search) = (format!("-L{}", dir.path().display()), format!("-Wl,-rpath,{}", dir.path().display()));
        let built =
            ran(Command::new("gcc").arg("-o").args([path("main"), path("main.c")]).args([&*link, &search, "-lwork"]));
        assert_eq!(built.status, 0, "{}", built.stderr);
        let probe = |place: &str| {
            let event = format!("uprobe:{}:{place}", library.display());
            let ran = ran(fpprof().args(["record", "-e", &event, "-o"]).arg(path("run")).arg("--").arg(path("main")));
            (ran.status == 0).then(|| number(&report(&path("run"), &[]), "fired")).ok_or(ran.stderr)
        };
        for place in ["work", "work@V2", "work@@V2"] {
            assert_eq!(probe(place), Ok(10), "{symbols} {place}");
        }
        for (place, why) in [
            ("work@V1", "the event did not happen"),
            ("work@@V1", "has no function `work@@V1`"),
            ("work@V3", "has no function `work@V3`"),
            ("chosen", "the code of `chosen`"),
        ] {
            let refused = probe(place).expect_err(place);
            assert!(refused.contains(why), "{symbols} {place}: {refused}");
        }
    }
}

/// Check that hardware counters are sampled if available, and otherwise refused with an alternative.
#[test]
fn counters_of_the_processor() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    let has_counters = Path::new("/sys/bus/event_source/devices/cpu").exists();
    for collector in COLLECTORS {
        for event in ["cycles", "instructions", "cache-misses", "LLC-loads", "r1a8"] {
            let mut record = fpprof();
            record.args(["record", "-e", event, "--collector", collector, "-o"]).arg(&file);
            let ran = ran(record.args(["--", "sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"]));
            if has_counters && event == "cycles" {
                assert_eq!(ran.status, 0, "{event}: {}", ran.stderr);
                assert_eq!(report(&file, &[])["environment"]["event"], event);
            } else if !has_counters {
                assert_eq!(ran.status, 1, "{event}: {}", ran.stderr);
                for words in [event, "PMU", "cpu-clock"] {
                    assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
                }
                assert!(!file.exists(), "nothing is left");
            }
        }
    }
}

/// Check that impossible events are refused with a remedy, before anything runs.
#[test]
fn wrong_events() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let mark = mark.to_str().unwrap();
    let refused = |mount: &str, options: &[&str], status: i32, words: &[&str]| {
        let mut args = vec!["record"];
        args.extend(options);
        args.extend(["--", "touch", mark]);
        let ran = with_tracefs(mount, &args);
        assert_eq!(ran.status, status, "{options:?}: {}", ran.stderr);
        for word in words {
            assert!(ran.stderr.contains(word), "`{word}` is not in: {}", ran.stderr);
        }
        assert!(!Path::new(mark).exists(), "the command ran");
    };
    refused("off", &["-e", "sched:sched_switch"], 1, &["not mounted", "mount -t tracefs"]);
    refused("on", &["-e", "sched:no_such_thing"], 1, &["no tracepoint sched:no_such_thing", "available_events"]);
    refused("on", &["-e", "sched:sched_switch", "-F", "99"], 1, &["at a rate", "-c N"]);
    refused("on", &["-e", "nonsense"], 2, &["page-faults", "GROUP:NAME", "uprobe:/PATH:SYMBOL"]);
    refused("on", &["-e", "cycles:u"], 2, &["modifier"]);
    refused("on", &["-e", "cycles,page-faults"], 2, &["one after the other"]);
    refused("on", &["-e", "uprobe:/bin/sh:no_such_function"], 1, &["no function `no_such_function`", "nm /bin/sh"]);
    refused("on", &["-e", "uprobe:/etc/passwd:main"], 1, &["cannot probe /etc/passwd"]);
    refused("on", &["-e", "uprobe:/no/such/file:main"], 1, &["cannot probe /no/such/file"]);
    refused("on", &["-e", "page-faults", "-c", "0"], 2, &["--count", "1 or more"]);
    refused("on", &["-e", "page-faults", "-c", "18446744073709551615"], 2, &["--count", "at most 9223372036854775807"]);
    refused("on", &["-e", "cpu-clock", "-c", "9999"], 1, &["-c of cpu-clock", "nanoseconds, at least 10000"]);
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set", "-all"];
    let script =
        "umount -q -R /sys/kernel/tracing; mount -t tracefs tracefs /sys/kernel/tracing && exec setpriv \"$@\"";
    let mut as_nobody = Command::new("unshare");
    as_nobody.args(["-m", "sh", "-c", script, "sh"]).args(nobody).arg(env!("CARGO_BIN_EXE_fpprof"));
    let ran = ran(as_nobody.args(["record", "-o", "/dev/null", "-e", "sched:sched_switch", "--", "true"]));
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot read tracepoints") && ran.stderr.contains("run as root"), "{}", ran.stderr);
}

/// Check that a flame graph names its event.
#[test]
fn flame_graphs_name_the_event() {
    let dir = tempfile::tempdir().unwrap();
    let (program, file) = (program(dir.path()), dir.path().join("recording"));
    crate::support::record(&file, &["-e", "minor-faults"], &[program.to_str().unwrap(), "touch", "1000"]);
    let drawn = ran(fpprof().arg("flamegraph").arg(&file).args(["-o", "-"]));
    assert!(drawn.stdout.contains("recording · minor-faults · dwarf<"), "{}", drawn.stderr);
    assert!(drawn.stdout.contains("touch"));
}
