//! Real recordings: the exit status is passed on, everything adds up, and nothing is lost when the recorder or the disk
//! fails. These tests load the real BPF program and fail where that is impossible.

use super::worker::{children, status};
use crate::support::{
    ENDLESS, Ended, Ran, assert_balance, compile, cpu_time, fpprof, number, ran, record, report, until_enough,
    wait_for_samples, wait_until,
};
use fpprof_recording::Recording;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A shell loop and another program: a fixed amount of work, in two processes one after the other.
const BUSY: &str = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; perl -e '$i++ while $i < 3000000'; true";

/// Check that every mode records a process tree, that its balance holds and that its status is passed on.
#[test]
fn every_mode_records_and_adds_up() {
    let dir = tempfile::tempdir().unwrap();
    for mode in ["fp", "dwarf,4096", "dwarf,65536", "both", "both,262144", "both,64,1/3"] {
        let file = dir.path().join(mode.replace([',', '/'], "-"));
        record(&file, &["-F", "1999", "--call-graph", mode], &["sh", "-c", BUSY]);
        let report = report(&file, &[]);
        assert_balance(&report);
        assert!(number(&report, "recorded") > 100, "{mode}: {report}");
        assert_eq!(report["ended_in_order"], true, "{mode}");
        let comms: Vec<_> = report["processes"].as_array().unwrap().iter().map(|p| p["comm"].clone()).collect();
        assert!(comms.iter().all(|comm| *comm != "fpprof"), "{mode}: fpprof recorded itself: {comms:?}");
        assert!(
            comms.iter().any(|comm| *comm == "perl") && comms.iter().any(|comm| *comm == "sh"),
            "{mode}: {comms:?}"
        );
    }
}

/// Check that one stack in N is copied on each CPU, that frame pointers have all samples and copied stacks only theirs, and
/// that perf events refuse it.
#[test]
fn one_stack_in_n_is_copied() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("one-in-four");
    record(&file, &["-F", "499", "--call-graph", "both:1/4"], &["sh", "-c", BUSY]);
    let all = report(&file, &[]);
    assert_balance(&all);
    let of =
        |report: &Value, key: &str| number(report.pointer(key).unwrap_or_else(|| panic!("{key}: {report}")), "samples");
    let (chains, copied) = (of(&all, "/strategies/fp"), of(&all, "/strategies/dwarf"));
    // A part of four at the end of each CPU's samples, and samples that were lost.
    let rest = 4 * number(&all["environment"], "cpus") + number(&all, "fired")
        - number(&all, "skipped")
        - number(&all, "recorded");
    assert!(copied > 0 && chains.abs_diff(4 * copied) <= rest, "{copied} of {chains} copied: {all}");
    assert_eq!(of(&all, "/agreements/0"), copied, "{all}");
    assert_eq!(all["environment"]["mode"], "both,65536,1/4");
    // Of the copied stacks alone, shares are shares of theirs.
    let alone = report(&file, &["--strategies", "dwarf"]);
    assert_eq!(of(&alone, "/filtered"), copied, "{alone}");
    assert_eq!(of(&alone, "/strategies/dwarf"), copied, "{alone}");
    let mut refused = fpprof();
    refused.args(["record", "--collector", "perf-event", "--call-graph", "both:1/4", "--", "true"]);
    let refused = ran(refused.current_dir(dir.path()));
    assert!(refused.status == 1 && refused.stderr.contains("both:1/N"), "{}", refused.stderr);
}

/// Check that `record` exits with the command's status or signal.
#[test]
fn the_status_of_the_command_is_passed_on() {
    let dir = tempfile::tempdir().unwrap();
    let status = |script: &str| {
        let file = dir.path().join("status");
        ran(fpprof().args(["record", "-o"]).arg(file).args(["--", "sh", "-c", script])).status
    };
    let busy = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done;";
    assert_eq!(status(&format!("{busy} exit 0")), 0);
    assert_eq!(status(&format!("{busy} exit 42")), 42);
    assert_eq!(status(&format!("{busy} kill -TERM $$")), 128 + 15);
    // A command that only waits: a profile without samples is a failure.
    let file = dir.path().join("empty");
    let idle = ran(fpprof().args(["record", "-F", "1", "-o"]).arg(file).args(["--", "sleep", "0.1"]));
    assert_eq!(idle.status, 1, "{}", idle.stderr);
    assert!(idle.stderr.contains("no sample"), "{}", idle.stderr);
}

