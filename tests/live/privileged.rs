//! Programs whose memory other users must not see: setuid programs, and undumpable ones.

use crate::support::{Ended, Ran, assert_balance, compile, copy_program, fpprof, number, ran, record, report};
use fpprof_recording::Recording;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The uid of `nobody`.
const NOBODY: u32 = 65_534;

/// The value that the program keeps on its stack (`secret.c`), except for the lowest two bytes.
const SECRET: u64 = 0x5ec2_e75e_c2e7_0000;

/// Counts of samples in a recording.
#[derive(Debug, Default)]
struct Found {
    with_secret: u64,
    withheld: u64,
    /// Withheld samples that have callers by frame pointers.
    with_callers: u64,
}

/// The samples of the process with this name.
fn found(file: &Path, report: &Value, comm: &str) -> Found {
    let process = report["processes"].as_array().expect("processes").iter().find(|process| process["comm"] == comm);
    let pid = process.map_or(0, |process| number(process, "pid"));
    let mut found = Found::default();
    let mut recording = Recording::open(fs::File::open(file).expect("the recording")).expect("a recording");
    let visited = recording.samples(|sample| {
        if u64::from(sample.pid) != pid {
            return;
        }
        let words = sample.stack.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut with_regs = words.chain(sample.user_regs.iter().flat_map(|regs| regs.values));
        found.with_secret += u64::from(with_regs.any(|word| word & !0xffff == SECRET));
        found.withheld += u64::from(sample.withheld);
        found.with_callers += u64::from(sample.withheld && sample.user_fp.len() >= 2);
    });
    visited.expect("samples");
    found
}

/// Checks that the stacks of a process are copied. Before its exec the process was undumpable, since it had changed its
/// user or was fpprof: with eBPF that is a few samples, with perf events the old state may be cached for a tenth of a
/// second.
fn assert_copied(case: &str, collector: &str, found: &Found) {
    let most = if collector == "ebpf" { 10 } else { found.with_secret };
    assert!(found.with_secret > 50 && found.withheld < most, "{case} {collector}: {found:?}");
}

fn compile_secret(program: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("collector/tests/programs/secret.c");
    compile("gcc", &["-O1", "-fno-omit-frame-pointer"], program, &source);
}

/// A copy of fpprof with file capabilities, as `doctor` advises.
struct WithFileCapabilities {
    directory: tempfile::TempDir,
}

