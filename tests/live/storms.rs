//! Thousands of processes per second: everything adds up, every sample has its process, and the recorder's data about
//! ended processes does not accumulate.

/// Runs a program and measures its memory.
#[path = "../../src/compare/watch.rs"]
mod watch;

use crate::support::stacks::{commonest, stacks};
use crate::support::{
    Ended, assert_balance, compile, cpu_time, fpprof, number, ran, record, report, source, until_enough, wait_until,
};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Builds a program that makes as many processes as its argument says, one after the other.
fn storm_program(dir: &Path) -> PathBuf {
    let program = dir.join("storm");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("collector/tests/programs/storm.c");
    compile("cc", &["-O1"], &program, &source);
    program
}

/// Records a storm of `n` processes; returns the recorder's peak memory in bytes.
fn storm(program: &Path, file: &Path, n: u32) -> u64 {
    let mut recorder = fpprof();
    recorder.args(["record", "-q", "--call-graph", "both,16384", "-o"]).arg(file).arg("--").arg(program);
    let watched = watch::run(recorder.arg(n.to_string()), None).expect("the recorder starts");
    assert!(watched.status.success());
    let report = report(file, &[]);
    assert_balance(&report);
    let seconds = report.get("duration_s").and_then(Value::as_f64).expect("how long it took");
    let rate = f64::from(n) / seconds;
    let processes = report.get("processes").and_then(Value::as_array).expect("processes");
    let samples: u64 = processes.iter().map(|process| number(process, "samples")).sum();
    assert_eq!(samples, number(&report, "recorded"), "each sample has its process");
    assert!(processes.len() > 5, "{} processes sampled", processes.len());
    let strangers: Vec<_> =
        processes.iter().filter(|process| process.get("comm").and_then(Value::as_str) != Some("storm")).collect();
    assert!(strangers.is_empty() || number(&report, "sideband_lost") > 0, "{strangers:?} at {rate:.0} a second");
    assert!(watched.own_cpu_s < watched.wall_s(), "one thread reads: {watched:?}");
    watched.max_rss_bytes
}

/// Check that a recording of short-lived processes adds up, names the process of every sample, and takes no more memory
/// with ten times as many of them.
#[test]
fn storms_take_no_more_memory_when_they_last() {
    let dir = tempfile::tempdir().unwrap();
    let program = storm_program(dir.path());
    let file = dir.path().join("recording");
    // The machine's load determines how much waits to be read at the worst moment, and a longer storm has more such
    // moments: so it is compared with the worst of short ones of the same total length. A leak would be in every storm:
    // 110 bytes per process.
    let short = (0..5).map(|_| storm(&program, &file, 16_000)).max().unwrap();
    let mut long = Vec::new();
    while long.len() < 3 && long.last().is_none_or(|&peak| peak >= short + (7 << 20)) {
        long.push(storm(&program, &file, 80_000));
    }
    let is_flat = long.last().is_some_and(|&peak| peak < short + (7 << 20));
    assert!(is_flat, "{short} bytes at the peak of short storms, {long:?} of long ones");
}

/// Check that exiting threads are never taken for kernel threads, with either collector: of short-lived processes, and
/// of those that the kernel kills inside `execve`, when they have no mappings.
#[test]
fn exiting_threads_are_never_the_kernels() {
    let dir = tempfile::tempdir().unwrap();
    let [stillborn, image, file] = ["stillborn", "image", "recording"].map(|name| dir.path().join(name));
    compile("gcc", &["-O1"], &stillborn, &source("stillborn.c"));
    let storm = storm_program(dir.path());
    let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let commands = [vec![text(&stillborn), text(&image)], vec![text(&storm)]];
    for (collector, command) in ["ebpf", "perf-event"].iter().flat_map(|one| commands.iter().map(move |it| (one, it))) {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let options = ["-q", "-F", "9999", "--call-graph", "dwarf,4096", "--collector", collector];
        let found = until_enough("threads at their end", |seconds| {
            // One takes seconds, the other a number of processes.
            let amount = if command.len() == 1 { 8000 * seconds } else { seconds }.to_string();
            record(&file, &options, &[&command[..], &[&*amount]].concat());
            let folded = ran(fpprof().arg("export").arg(&file));
            assert_eq!(folded.status, 0, "{}", folded.stderr);
            let at_end = folded.stdout.lines().filter(|line| line.contains(";do_exit_[k]")).count();
            (at_end >= 20).then(|| report(&file, &[]))
        });
        let roots = &found["strategies"]["dwarf"]["roots"];
        assert_eq!(roots["kernel_thread"], Value::Null, "{collector} {command:?}: {found:#}");
    }
}

/// Check that a program that starts while a recorder is stopped and thousands of events are lost has its stacks once
/// the recorder continues, with either collector.
#[test]
fn lost_events_are_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let (storm, program) = (storm_program(dir.path()), dir.path().join("program"));
    compile("gcc", &["-O2"], &program, &Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/programs/chain.c"));
    let n_cpus = std::thread::available_parallelism().unwrap().get();
    for collector in ["ebpf", "perf-event"] {
        let (go, pid) = (dir.path().join(format!("go-{collector}")), dir.path().join(format!("pid-{collector}")));
        let script = format!(
            "echo $$ > {0}.part; mv {0}.part {0}; while [ ! -e {1} ]; do :; done; exec {2} 600",
            pid.display(),
            go.display(),
            program.display()
        );
        let file = dir.path().join(collector);
        let mut recorder = fpprof();
        recorder.args(["record", "-q", "-a", "--call-graph", "dwarf,4096", "--collector", collector, "-o"]);
        let mut recorder = Ended(recorder.arg(&file).args(["--", "sh", "-c", &script]).spawn().unwrap());
        wait_until("the recorder records", || pid.exists() && fs::metadata(&file).is_ok_and(|meta| meta.len() > 4096));
        let kill = |signal: &str| {
            assert!(Command::new("kill").args([signal, &recorder.id().to_string()]).status().unwrap().success());
        };
        kill("-STOP");
        let storm_on = |cpu: usize| {
            let mut taskset = Command::new("taskset");
            taskset.args(["-c", &cpu.to_string()]).arg(&storm).arg("40000").spawn().unwrap()
        };
        let storms: Vec<_> = (0..n_cpus).map(storm_on).collect();
        for mut storm in storms {
            assert!(storm.wait().unwrap().success());
        }
        fs::write(&go, "").unwrap();
        let pid = fs::read_to_string(&pid).unwrap();
        let comm = format!("/proc/{}/comm", pid.trim());
        wait_until("the program runs", || fs::read_to_string(&comm).is_ok_and(|comm| comm == "program\n"));
        kill("-CONT");
        let enough = cpu_time(pid.trim()) + Duration::from_millis(500);
        wait_until("the program runs on", || cpu_time(pid.trim()) >= enough);
        kill("-INT");
        recorder.wait().unwrap();
        let report = report(&file, &[]);
        assert_balance(&report);
        assert!(number(&report, "sideband_lost") > 1000, "{collector}: the storm was none: {report:#}");
        let found = stacks(&file, "dwarf");
        let of_chain = |class: &str| -> u64 {
            let is_it =
                |names: &[String]| names.iter().map(String::as_str).take(4).eq(["burn", "mid", "outer", "main"]);
            found.iter().filter(|stack| stack.class == class && is_it(&stack.names)).map(|stack| stack.samples).sum()
        };
        assert!(of_chain("complete") > 100, "{collector}: {}: {report:#}", commonest(&found));
        assert_eq!(of_chain("broken"), 0, "{collector}: {}", commonest(&found));
    }
}
