//! Waits: how long a program is blocked, and in which functions, compared with its own clock. Loads the real BPF
//! programs.

use crate::support::stacks::stacks;
use crate::support::{
    Ended, Ran, assert_balance, bpf_ids, compile, fpprof, number, ran, record, report, source, until_enough,
};
use fpprof_recording::Recording;
use fpprof_recording::model::{FpEnd, Sample};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The index of the waits' event in a recording.
const WAITS: u16 = 1;

fn program(dir: &Path) -> PathBuf {
    let program = dir.join("off_cpu");
    compile("gcc", &["-O1", "-fno-omit-frame-pointer", "-pthread"], &program, &source("off_cpu.c"));
    program
}

/// Records the program with `options`; returns its output.
fn recorded(file: &Path, options: &[&str], command: &[&str]) -> Ran {
    let program = program(file.parent().expect("a directory"));
    let command: Vec<&str> = [program.to_str().expect("a path")].into_iter().chain(command.iter().copied()).collect();
    record(file, options, &command)
}

/// Nanoseconds blocked below a function, by a strategy.
fn blocked_in(file: &Path, strategy: &str, function: &str) -> u64 {
    let args = ["--event", "off-cpu", "--strategy", strategy];
    let folded = ran(fpprof().arg("export").arg(file).args(args));
    assert_eq!(folded.status, 0, "{}", folded.stderr);
    let is_in = |line: &&str| line.split([';', ' ']).any(|name| name == function);
    let ns = |line: &str| line.rsplit_once(' ').and_then(|(_, ns)| ns.parse::<u64>().ok()).expect("nanoseconds");
    folded.stdout.lines().filter(is_in).map(ns).sum()
}

/// The waits of a recording.
fn waits(file: &Path) -> Vec<Sample> {
    let mut recording = Recording::open(File::open(file).expect("the recording")).expect("a recording");
    let mut found = Vec::new();
    recording.samples(|sample| found.extend((sample.event == WAITS).then(|| sample.clone()))).expect("samples");
    found
}

/// Checks that both events balance; returns the report of the waits.
fn assert_both_balance(file: &Path) -> serde_json::Value {
    assert_balance(&report(file, &[]));
    let waits = report(file, &["--event", "off-cpu"]);
    assert_balance(&waits);
    let of_event = waits.get("waits").expect("they were asked for");
    assert_balance(of_event);
    assert_eq!(number(&waits, "recorded"), number(of_event, "recorded"));
    assert_eq!(number(&waits, "blocked_ns"), number(of_event, "blocked_ns"));
    waits
}

/// Check that the time a program sleeps, waits for a futex and for a pipe is attributed to the functions that wait, by
/// frame pointers and by unwind information: at most as long as by its own clock, and at least as long as by the
/// kernel's, which excludes the time it waited for a CPU again.
#[test]
fn blocked_as_long_as_by_its_own_clock() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    let ran = recorded(&file, &["--off-cpu", "--call-graph", "both,16384"], &["all", "30", "10"]);
    let words: Vec<&str> = ran.stdout.split_whitespace().collect();
    let ns = |word: &str| word.parse::<u64>().expect("nanoseconds");
    let waits: Vec<_> =
        words.as_chunks::<3>().0.iter().map(|&[name, took, blocked]| (name, ns(took), ns(blocked))).collect();
    assert_eq!(waits.len(), 6, "{}", ran.stdout);
    for strategy in ["fp", "dwarf"] {
        for &(function, took, by_kernel) in &waits {
            let blocked = blocked_in(&file, strategy, function);
            // Short waits, for memory and the like, are not sampled.
            let is_right = (by_kernel - by_kernel / 20..=took).contains(&blocked);
            assert!(is_right, "{strategy} {function}: {blocked} of {took} ns, at least {by_kernel}");
        }
    }
    let all = assert_both_balance(&file);
    assert_eq!(all["environment"]["event"], "off-cpu");
    let kernel = ran_stdout(fpprof().arg("export").arg(&file).args(["--event", "off-cpu"]));
    let line = kernel.lines().find(|line| line.contains(";futex_long;")).expect("a stack");
    let frames: Vec<&str> = line.rsplit_once(' ').expect("a time").0.split(';').collect();
    assert_eq!(frames.last(), Some(&"__schedule_[k]"), "{line}");
    assert!(frames.iter().any(|frame| frame.contains("futex_wait")), "{line}");
}

fn ran_stdout(command: &mut Command) -> String {
    let ran = ran(command);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    ran.stdout
}