impl WithFileCapabilities {
    fn new(capabilities: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("its rights");
        chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("these tests run as root");
        let copy = directory.path().join("fpprof");
        copy_program(Path::new(env!("CARGO_BIN_EXE_fpprof")), &copy);
        let set = ran(Command::new("setcap").arg(format!("{capabilities}+ep")).arg(&copy));
        assert_eq!(set.status, 0, "{}", set.stderr);
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs `record` as an ordinary user.
    fn record(&self, arguments: &[&str]) -> Ran {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(self.path("fpprof")).arg("record");
        ran(command.args(["-q", "-o"]).arg(self.path("recording")).args(arguments).current_dir(self.directory.path()))
    }
}

/// Check that a user who may run an fpprof with file capabilities sees no byte of other users' stacks: other users'
/// processes are refused by pid, and in a recording of everything only their frame-pointer chains are recorded. With
/// either collector.
#[test]
fn file_capabilities_show_only_the_users_own_stacks() {
    for capabilities in ["cap_bpf,cap_perfmon", "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_checkpoint_restore"] {
        let fpprof = WithFileCapabilities::new(capabilities);
        let (roots, own) = (fpprof.path("roots"), fpprof.path("own"));
        compile_secret(&roots);
        copy_program(&roots, &own);
        let of_root = Ended(Command::new(&roots).arg("100000").spawn().expect("a program of root's"));
        // A name that is not UTF-8 makes no difference.
        let link = fpprof.directory.path().join(OsStr::from_bytes(b"m\xc3"));
        symlink(&roots, &link).expect("a link");
        let of_strange_name = Ended(Command::new(&link).arg("100000").spawn().expect("a program of root's"));
        let pids = [of_root.id(), of_strange_name.id()].map(|pid| pid.to_string());
        for (how, pid) in ["-p", "-t"].into_iter().flat_map(|how| pids.iter().map(move |pid| (how, pid))) {
            let refused = fpprof.record(&[how, pid, "--duration", "1", "--keep-raw-stacks"]);
            assert_eq!(refused.status, 1, "{}", refused.stderr);
            assert!(refused.stderr.contains(&format!("{pid} belongs to another user")), "{}", refused.stderr);
        }
        drop(of_strange_name);
        let refused = fpprof.record(&["--include-privileged", "--", own.to_str().unwrap(), "1"]);
        assert!(refused.status == 1 && refused.stderr.contains("not allowed"), "{}", refused.stderr);
        for collector in ["ebpf", "perf-event"] {
            let options = ["-a", "--keep-raw-stacks", "--call-graph", "both,16384", "--collector", collector, "--"];
            let recorded = fpprof.record(&[&options[..], &[own.to_str().unwrap(), "1000"]].concat());
            assert_eq!(recorded.status, 0, "{collector}: {}", recorded.stderr);
            let file = fpprof.path("recording");
            let report = report(&file, &[]);
            assert_balance(&report);
            let (of_root, own) = (found(&file, &report, "roots"), found(&file, &report, "own"));
            assert!(of_root.with_secret == 0 && of_root.withheld > 50, "{collector}: {of_root:?}");
            assert!(of_root.with_callers * 100 >= of_root.withheld * 90, "{collector}: {of_root:?}");
            assert_copied("own", collector, &own);
        }
    }
}

/// Check that a real-time priority applies to the recorder only, not to the command, with either collector, and that a
/// refusal by the kernel is reported.
#[test]
fn real_time_priority_is_the_recorders_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (file, policies) = (dir.path().join("recording"), dir.path().join("policies"));
    // Field 41 is the scheduling policy: SCHED_FIFO is 1, the default is 0.
    let script =
        "cut -d ' ' -f 41 /proc/$PPID/stat /proc/self/stat >\"$0\"; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    for collector in ["ebpf", "perf-event"] {
        let options = ["-r", "1", "--collector", collector];
        record(&file, &options, &["sh", "-c", script, policies.to_str().unwrap()]);
        assert_eq!(fs::read_to_string(&policies).unwrap(), "1\n0\n", "{collector}");
        assert_balance(&report(&file, &[]));
    }
    let mut without = Command::new("setpriv");
    without.args(["--bounding-set", "-sys_nice", env!("CARGO_BIN_EXE_fpprof"), "record", "-r", "1", "-o"]);
    let refused = ran(without.arg(&file).args(["--", "true"]));
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("real-time priority 1: Operation not permitted"), "{}", refused.stderr);
    assert!(file.exists(), "the recording that was there is still");
}

/// Check that no stack byte of a setuid program or an undumpable one is recorded, but their frame-pointer chains are,
/// and that the report says so; and that stacks are recorded on request. With either collector.
#[test]
fn privileged_programs_keep_their_stacks() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (file, plain, setuid) = (dir.path().join("recording"), dir.path().join("plain"), dir.path().join("setuid"));
    compile_secret(&plain);
    copy_program(&plain, &setuid);
    fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).unwrap();
    let cases = [
        (&plain, "", "", true),
        (&plain, "undumpable", "", false),
        (&plain, "undumpable", "--include-privileged", true),
        (&setuid, "", "", false),
        (&setuid, "", "--include-privileged", true),
    ];
    for collector in ["ebpf", "perf-event"] {
        for (program, how, option, is_copied) in cases {
            let case = format!("{collector} {} {how} {option}", program.display());
            // The kernel removes a process's events when it executes a setuid program.
            let all = if collector == "perf-event" && program == &setuid { "-a" } else { "" };
            let given = |options: [&'static str; 2]| options.into_iter().filter(|option| !option.is_empty());
            let mut recorder = fpprof();
            recorder.args([
                "record",
                "-q",
                "--keep-raw-stacks",
                "--call-graph",
                "both,16384",
                "--collector",
                collector,
            ]);
            recorder.args(given([option, all])).arg("-o").arg(&file);
            recorder.args(["--", "setpriv", "--reuid", "65534", "--clear-groups"]).arg(program).arg("500");
            let ended = ran(recorder.args(given([how, ""])));
            assert_eq!(ended.status, 0, "{case}: {}", ended.stderr);
            let report = report(&file, &[]);
            assert_balance(&report);
            let comm = program.file_name().unwrap().to_str().unwrap();
            let found = found(&file, &report, comm);
            if all.is_empty() {
                assert_eq!(number(&report, "withheld"), found.withheld, "{case}");
                let warns = report["warnings"].to_string().contains("--include-privileged");
                assert_eq!(warns, found.withheld > 0, "{case}: {report:#}");
            }
            if is_copied {
                assert_copied(&case, collector, &found);
            } else {
                assert!(found.with_secret == 0 && found.withheld > 20, "{case}: {found:?}");
                assert!(found.with_callers * 100 >= found.withheld * 90, "{case}: {found:?}");
            }
        }
    }
}
