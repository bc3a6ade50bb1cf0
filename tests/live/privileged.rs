//! Programs whose memory others must not see: setuid programs, and those that ask for it.

use crate::support::{assert_balance, compile, fpprof, number, ran, report};
use fpprof_recording::Recording;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What the program keeps on its stack (`secret.c`), but for the lowest two bytes.
const SECRET: u64 = 0x5ec2_e75e_c2e7_0000;

/// Samples of a recording.
#[derive(Debug, Default)]
struct Found {
    with_secret: u64,
    withheld: u64,
    /// Of the withheld, those with callers by frame pointers.
    with_callers: u64,
}

/// Samples of the process of a name.
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

/// Check that of a setuid program and of one that asked not to be dumped no byte of the stack is recorded, but its
/// frame-pointer chains are, which the report says; and that it is recorded when that is asked for. With either collector.
#[test]
fn privileged_programs_keep_their_stacks() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (file, plain, setuid) = (dir.path().join("recording"), dir.path().join("plain"), dir.path().join("setuid"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("collector/tests/programs/secret.c");
    compile("gcc", &["-O1", "-fno-omit-frame-pointer"], &plain, &source);
    fs::copy(&plain, &setuid).unwrap();
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
            // The kernel takes the events of a process away from it when it executes a setuid program.
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
                // `setpriv` has changed its user before it executes the program.
                assert!(found.with_secret > 50 && found.withheld < 10, "{case}: {found:?}");
            } else {
                assert!(found.with_secret == 0 && found.withheld > 50, "{case}: {found:?}");
                assert!(found.with_callers * 100 >= found.withheld * 90, "{case}: {found:?}");
            }
        }
    }
}
