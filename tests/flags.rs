//! `fpprof flags` from a manifest to a report, with real builds, runs and recordings.

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::{Ran, fpprof, ran};

/// A program that does nothing but calls, under gcc with and without frame pointers, and a benchmark that is a script.
fn manifest(dir: &Path, rounds: u32, recording: &str) -> PathBuf {
    let source = "static __attribute__((noinline)) long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
        #include <stdio.h>
        #include <stdlib.h>
        int main(int argc, char **argv) { printf(\"%ld\\n\", fib(argc > 1 ? atoi(argv[1]) : 20)); return 0; }";
    fs::write(dir.join("fib.c"), source).expect("writing the source");
    let text = format!(
        r#"
seed = 1
rounds = {rounds}
layouts = 2
copies = 1
{recording}
[[flags]]
name = "gcc"
compiler = "gcc"
cflags = "-O2 -fno-optimize-sibling-calls"
[[flags]]
name = "gcc-fp"
compiler = "gcc"
cflags = "-O2 -fno-optimize-sibling-calls -fno-omit-frame-pointer"
against = "gcc"
[[flags]]
name = "none"
compiler = "no-such-compiler"
cflags = ""
[[program]]
name = "fib"
compile = "{{cc}} {{cflags}} -ffunction-sections -c {{here}}/fib.c"
link = "{{cc}} {{layout}} {{objects}} -o {{exe}}"
bench = "{{exe}} 20"
long = "{{exe}} 36"
[[program]]
name = "script"
under = ["gcc"]
fetch = "cp {{here}}/fib.c ."
compile = "{{cc}} {{cflags}} -c {{src}}/fib.c"
link = "{{cc}} {{layout}} {{objects}} -o {{exe}}"
bench = "env {{exe}} 15"
"#
    );
    let path = dir.join("manifest.toml");
    fs::write(&path, text).expect("writing the manifest");
    path
}

fn flags(manifest: &Path, out: &Path) -> Command {
    let mut command = fpprof();
    command.args(["flags", "run"]).arg(manifest).arg("-o").arg(out);
    command
}

fn evaluation(out: &Path) -> serde_json::Value {
    let Ran { status, stdout, stderr } = ran(fpprof().args(["flags", "report", "--json"]).arg(out));
    assert_eq!(status, 0, "{stderr}");
    serde_json::from_str(&stdout).expect("JSON")
}

/// Check that builds, recordings, rounds and a report come from one command; that a program may be built under some
/// flag sets only; that what is missing is said; and that running it again does nothing twice.
#[test]
fn one_command_gives_the_report() {
    let dir = tempfile::tempdir().unwrap();
    let recording = "[recording]\nfreq = 999\nstack_bytes = 16384\nchunks = [4096]";
    let (manifest, out) = (manifest(dir.path(), 3, recording), dir.path().join("out"));
    let first = ran(&mut flags(&manifest, &out));
    assert_eq!(first.status, 0, "{}", first.stderr);
    assert!(first.stderr.contains("no-such-compiler"), "{}", first.stderr);
    assert!(first.stdout.contains("A/A gcc") && first.stdout.contains("gcc-fp against gcc:"), "{}", first.stdout);

    let got = evaluation(&out);
    let result = |flags: &str, again: bool| {
        let results = got["results"].as_array().unwrap();
        results.iter().find(|of| of["arm"]["flags"] == flags && of["arm"]["again"] == again).unwrap().clone()
    };
    let names = |of: &serde_json::Value| -> Vec<String> {
        of["programs"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&result("gcc", true)), ["fib", "script"]);
    assert_eq!(names(&result("gcc-fp", false)), ["fib"]);
    let fib = &result("gcc-fp", false)["programs"][0];
    assert_eq!(fib["rounds"], 3);
    let quality = &fib["treated"]["quality"]["strategies"];
    let reached = |of: &serde_json::Value| of["reach_main"].as_f64().unwrap() / of["samples"].as_f64().unwrap();
    assert!(reached(&quality["fp"]) > 0.9 && reached(&quality["dwarf"]) > 0.9, "{quality}");
    assert!(reached(&fib["baseline"]["quality"]["strategies"]["fp"]) < 0.1, "{}", fib["baseline"]["quality"]);

    let binary = out.join("builds/fib/gcc-fp/bin-00");
    let (built, rounds) = (fs::metadata(&binary).unwrap().ctime_nsec(), fs::read(out.join("rounds.jsonl")).unwrap());
    assert_eq!(ran(&mut flags(&manifest, &out)).status, 0);
    assert_eq!(fs::metadata(&binary).unwrap().ctime_nsec(), built, "built again");
    assert_eq!(fs::read(out.join("rounds.jsonl")).unwrap(), rounds, "timed again");
}

/// Check that a run killed in the middle of its rounds goes on where it was, and keeps every finished round.
#[test]
fn killed_runs_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (endless, out) = (manifest(dir.path(), 100_000, ""), dir.path().join("out"));
    let mut child = flags(&endless, &out).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let lines = || fs::read_to_string(out.join("rounds.jsonl")).unwrap_or_default().matches('\n').count();
    let deadline = Instant::now() + Duration::from_secs(120);
    while lines() < 5 && Instant::now() < deadline {
        sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let text = fs::read_to_string(out.join("rounds.jsonl")).unwrap();
    let whole = text.get(..=text.rfind('\n').expect("no round was finished in two minutes")).unwrap();

    let wanted = u32::try_from(whole.lines().count()).unwrap();
    let ended = ran(&mut flags(&manifest(dir.path(), wanted, ""), &out));
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let after = fs::read_to_string(out.join("rounds.jsonl")).unwrap();
    assert!(after.starts_with(whole), "finished rounds were lost");
    let results = evaluation(&out);
    for program in results["results"].as_array().unwrap().iter().flat_map(|of| of["programs"].as_array().unwrap()) {
        assert!(program["rounds"].as_u64().unwrap() >= u64::from(wanted), "{program}");
        assert!(program["effect"]["Ok"].is_object(), "{program}");
    }
}