/// Check that waits below the threshold are not sampled but counted with their time, and that all longer ones are
/// sampled.
#[test]
fn short_waits_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    // 40 waits of 20 ms and 40 of 40 ms.
    recorded(&file, &["--off-cpu", "30ms"], &["sleep", "40", "20"]);
    let report = assert_both_balance(&file);
    let found = &report["waits"];
    assert_eq!(number(found, "threshold_ns"), 30_000_000);
    let (recorded, short) = (number(found, "recorded"), number(found, "short"));
    // On a busy machine some sleep longer than requested.
    assert!(recorded + short >= 80 && recorded >= 40 && short > 0, "{found:#}");
    let mean_ns = number(found, "short_ns") / short;
    assert!((1_000_000..30_000_000).contains(&mean_ns), "{found:#}");
    assert!(waits(&file).iter().all(|wait| wait.weight >= 30_000_000));
    let words = ran_stdout(fpprof().arg("report").arg(&file));
    assert!(words.contains("shorter than 30.0 ms") || words.contains("shorter than 0.03 s"), "{words}");
}

/// Check that a preempted thread does not count as blocked.
#[test]
fn preempted_is_not_blocked() {
    let dir = tempfile::tempdir().unwrap();
    let (file, program) = (dir.path().join("recording"), program(dir.path()));
    until_enough("threads that make way", |seconds| {
        let spin = format!("taskset -c 0 {} spin 1 {}", program.display(), 500 * seconds);
        record(&file, &["--off-cpu", "0"], &["sh", "-c", &format!("{spin} & {spin}; wait")]);
        let report = assert_both_balance(&file);
        (number(&report["waits"], "preempted") >= 20).then_some(())
    });
    assert!(blocked_in(&file, "dwarf", "run_spin") < 10_000_000);
}

/// Check that threads that are blocked from before a recording until after it are in it, for its whole duration, with
/// complete stacks of both kinds and the kernel's; and that a thread that is not blocked is not counted.
#[test]
fn blocked_from_beginning_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let (file, program) = (dir.path().join("recording"), program(dir.path()));
    let run = |what: &str| Ended(Command::new(&program).args([what, "1", "60000"]).spawn().expect("it runs"));
    let (blocked, spinning) = (run("stay"), run("spin"));
    let pids = format!("{},{}", blocked.id(), spinning.id());
    await_threads(blocked.id(), 2);
    for mode in ["both,65536", "fp"] {
        let options = ["record", "--off-cpu", "--call-graph", mode, "-p", &pids, "--duration", "1", "-o"];
        let ran = ran(fpprof().args(options).arg(&file));
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains("2 threads were still blocked"), "{}", ran.stderr);
        let report = assert_both_balance(&file);
        // The requested second, and at most the whole recording with its start and stop.
        let recording_s = report["duration_s"].as_f64().expect("a duration");
        let is_right = |ns: u64| (0.99..=recording_s).contains(&(Duration::from_nanos(ns).as_secs_f64()));
        let took: Vec<u64> =
            waits(&file).iter().filter(|wait| wait.pid == blocked.id()).map(|wait| wait.weight).collect();
        assert!(took.len() == 2 && took.iter().all(|&ns| is_right(ns)), "{mode}: {took:?} of {recording_s} s");
        let strategies = if mode == "fp" { &["fp"][..] } else { &["fp", "dwarf"] };
        for strategy in strategies {
            for function in ["stay_blocked", "forever"] {
                let ns = blocked_in(&file, strategy, function);
                assert!(is_right(ns), "{strategy} {function}: {ns} of {recording_s} s");
            }
            assert!(blocked_in(&file, strategy, "run_spin") < 200_000_000);
        }
        let stacks = ran_stdout(fpprof().arg("export").arg(&file).args(["--event", "off-cpu"]));
        let line = stacks.lines().find(|line| line.contains(";stay_blocked;")).expect("a stack");
        assert!(line.contains("nanosleep_[k]"), "{line}");
        assert!(mode == "fp" || (line.starts_with("off_cpu;_start;") && !stacks.contains("truncated")), "{stacks}");
    }
}