/// Check that a recorder killed in the middle leaves a recording that opens, adds up and says how it ended.
#[test]
fn a_killed_recorder_leaves_what_it_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("killed");
    let endless = "alarm 200; while (1) {} # of a killed recorder";
    let mut recorder = Ended(
        fpprof()
            .args(["record", "-F", "1999", "-o"])
            .arg(&file)
            .args(["--", "perl", "-e", endless])
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    wait_for_samples(&file);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let _ = Command::new("pkill").args(["-f", "# of a killed recorder"]).status();
    let report = report(&file, &[]);
    assert_balance(&report);
    assert!(number(&report, "recorded") > 0, "{report}");
    assert_eq!(report["ended_in_order"], false, "{report}");
    assert!(!report["ended"].as_str().unwrap().is_empty(), "{report}");
}

/// Check that on a full disk all earlier samples stay readable, later ones are counted, and the command continues.
#[test]
fn a_full_disk_loses_nothing_written_before() {
    let dir = tempfile::tempdir().unwrap();
    let (small, kept, done) = (dir.path().join("small"), dir.path().join("kept"), dir.path().join("done"));
    fs::create_dir(&small).unwrap();
    // Long enough to fill the disk even at an eighth of the rate; in one process, so that samples fill it.
    let busy = "timeout 15 sh -c 'while :; do :; done'; touch \"$1\"";
    // The small disk is only visible to these processes. It has room for the data of one second.
    let script = "mount -t tmpfs -o size=64k tmpfs \"$1\" || exit 9
        \"$3\" record -F 1999 --keep-raw-stacks -o \"$1/full\" -- sh -c \"$4\" \"$1\" \"$5\"
        status=$?; cp \"$1/full\" \"$2\" || exit 9; exit $status";
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "sh", "-c", script, "sh"]).args([&small, &kept]).arg(env!("CARGO_BIN_EXE_fpprof"));
    let ran = ran(unshare.arg(busy).arg(&done));
    assert_ne!(ran.status, 9, "a small tmpfs must be mountable: run the tests as root: {}", ran.stderr);
    assert!(done.exists(), "the command did not run to its end");
    assert_eq!(ran.status, 1, "a recording that is not whole is a failure: {}", ran.stderr);
    assert!(ran.stderr.contains("No space left"), "{}", ran.stderr);
    let report = report(&kept, &[]);
    assert_balance(&report);
    assert!(number(&report, "recorded") > 0, "{report}");
}

/// Check that root can record into a directory of another user, such as a home, although fpprof drops privileges it
/// does not need; with either collector, and if an older recording is moved aside; and that a file which it cannot
/// remove again is named.
#[test]
fn root_records_into_directories_of_others() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).expect("these tests run as root");
    let file = dir.path().join("recording");
    for collector in ["ebpf", "perf-event", "ebpf"] {
        record(&file, &["--collector", collector], &["sh", "-c", BUSY]);
        assert!(number(&report(&file, &[]), "recorded") > 0, "{collector}");
    }
    let program = dir.path().join("no_program");
    fs::write(&program, [0x7f, b'X', 1, 2, 3]).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let refused = ran(fpprof().args(["record", "-o"]).arg(&file).arg("--").arg(&program));
    assert_eq!(refused.status, 126, "{}", refused.stderr);
    assert!(refused.stderr.contains("cannot remove the recording"), "{}", refused.stderr);
    assert!(number(&report(&dir.path().join("recording.old"), &[]), "recorded") > 0, "the older one is kept");
}

