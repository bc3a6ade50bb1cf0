//! The collector without BPF, as an ordinary user, and compared with the eBPF collector.

use crate::changed::Changed;
use crate::changed_file;
use crate::support::{Ended, Ran, assert_balance, copy_program, number, ran, report, until_enough};
use fpprof_workloads::{Program, build, programs};
use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The uid of `nobody`.
const NOBODY: u32 = 65_534;

/// Sets the kernel's default rights of ordinary users.
fn usual_rights() -> Changed {
    changed_file("/proc/sys/kernel/perf_event_paranoid", "2")
}

/// A directory that an ordinary user can write to, with a copy of the program under test.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("its rights");
        chown(path, Some(NOBODY), Some(NOBODY)).expect("these tests run as root");
        copy_program(Path::new(env!("CARGO_BIN_EXE_fpprof")), &path.join("fpprof"));
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs the program under test as an ordinary user without any capability.
    fn as_nobody(&self, arguments: &[&str]) -> Ran {
        self.with(&["--bounding-set=-all", "--inh-caps=-all"], arguments)
    }

    /// Runs it as an ordinary user with only the capabilities that eBPF needs.
    fn with_bpf(&self, arguments: &[&str]) -> Ran {
        let only = |set: &str| format!("--{set}=-all,+bpf,+perfmon");
        let options = ["bounding-set", "inh-caps", "ambient-caps"].map(only);
        self.with(&options.each_ref().map(String::as_str), arguments)
    }

    fn with(&self, capabilities: &[&str], arguments: &[&str]) -> Ran {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(capabilities);
        ran(command.arg(self.path("fpprof")).args(arguments).current_dir(self.directory.path()))
    }
}

fn program(name: &str) -> &'static Program {
    programs().iter().find(|program| program.name == name).expect("a program of this name")
}

/// Outermost functions of complete stacks, of all that have at least one sample in fifty.
fn roots(file: &Path) -> BTreeSet<String> {
    let folded =
        ran(crate::support::fpprof().arg("export").arg(file).args(["--format", "folded", "--strategy", "dwarf"]));
    assert_eq!(folded.status, 0, "{}", folded.stderr);
    let mut samples = std::collections::BTreeMap::<String, u64>::new();
    for line in folded.stdout.lines() {
        let (frames, n) = line.rsplit_once(' ').expect("a folded line");
        let root: Vec<&str> = frames.split(';').skip(1).take(2).collect();
        *samples.entry(root.join(";")).or_default() += n.parse::<u64>().expect("a number");
    }
    let all: u64 = samples.values().sum();
    samples.into_iter().filter(|(_, n)| n * 50 >= all).map(|(root, _)| root).collect()
}

/// Wilson's 99.9 % interval of a share.
fn interval(part: u64, all: u64) -> (f64, f64) {
    let (z, n) = (3.29, all as f64);
    let p = part as f64 / n;
    let centre = p + z * z / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    ((centre - half) / (1.0 + z * z / n), (centre + half) / (1.0 + z * z / n))
}

/// Check that an ordinary user without any capability gets stacks of their own programs, in every mode and by default;
/// that these reach the same roots as the eBPF collector's, equally often; and that the report says what the balance
/// lacks.
#[test]
fn ordinary_users_get_the_same_stacks() {
    let _usual = usual_rights();
    let place = Place::new();
    for name in ["leaf_with_frame", "coroutine"] {
        let built = build(program(name), &place.path("programs")).expect("the program builds");
        let (with_bpf, without) = (place.path(&format!("{name}-ebpf")), place.path(&format!("{name}-perf")));
        let (command, file) = (built.to_str().expect("a path"), without.to_str().expect("a path"));
        let (recorded, [bpf, perf]) = until_enough(name, |seconds| {
            let seconds = seconds.to_string();
            crate::support::record(&with_bpf, &["--collector", "ebpf", "-F", "499"], &[command, &seconds]);
            let recorded = place.as_nobody(&["record", "-F", "499", "-o", file, "--", command, &seconds]);
            assert_eq!(recorded.status, 0, "{}", recorded.stderr);
            let reports = [&with_bpf, &without].map(|file| report(file, &["--strategy", "dwarf"]));
            reports.iter().all(|report| number(report, "recorded") >= 200).then_some((recorded, reports))
        });
        assert!(recorded.stderr.contains("sampling with perf events instead of eBPF"), "{}", recorded.stderr);
        assert!(recorded.stderr.contains("CAP_BPF and CAP_PERFMON"), "{}", recorded.stderr);
        for summary in [&bpf, &perf] {
            assert_balance(summary);
        }
        assert_eq!(perf["environment"]["collector"], "perf_event");
        assert!(perf["warnings"].to_string().contains("ticks in the kernel are not sampled or counted"), "{perf}");
        assert!(perf["warnings"].to_string().contains("in their first period"), "{perf}");
        assert!(!bpf["warnings"].to_string().contains("not sampled or counted"));
        let [(low, high), (perf_low, perf_high)] = [&bpf, &perf].map(|summary| {
            let quality = summary.pointer("/strategies/dwarf").expect("dwarf was analysed");
            let (complete, samples) = (number(quality, "complete"), number(quality, "samples"));
            interval(complete, samples)
        });
        assert!(low <= perf_high && perf_low <= high, "{name}: {low}..{high} and {perf_low}..{perf_high}");
        assert_eq!(roots(&with_bpf), roots(&without), "{name}");
    }
}