/// Check that a process whose memory does not answer holds up neither the start nor the end of a recording, and that its
/// thread is in it with its registers.
#[test]
fn memory_that_does_not_answer_is_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, file) = (dir.path().join("unreadable_stack"), dir.path().join("recording"));
    compile("gcc", &["-O1", "-pthread"], &program, &source("unreadable_stack.c"));
    let mut process = Ended(Command::new(&program).stdout(Stdio::piped()).spawn().expect("it runs"));
    let mut line = String::new();
    BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let pid = process.id().to_string();
    let options = ["record", "--off-cpu", "--call-graph", "both,65536", "-p", &pid, "--duration", "1", "-o"];
    let ran = ran(fpprof().args(options).arg(&file));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("2 threads were still blocked"), "{}", ran.stderr);
    assert_both_balance(&file);
    let (unread, read): (Vec<Sample>, Vec<Sample>) =
        waits(&file).into_iter().partition(|wait| wait.tid != process.id());
    assert!(read.len() == 1 && !read[0].stack.is_empty() && read[0].user_fp.len() > 1, "{read:?}");
    let [unread] = &unread[..] else { panic!("{unread:?}") };
    assert!(unread.stack.is_empty() && unread.user_regs.is_some(), "{unread:?}");
    assert_eq!((unread.user_fp.len(), unread.fp_end), (1, FpEnd::Unreadable));
}

/// Waits until a process has so many threads, of which the last ones sleep.
fn await_threads(pid: u32, n_threads: usize) {
    let sleeping = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process").filter_map(Result::ok);
        let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
        stats.filter(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" S "))).count()
    };
    while sleeping() < n_threads {
        std::thread::yield_now();
    }
}

/// Check that both events of nbdkit and fio balance with many short waits, that no thread has two waits at once, and
/// that none waits longer than the recording.
#[test]
fn nbdkit_and_fio() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    let workload = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/nbdkit-fio.sh");
    until_enough("waits", |seconds| {
        record(&file, &["--off-cpu", "--call-graph", "both,65536"], &[workload, &(2 * seconds).to_string()]);
        let report = assert_both_balance(&file);
        (number(&report["waits"], "recorded") > 1000 && number(&report["waits"], "short") > 0).then_some(())
    });
    let mut by_thread: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for wait in waits(&file) {
        by_thread.entry(wait.tid).or_default().push((wait.time_ns - wait.weight, wait.time_ns));
    }
    for (tid, mut times) in by_thread {
        times.sort_unstable();
        let overlap = times.array_windows().find(|[first, second]| first.1 > second.0);
        assert_eq!(overlap, None, "thread {tid}");
    }
    // Clock samples do not include the waits, in number and in weight.
    let clock: u64 = stacks(&file, "dwarf").iter().map(|stack| stack.samples).sum();
    assert!(clock > 0 && clock <= number(&crate::support::report(&file, &[]), "recorded"));
}

/// Check that on the whole machine neither idle CPUs nor kernel threads count as blocked, nor fpprof itself.
#[test]
fn the_machine_without_its_idlers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    let program = program(dir.path());
    let mut record = fpprof();
    record.args(["record", "-a", "--off-cpu", "-o"]).arg(&file).arg("--").arg(&program).args(["sleep", "20", "10"]);
    let mut own = Ended(record.spawn().expect("fpprof runs"));
    assert!(own.wait().expect("its end").success());
    let report = assert_both_balance(&file);
    let found = waits(&file);
    assert!(!found.is_empty());
    let kernel_threads: BTreeSet<u32> = kernel_threads();
    assert!(kernel_threads.len() > 10, "{kernel_threads:?}");
    let wrong = found.iter().find(|wait| [0, own.id()].contains(&wait.pid) || kernel_threads.contains(&wait.pid));
    assert_eq!(wrong.map(|wait| wait.pid), None);
    let names = report["processes"].as_array().expect("processes").iter().map(|process| &process["comm"]);
    let names: BTreeSet<&str> = names.filter_map(serde_json::Value::as_str).collect();
    assert!(names.contains("off_cpu"), "{names:?}");
}

/// Children of kthreadd, which is process 2.
fn kernel_threads() -> BTreeSet<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1).map(|ppid| ppid == "2"))
            == Some(true)
    };
    pids.filter(is_child).collect()
}