/// Check that SIGINT ends a recording in order, and the command's processes continue.
#[test]
fn sigint_ends_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("interrupted");
    let mut recorder = Ended(
        fpprof().args(["record", "-o"]).arg(&file).arg("--").args(ENDLESS).stderr(Stdio::piped()).spawn().unwrap(),
    );
    wait_for_samples(&file);
    let pid = recorder.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let began = Instant::now();
    recorder.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(60), "stopping took {:?}", began.elapsed());
    let report = report(&file, &[]);
    assert_balance(&report);
    assert_eq!(report["ended_in_order"], true, "{report}");
}

/// Records a running target until there is a sample of it.
fn recorded_for_a_while(target: &[&str], file: &Path) -> Ran {
    until_enough("samples", |seconds| {
        let seconds = seconds.to_string();
        let ran = ran(fpprof().args(["record", "--duration", &seconds, "-o"]).arg(file).args(target));
        (ran.status != 0 || number(&report(file, &[]), "recorded") > 0).then_some(ran)
    })
}

/// Check that attaching to a running process finds its stacks and leaves it running.
#[test]
fn attaching_leaves_the_process_running() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("attached");
    let mut busy = Ended(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
    let pid = busy.id().to_string();
    let ran = recorded_for_a_while(&["-p", &pid], &file);
    let still_running = busy.try_wait().unwrap().is_none();
    busy.kill().unwrap();
    busy.wait().unwrap();
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(still_running, "attaching ended the process");
    let report = report(&file, &[]);
    assert_balance(&report);
    let process = &report["processes"][0];
    assert_eq!(number(process, "pid").to_string(), pid);
    let dwarf = &process["strategies"]["dwarf"];
    assert_eq!(dwarf["complete"], dwarf["samples"], "{report}");
}

/// Check that a single thread can be recorded by its tid, that an invalid control group is refused with the places to
/// look, and that targets exclude one another.
#[test]
fn threads_and_control_groups() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("thread");
    let mut busy = Ended(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
    let tid = busy.id().to_string();
    let thread = recorded_for_a_while(&["-t", &tid], &file);
    busy.kill().unwrap();
    busy.wait().unwrap();
    assert_eq!(thread.status, 0, "{}", thread.stderr);
    let report = report(&file, &[]);
    assert_balance(&report);
    assert_eq!(report["environment"]["target"], format!("threads {tid}"));
    assert!(number(&report, "skipped") > 0 && number(&report, "recorded") > 0, "{report}");
    let gone = ran(fpprof().args(["record", "-t", &tid, "-o"]).arg(&file));
    assert!(gone.status == 1 && gone.stderr.contains(&format!("no thread with TID {tid}")), "{}", gone.stderr);
    let no_group = ran(fpprof().args(["record", "-G", "no-such-group", "-o"]).arg(&file));
    assert!(no_group.status == 1 && no_group.stderr.contains("/sys/fs/cgroup"), "{}", no_group.stderr);
    for both in [["-G", "x", "-p", "1"], ["-G", "x", "-t", "1"], ["-t", "1", "-p", "1"]] {
        assert_eq!(ran(fpprof().arg("record").args(both)).status, 2, "{both:?}");
    }
    assert_eq!(ran(fpprof().args(["record", "-t", "1", "--", "true"])).status, 2);
}

/// The number of rounds of the balance test with a stopped recorder; `just balance` sets 100.
fn rounds() -> u32 {
    std::env::var("FPPROF_BALANCE_ROUNDS").map_or(3, |rounds| rounds.parse().expect("a number of rounds"))
}