/// Check that every mode works for an ordinary user, that the chain and the chunk of a sample agree, and that a running
/// process can be attached to.
#[test]
fn every_mode_works_for_ordinary_users() {
    let _usual = usual_rights();
    let place = Place::new();
    let built = build(program("leaf_with_frame"), &place.path("programs")).expect("the program builds");
    let built = built.to_str().expect("a path");
    let file = place.path("recording");
    let name = file.to_str().expect("a path");
    for mode in ["fp", "dwarf,4096", "dwarf,65528", "both,16384"] {
        let summary = until_enough(mode, |seconds| {
            let options = ["record", "--collector", "perf-event", "--call-graph", mode, "-o", name, "--"];
            let recorded = place.as_nobody(&[&options[..], &[built, &seconds.to_string()]].concat());
            assert_eq!(recorded.status, 0, "{mode}: {}", recorded.stderr);
            assert!(!recorded.stderr.contains("instead of eBPF"), "what was asked for needs no explanation");
            Some(report(&file, &[])).filter(|summary| number(summary, "recorded") >= 200)
        });
        assert_balance(&summary);
        for (strategy, quality) in summary["strategies"].as_object().expect("strategies") {
            let (complete, samples) = (number(quality, "complete"), number(quality, "samples"));
            let is_exact = strategy == "dwarf";
            assert!(!is_exact || complete * 100 >= samples * 99, "{mode} {strategy}: {quality}");
        }
    }
    let options = ["--reuid=65534", "--regid=65534", "--clear-groups", built, "600"];
    let running = Ended(Command::new("setpriv").args(options).spawn().expect("the program runs"));
    let pid = running.id().to_string();
    let exe = PathBuf::from(format!("/proc/{pid}/exe"));
    while std::fs::read_link(&exe).is_ok_and(|path| !path.ends_with("program")) {
        std::thread::yield_now();
    }
    let summary = until_enough("samples", |seconds| {
        let attached = place.as_nobody(&["record", "-p", &pid, "--duration", &seconds.to_string(), "-o", name]);
        assert_eq!(attached.status, 0, "{}", attached.stderr);
        Some(report(&file, &["--strategy", "dwarf"])).filter(|summary| number(summary, "recorded") >= 100)
    });
    let quality = summary.pointer("/strategies/dwarf").expect("dwarf was analysed");
    assert!(number(quality, "complete") * 100 >= number(quality, "samples") * 99, "{quality}");
}