/// Check that pictures state their unit, and that no figure counts waits without their duration.
#[test]
fn units_are_shown_and_never_mixed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    recorded(&file, &["--off-cpu", "-F", "4999"], &["all", "10", "5"]);
    let drawn = |options: &[&str]| ran_stdout(fpprof().arg("flamegraph").arg(&file).args(options).args(["-o", "-"]));
    let blocked = drawn(&["--event", "off-cpu"]);
    assert!(blocked.contains("recording · off-cpu · dwarf<") && blocked.contains(" ms blocked"), "{blocked}");
    assert!(blocked.contains("futex_long") && !blocked.contains(" samples"), "{blocked}");
    let sampled = drawn(&[]);
    assert!(sampled.contains(" samples") && !sampled.contains("blocked ·"), "{sampled}");
    let words = ran_stdout(fpprof().arg("report").arg(&file).args(["--event", "off-cpu"]));
    assert!(words.contains("Blocked longest") && words.contains(" waits, blocked for "), "{words}");
    let html = dir.path().join("page.html");
    for args in [vec!["report", "--html", html.to_str().unwrap()], vec!["diff", file.to_str().unwrap()]] {
        let refused = ran(fpprof().args(&args).arg(&file).args(["--event", "off-cpu"]));
        assert_eq!(refused.status, 2, "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("`export` with --event off-cpu"), "{}", refused.stderr);
    }
    let unknown = ran(fpprof().arg("report").arg(&file).args(["--event", "on-cpu"]));
    assert_eq!(unknown.status, 1, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("no event on-cpu in the recording; it has"), "{}", unknown.stderr);
}

/// Check that impossible requests are refused with a remedy, before anything runs.
#[test]
fn refused_where_it_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let refused = |options: &[&str], status: i32, words: &[&str]| {
        let ran = ran(fpprof().arg("record").args(options).args(["--", "touch"]).arg(&mark));
        assert_eq!(ran.status, status, "{}", ran.stderr);
        for word in words {
            assert!(ran.stderr.contains(word), "`{word}` is not in: {}", ran.stderr);
        }
        assert!(!mark.exists(), "the command ran");
    };
    refused(
        &["--off-cpu", "--collector", "perf-event"],
        1,
        &["--off-cpu", "needs eBPF; record without --collector perf-event"],
    );
    refused(&["--off-cpu", "soon"], 2, &["`soon` is not a time", "50us"]);
}

/// Check that a vfork child that has let its parent continue, and waits for a lock before it leaves the address space,
/// has no user stack: its parent already overwrites it.
#[test]
fn stacks_that_a_parent_uses_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let (program, file) = (dir.path().join("spawn_under_lock"), dir.path().join("recording"));
    compile("gcc", &["-O2", "-pthread"], &program, &source("spawn_under_lock.c"));
    let has_caught_one = (0..5).any(|_| {
        record(&file, &["--off-cpu", "0"], &[program.to_str().expect("a path"), "200"]);
        let waits = assert_both_balance(&file);
        let dwarf = &waits["strategies"]["dwarf"];
        let mut broken = dwarf["broken"].as_object().expect("reasons").values();
        assert!(broken.all(|n| n == 0), "{dwarf}");
        dwarf["no_stack"]["in_exec"].as_u64().is_some_and(|n| n > 0)
    });
    // The number that are caught depends on the machine's load.
    assert!(has_caught_one, "no child was blocked after its parent went on");
}

/// The entries of the table of waits of a process that records.
fn entries_of_waits(recorder: u32) -> usize {
    let bpftool = |args: &[&str]| -> serde_json::Value {
        let output = Command::new("bpftool").arg("--json").args(args).output().expect("these tests need bpftool");
        serde_json::from_slice(&output.stdout).expect("bpftool's JSON")
    };
    let ids = bpf_ids("map_id:", recorder);
    let id = ids
        .iter()
        .find(|id| bpftool(&["map", "show", "id", id]).get("name") == Some(&"waits".into()))
        .expect("the recorder's table");
    bpftool(&["map", "dump", "id", id]).as_array().expect("entries").len()
}

/// Check that a thread that executes a program, and then has the number of its process, leaves no entry in the table of
/// waits.
#[test]
fn threads_that_exec_leave_no_entry() {
    const EXECS: &str = "
import os, sys, threading, time
left = int(sys.argv[2])
def execute():
    time.sleep(0.002)
    os.execv(sys.executable, [sys.executable, '-c', sys.argv[1], sys.argv[1], str(left - 1)])
if left:
    threading.Thread(target=execute).start()
    time.sleep(60)
print('done', flush=True)
sys.stdin.read()
";
    let dir = tempfile::tempdir().unwrap();
    let mut command = fpprof();
    command.args(["record", "--off-cpu", "-o"]).arg(dir.path().join("recording"));
    command.args(["--", "python3", "-c", EXECS, EXECS, "40"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut recorder = Ended(command.spawn().expect("fpprof"));
    let mut line = String::new();
    BufReader::new(recorder.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "done\n");
    let entries = entries_of_waits(recorder.id());
    drop(recorder.stdin.take());
    assert!(recorder.wait().expect("it ends").success());
    // One thread is left; those that ended last may not have been freed yet.
    assert!(entries <= 10, "{entries} entries after 40 threads");
}