/// Check that a recorder stopped in the middle (SIGSTOP), with the smallest ring, loses only what does not fit: every
/// tick is accounted for, and the losses have their times.
#[test]
fn a_stopped_recorder_accounts_for_every_tick() {
    let dir = tempfile::tempdir().unwrap();
    let rounds = rounds();
    let mut total = BTreeMap::<&str, u64>::new();
    for round in 0..rounds {
        let file = dir.path().join(format!("stopped-{round}"));
        let chunk = 4096 << (round % 5);
        let too_small = ran(fpprof()
            .args(["record", "-q", "-m", "1", "--call-graph", &format!("both,{chunk}"), "-o"])
            .arg(&file)
            .args(["--", "true"]));
        let smallest = too_small.stderr.split("pass -m ").nth(1).and_then(|rest| rest.split(' ').next());
        let smallest = smallest.unwrap_or_else(|| panic!("the smallest ring is not said: {}", too_small.stderr));
        let mut recorder = Ended(
            fpprof()
                .args(["record", "-q", "-F", "4999", "-m", smallest, "--call-graph", &format!("both,{chunk}"), "-o"])
                .arg(&file)
                .arg("--")
                .args(ENDLESS)
                .spawn()
                .unwrap(),
        );
        wait_for_samples(&file);
        let pid = recorder.id().to_string();
        let kill = |signal: &str| assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        kill("-STOP");
        // This much CPU time fills the ring many times, however busy the machine is.
        let command = child_of(&pid).expect("the command runs");
        let enough = cpu_time(&command) + Duration::from_millis(500);
        wait_until("ticks", || cpu_time(&command) >= enough);
        kill("-CONT");
        kill("-INT");
        recorder.wait().unwrap();
        let report = report(&file, &[]);
        assert_balance(&report);
        let lost = number(&report["lost"], "ring_full");
        assert!(lost > 0, "round {round}: {report}");
        let mut recording = fpprof_recording::Recording::open(fs::File::open(&file).unwrap()).unwrap();
        let mut in_gaps = 0;
        let is_ring_full =
            |gap: &fpprof_recording::model::Gap| gap.cause == fpprof_recording::model::LossCause::RingFull;
        recording.gaps(|gap| in_gaps += if is_ring_full(gap) { gap.lost } else { 0 }).unwrap();
        assert_eq!(in_gaps, lost, "round {round}");
        for key in ["fired", "recorded", "skipped", "dropped"] {
            *total.entry(key).or_default() += number(&report, key);
        }
        *total.entry("lost").or_default() +=
            report["lost"].as_object().expect("lost").values().filter_map(serde_json::Value::as_u64).sum::<u64>();
        let sums: Vec<String> = total.iter().map(|(key, n)| format!("{key} {n}")).collect();
        let line =
            format!("{} of {rounds} recordings balance: {} (lost {lost} in this one)", round + 1, sums.join(", "));
        // Visible with --nocapture.
        writeln!(std::io::stderr(), "{line}").unwrap();
    }
}

/// The first child of a process that is not a parser.
fn child_of(pid: &str) -> Option<String> {
    let is_worker = |child: &u32| status(*child).get("Name").is_some_and(|name| name == "fpprof-worker");
    children(pid.parse().ok()?).into_iter().find(|child| !is_worker(child)).map(|child| child.to_string())
}

/// Check that perf can record at the same time: fpprof's perf events must not affect other users of the kernel.
#[test]
fn perf_records_beside_us() {
    let dir = tempfile::tempdir().unwrap();
    let beside = fpprof().args(["record", "-q", "-a", "-o"]).arg(dir.path().join("ours")).spawn();
    let mut beside = Ended(beside.unwrap());
    wait_until("the recorder records", || dir.path().join("ours").exists());
    let perf = ran(Command::new("perf")
        .args(["record", "-q", "-F", "999", "--call-graph", "fp", "-o"])
        .arg(dir.path().join("theirs"))
        .args(["--", "sh", "-c", BUSY]));
    let killed = Command::new("kill").args(["-INT", &beside.id().to_string()]).status();
    let ended = beside.wait();
    assert!(killed.unwrap().success() && ended.unwrap().success());
    assert_eq!(perf.status, 0, "{}", perf.stderr);
}

/// Check that the time in BPF programs, which slows down all of the machine, is measured only on request.
#[test]
fn time_in_bpf_programs_is_measured_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    let busy = ["sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"];
    for (options, is_measured) in [(&[][..], false), (&["--stats"], true)] {
        let recorded = record(&file, options, &busy);
        assert_eq!(recorded.stderr.contains("record with --stats"), !is_measured, "{}", recorded.stderr);
        let report = report(&file, &[]);
        assert_eq!(report["cost"]["bpf_ns_per_tick"].is_number(), is_measured, "{report}");
    }
}