/// Check that a refused request names the capability that would allow it, before anything runs; and that `doctor` says
/// what the user may do.
#[test]
fn refusals_name_the_capability() {
    let _usual = usual_rights();
    let place = Place::new();
    let file = place.path("recording");
    let name = file.to_str().expect("a path");
    let refused = |arguments: &[&str], word: &str| {
        let ran = place.as_nobody(arguments);
        assert_eq!(ran.status, 1, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{arguments:?}: {}", ran.stderr);
        assert!(!file.exists());
    };
    refused(&["record", "-a", "--duration", "1", "-o", name], "CAP_PERFMON");
    refused(&["record", "-p", "1", "--duration", "1", "-o", name], "CAP_PERFMON");
    refused(&["record", "--collector", "ebpf", "-o", name, "--", "true"], "CAP_BPF and CAP_PERFMON");
    let too_much = ["record", "--collector", "perf-event", "--call-graph", "dwarf,128K", "-o", name, "--", "true"];
    refused(&too_much, "65528");
    refused(&["record", "--off-cpu", "-o", name, "--", "true"], "without eBPF: eBPF needs CAP_BPF and CAP_PERFMON");
    let doctor = place.as_nobody(&["doctor"]);
    assert_eq!(doctor.status, 0, "an ordinary user can record: {}", doctor.stdout);
    let line = doctor.stdout.lines().find(|line| line.contains("without BPF")).expect("a line");
    assert!(line.contains("own processes, user space only"), "{line}");
    let end = doctor.stdout.split("possible").last().expect("the end");
    assert!(end.contains("without eBPF: your own processes, user space only"), "{end}");
    let program = place.path("fpprof");
    for command in ["chown root:fpprof", "chmod 0750", "setcap cap_bpf,cap_perfmon+ep"] {
        assert!(end.contains(&format!("{command} {}", program.display())), "{command}: {end}");
    }
}

/// Check that the eBPF collector needs only two capabilities: an ordinary user who has them records their own programs
/// and the whole system, and `doctor` says so.
#[test]
fn two_capabilities_are_enough_for_ebpf() {
    let _usual = usual_rights();
    let place = Place::new();
    let built = build(program("leaf_with_frame"), &place.path("programs")).expect("the program builds");
    let file = place.path("recording");
    let name = file.to_str().expect("a path");
    let built = built.to_str().expect("a path");
    for target in [&["--", built][..], &["-a", "--", built]] {
        let (samples, complete) = until_enough("samples", |seconds| {
            let options = ["record", "--collector", "ebpf", "-F", "499", "-o", name];
            let recorded = place.with_bpf(&[&options[..], target, &[&seconds.to_string()]].concat());
            assert_eq!(recorded.status, 0, "{}", recorded.stderr);
            let summary = report(&file, &[]);
            assert_balance(&summary);
            assert_eq!(summary["environment"]["collector"], "ebpf");
            let processes = summary["processes"].as_array().expect("processes");
            let own = processes.iter().find(|process| process["comm"] == "program").expect("the program was sampled");
            let quality = &own["strategies"]["dwarf"];
            Some((number(quality, "samples"), number(quality, "complete"))).filter(|&(samples, _)| samples >= 100)
        });
        assert!(complete * 100 >= samples * 98, "{target:?}: {complete} of {samples}");
    }
    let doctor = place.with_bpf(&["doctor"]);
    assert_eq!(doctor.status, 0, "{}", doctor.stdout);
    let end = doctor.stdout.split("possible").last().expect("the end");
    // Whether the mappings of other users' processes can be read, and probes be placed, depends on the kernel.
    assert!(end.contains("with eBPF: ") && !end.contains("setcap"), "{end}");
    let doctor = place.with_bpf(&["doctor", "--with-ptrace"]);
    let command = "setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_checkpoint_restore+ep";
    assert!(doctor.stdout.contains(command), "{}", doctor.stdout);
    let as_root = ran(crate::support::fpprof().arg("doctor"));
    let end = as_root.stdout.split("possible").last().expect("the end");
    assert!(end.contains("with eBPF: everything") && !end.contains("setcap"), "{end}");
}

/// Check that a program that gains rights from its file leaves an ordinary user's recording, which says so rather than
/// that it used no time; and that an undumpable process is refused with the reason.
#[test]
fn programs_that_leave_a_recording_are_reported() {
    let _usual = usual_rights();
    let place = Place::new();
    let built = build(program("leaf_with_frame"), &place.path("programs")).expect("the program builds");
    let built_name = built.to_str().expect("a path");
    let file = place.path("recording");
    let name = file.to_str().expect("a path");
    chown(&built, Some(1), Some(1)).expect("these tests run as root");
    std::fs::set_permissions(&built, std::fs::Permissions::from_mode(0o4755)).expect("its rights");
    // Some CPU time of its own first.
    let script = format!("n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done; exec {built_name} 0.3");
    let recorded = place.as_nobody(&["record", "-F", "499", "-o", name, "--", "sh", "-c", &script]);
    assert_eq!(recorded.status, 0, "{}", recorded.stderr);
    assert!(recorded.stderr.contains("events removed by setuid exec: 1 processes"), "{}", recorded.stderr);
    let summary = report(&file, &[]);
    assert_balance(&summary);
    assert!(summary["warnings"].to_string().contains("events removed by setuid exec: 1 processes were"), "{summary}");
    std::fs::set_permissions(&built, std::fs::Permissions::from_mode(0o755)).expect("its rights");
    let plain = place.as_nobody(&["record", "-F", "499", "-o", name, "--", "sh", "-c", &script]);
    let warnings = report(&file, &[])["warnings"].to_string();
    for words in [plain.stderr, warnings] {
        assert!(!words.contains("events removed"), "{words}");
    }
}