/// Check that a recording ends at its maximum size, and says so.
#[test]
fn recordings_end_at_their_size() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    let mut record = fpprof();
    record.args(["record", "-F", "4999", "--keep-raw-stacks", "--max-size", "200K", "-o"]).arg(&file);
    let ended = ran(record.args(["--", "perl", "-e", "while (1) { $i{$n++ % 1000} = $n }"]));
    assert_eq!(ended.status, 128 + 15, "{}", ended.stderr);
    assert!(fs::metadata(&file).unwrap().len() >= 200 << 10);
    let report = report(&file, &[]);
    assert_balance(&report);
    assert!(report["ended"].as_str().unwrap().contains("--max-size"), "{report}");
    // A sleeping process is not sampled, however late the recorder checks.
    let asleep = Ended(Command::new("sleep").arg("600").spawn().unwrap());
    let pid = asleep.0.id().to_string();
    let too_small = ran(fpprof().args(["record", "-p", &pid, "--max-size", "1", "-o"]).arg(&file));
    assert_eq!(too_small.status, 1, "{}", too_small.stderr);
    assert!(too_small.stderr.contains("reached --max-size before the first sample"), "{}", too_small.stderr);
}

/// Check that samples are within the recording's time if the recorder is in a time namespace, whose clock differs, and
/// if only the command is, with either collector.
#[test]
fn clocks_of_time_namespaces() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    let unshare = ["unshare", "--time", "--monotonic", "100000", "--boottime", "100000", "--fork"];
    let busy = ["sh", "-c", BUSY];
    for collector in ["ebpf", "perf-event"] {
        for is_within in [true, false] {
            let recorder = [env!("CARGO_BIN_EXE_fpprof"), "record", "--collector", collector, "-o"];
            let mut command = Command::new(if is_within { unshare[0] } else { recorder[0] });
            if is_within {
                command.args(&unshare[1..]).arg(recorder[0]);
            }
            command.args(&recorder[1..]).arg(&file).arg("--").args(if is_within { &[][..] } else { &unshare });
            let ended = ran(command.args(busy));
            assert_eq!(ended.status, 0, "{}", ended.stderr);
            let report = report(&file, &[]);
            assert_balance(&report);
            assert!(number(&report, "recorded") > 20, "{report}");
            let mut recording = Recording::open(fs::File::open(&file).unwrap()).unwrap();
            let start_ns = recording.meta().start_ns;
            let mut most_ns = 0;
            let visited = recording.samples(|sample| most_ns = most_ns.max(sample.time_ns.wrapping_sub(start_ns)));
            visited.unwrap();
            assert!(
                most_ns < 600_000_000_000,
                "{collector}, within: {is_within}: a sample {most_ns} ns after the start"
            );
        }
    }
}

/// Check that commands that write stacks report missing data on stderr, with the same words as the report.
#[test]
fn exports_and_pictures_say_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let [program, file, svg] = ["program", "recording", "recording.svg"].map(|name| dir.path().join(name));
    let chain = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/programs/chain.c");
    compile("gcc", &["-O2", "-g", "-gsplit-dwarf"], &program, &chain);
    until_enough("samples", |seconds| {
        let command = [program.to_str().unwrap(), &*seconds.to_string()];
        record(&file, &["-q", "-F", "499", "--call-graph", "dwarf,8192"], &command);
        (number(&report(&file, &[]), "recorded") >= 100).then_some(())
    });
    for split in fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()) {
        if split.extension().is_some_and(|extension| extension == "dwo") {
            fs::remove_file(split).unwrap();
        }
    }
    let warnings = report(&file, &[])["warnings"].clone();
    let missing = warnings.as_array().unwrap().iter().filter_map(|one| one.as_str()).find(|one| one.contains(".dwo"));
    let missing = missing.unwrap_or_else(|| panic!("{warnings}"));
    let [mut export, mut picture, mut callers] = [(); 3].map(|()| fpprof());
    export.arg("export").arg(&file);
    picture.arg("flamegraph").arg(&file).arg("-o").arg(&svg);
    callers.arg("report").arg(&file).args(["--function", "main"]);
    for command in [&mut export, &mut picture, &mut callers] {
        let ran = ran(command);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains(missing), "{command:?}: {}", ran.stderr);
    }
}
