//! `fpprof flags` from a manifest to a report, with real builds, runs and recordings.

use crate::support::{Ran, fpprof, ran};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The manifest of a program that only calls functions, with gcc with and without frame pointers; the benchmark is a
/// script.
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

/// Writes a program of these shell commands.
fn program(path: &Path, commands: &str) {
    fs::write(path, format!("#!/bin/sh\n{commands}\n")).expect("writing a program");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("making it a program");
}

fn evaluation(out: &Path) -> serde_json::Value {
    let Ran { status, stdout, stderr } = ran(fpprof().args(["flags", "report", "--json"]).arg(out));
    assert_eq!(status, 0, "{stderr}");
    serde_json::from_str(&stdout).expect("JSON")
}

/// Check that one command makes builds, recordings, rounds and a report; that a program may be limited to some flag
/// sets; that missing tools are reported; and that a second run repeats nothing.
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

/// Check that more layouts are linked from existing objects, with the first one unchanged and its facts kept, and that
/// rounds with fewer layouts are not mixed with theirs.
#[test]
fn more_layouts_are_only_linked() {
    let dir = tempfile::tempdir().unwrap();
    let (manifest, out) = (manifest(dir.path(), 2, ""), dir.path().join("out"));
    assert_eq!(ran(&mut flags(&manifest, &out)).status, 0);
    let arm = out.join("builds/fib/gcc-fp");
    let objects = || fs::metadata(arm.join("objects/fib.o")).unwrap().ctime_nsec();
    let n_facts = || fs::read_to_string(out.join("facts.jsonl")).unwrap().lines().count();
    let before = (objects(), fs::read(arm.join("bin-00")).unwrap(), n_facts());
    let more = fs::read_to_string(&manifest).unwrap().replace("layouts = 2", "layouts = 5");
    fs::write(&manifest, more).unwrap();
    assert_eq!(ran(&mut flags(&manifest, &out)).status, 0);
    assert!(arm.join("bin-04").exists());
    assert_eq!(before, (objects(), fs::read(arm.join("bin-00")).unwrap(), n_facts()));
    let fib = evaluation(&out)["results"][1]["programs"][0].clone();
    assert_eq!((&fib["rounds"], &fib["effect"]["Ok"]["n"]), (&2.into(), &5.into()), "{fib}");
}

/// Check that layouts that are the same file count as one, which is reported: a program of one object whose functions stay
/// in their order has no others.
#[test]
fn equal_layouts_count_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = manifest(dir.path(), 2, "");
    let text = fs::read_to_string(&manifest).unwrap();
    let unshuffled = "under = [\"gcc\"]\nlink = \"{cc} {objects} -o {exe}\"\n";
    let (first, second) = text.split_once("under = [\"gcc\"]\n").unwrap();
    let second = second.replace("link = \"{cc} {layout} {objects} -o {exe}\"\n", "");
    fs::write(&manifest, format!("{first}{unshuffled}{second}")).unwrap();
    let out = dir.path().join("out");
    let run = ran(&mut flags(&manifest, &out));
    assert_eq!(run.status, 0, "{}", run.stderr);
    let words = "program script: layouts under gcc that differ: 1 of 2; equal ones count as one";
    assert!(run.stdout.replace("\n            ", " ").contains(words), "{}", run.stdout);
    let programs = evaluation(&out)["results"][0]["programs"].clone();
    assert_eq!(programs[0]["effect"]["Ok"]["n"], 2, "{programs}");
    assert_eq!(programs[1]["effect"]["Err"], "fewer than two different layouts", "{programs}");
    assert!(run.stderr.contains(words) && programs[1]["rounds"] == 0, "{}", run.stderr);
}

/// Check that results of two machines, systems, or linkers are not mixed; but neither another language nor fewer CPUs for
/// the run make another machine, and nor does a directory without results.
#[test]
fn other_machines_and_linkers_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (manifest, out) = (benchmarks(dir.path(), "", &[("fib", "{exe} 10")]), dir.path().join("out"));
    let environment = out.join("environment.json");
    let lines = || fs::read_to_string(out.join("rounds.jsonl")).unwrap().lines().count();
    let refused = |command: &mut Command, words: &str| {
        let Ran { status, stderr, .. } = ran(command);
        assert_eq!(status, 1, "{stderr}");
        assert!(
            stderr.contains("of another machine, system, linker or assembler (") && stderr.contains(words),
            "{stderr}"
        );
    };
    assert_eq!((ran(&mut flags(&manifest, &out)).status, lines()), (0, 2));
    let run = flags(&manifest, &out);
    let mut on_one = Command::new("taskset");
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cpu = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu) == Ok(true)).unwrap();
    on_one
        .args(["-c", &cpu.to_string()])
        .arg(run.get_program())
        .args(run.get_args())
        .env("LC_ALL", "C.UTF-8")
        .env("LANGUAGE", "fr");
    assert_eq!((ran(&mut on_one).status, lines()), (0, 2));

    let bin = dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    for tool in ["as", "ld", "ld.lld"] {
        let other = bin.join(tool);
        program(&other, &format!("[ \"$1\" = --version ] && echo another {tool} || exec /usr/bin/{tool} \"$@\""));
        refused(flags(&manifest, &out).env("PATH", &path), &format!("another {tool}"));
        fs::remove_file(other).unwrap();
    }
    let mut other: serde_json::Value = serde_json::from_slice(&fs::read(&environment).unwrap()).unwrap();
    other["kernel"] = "1.2.3".into();
    fs::write(&environment, other.to_string()).unwrap();
    refused(&mut flags(&manifest, &out), "Linux 1.2.3");
    for results in ["rounds.jsonl", "facts.jsonl"] {
        fs::remove_file(out.join(results)).unwrap();
    }
    assert_eq!((ran(&mut flags(&manifest, &out)).status, lines()), (0, 2));
    assert!(!fs::read_to_string(&environment).unwrap().contains("1.2.3"));
}

/// Check that what a flag set prepares is made once for each version of its compiler and linked, and that a flag set whose preparation fails is reported
/// and left out.
#[test]
fn libraries_are_prepared_once() {
    let dir = tempfile::tempdir().unwrap();
    let (manifest, out) = (manifest(dir.path(), 1, ""), dir.path().join("out"));
    fs::write(dir.path().join("scale.c"), "int scale;").unwrap();
    let made = dir.path().join("made");
    let prepared = format!(
        "name = \"gcc\"\nprepare = \"cp {{here}}/scale.c .; {{cc}} {{cflags}} -shared -fPIC -o libscale.so scale.c; \
         echo made >>{}\"\nldflags = \"-L{{prepared}} -Wl,-rpath,{{prepared}} -Wl,--no-as-needed -lscale\"\n",
        made.display()
    );
    let failing = "name = \"gcc-fp\"\nprepare = \"echo an error of ours; exit 3\"\n";
    let text = fs::read_to_string(&manifest).unwrap();
    let compiler = dir.path().join("cc");
    let set_version = |version: u32| {
        program(&compiler, &format!("[ \"$1\" = --version ] && echo {version} || exec gcc \"$@\""));
    };
    set_version(1);
    let ours = format!("compiler = \"{}\"", compiler.display());
    let text = text.replacen("name = \"gcc\"\n", &prepared, 1).replacen("name = \"gcc-fp\"\n", failing, 1);
    let text = text.replacen("compiler = \"gcc\"", &ours, 1);
    fs::write(&manifest, text).unwrap();
    for _ in 0..2 {
        let run = ran(&mut flags(&manifest, &out));
        assert_eq!(run.status, 1, "{}", run.stderr);
        let error = "fpprof: flags gcc-fp: preparing: exit status: 3: an error of ours";
        assert!(run.stderr.contains(error), "{}", run.stderr);
    }
    assert_eq!(fs::read_to_string(&made).unwrap(), "made\n");
    let linked = ran(Command::new("ldd").arg(out.join("builds/fib/gcc/bin-01")));
    assert!(linked.stdout.contains("/prepared/gcc/src/libscale.so"), "{}", linked.stdout);
    fs::write(dir.path().join("scale.c"), "int scale, another;").unwrap();
    assert_eq!(ran(&mut flags(&manifest, &out)).status, 1);
    assert_eq!(fs::read_to_string(&made).unwrap(), "made\nmade\n", "of an edited source");
    set_version(2);
    assert_eq!(ran(&mut flags(&manifest, &out)).status, 1);
    assert_eq!(fs::read_to_string(&made).unwrap(), "made\nmade\nmade\n", "by another version of the compiler");
    let report = evaluation(&out);
    let sets: Vec<&str> =
        report["flag_sets"].as_array().unwrap().iter().filter_map(|set| set["name"].as_str()).collect();
    assert_eq!(sets, ["gcc"]);
}

/// Check that a program that does not build is named at the end, and that the others are evaluated.
#[test]
fn programs_that_do_not_build_are_failures() {
    let dir = tempfile::tempdir().unwrap();
    let (manifest, out) = (manifest(dir.path(), 1, ""), dir.path().join("out"));
    let text = fs::read_to_string(&manifest).unwrap();
    let broken = text.replacen("-c {src}/fib.c", "-c {src}/missing.c", 1);
    assert_ne!(broken, text);
    fs::write(&manifest, broken).unwrap();
    let run = ran(&mut flags(&manifest, &out));
    assert_eq!(run.status, 1, "{}", run.stderr);
    assert!(run.stderr.contains("fpprof: program script: script under gcc: "), "{}", run.stderr);
    assert_eq!(fs::read_to_string(out.join("rounds.jsonl")).unwrap().lines().count(), 1);
}

/// Check that a run killed in the middle of its rounds continues, and keeps every finished round; and that no second one
/// runs beside it.
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
    let second = ran(&mut flags(&endless, &out));
    assert!(second.status == 1 && second.stderr.contains("another run uses"), "{}", second.stderr);
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

/// A manifest of programs that differ only in their benchmarks, without recordings; `head` comes first.
fn benchmarks(dir: &Path, head: &str, programs: &[(&str, &str)]) -> PathBuf {
    let path = manifest(dir, 2, "");
    let text = fs::read_to_string(&path).expect("the manifest");
    let (flags, _) = text.split_once("[[program]]").expect("programs");
    let mut text = format!("{head}\n{flags}");
    for (name, bench) in programs {
        text.push_str(&format!(
            "[[program]]\nname = \"{name}\"\nunder = [\"gcc\"]\nbench = \"{bench}\"\n\
             compile = \"{{cc}} {{cflags}} -c {{here}}/fib.c\"\nlink = \"{{cc}} {{layout}} {{objects}} -o {{exe}}\"\n"
        ));
    }
    fs::write(&path, text).expect("writing the manifest");
    path
}

/// Processes whose working directory is this one or below it.
fn processes_in(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    all.filter(|process| fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir))).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what}");
        sleep(Duration::from_millis(10));
    }
}

/// Check that a run that ends in the middle of a benchmark, even by SIGKILL, leaves no process of it running: neither a
/// grandchild nor one in a session of its own.
#[test]
fn ended_runs_leave_no_benchmark_running() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("spin.sh"), "\"$1\" 90 &\nsetsid \"$1\" 91 &\nwait\n").unwrap();
    let manifest = benchmarks(dir.path(), "", &[("spin", "sh {here}/spin.sh {exe}")]);
    let out = dir.path().join("out");
    for signal in ["INT", "TERM", "KILL"] {
        let run = flags(&manifest, &out);
        // A shell's background jobs, such as these tests, may ignore SIGINT.
        let mut child = Command::new("env")
            .arg("--default-signal=INT")
            .arg(run.get_program())
            .args(run.get_args())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let builds = out.join("builds");
        let is_binary =
            |process: &PathBuf| fs::read_link(process.join("exe")).is_ok_and(|exe| exe.starts_with(&builds));
        wait_until("the benchmark runs", || {
            processes_in(&builds).iter().filter(|process| is_binary(process)).count() == 2
        });
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status().unwrap();
        assert!(sent.success());
        assert!(!child.wait().unwrap().success());
        wait_until(&format!("all of it ends after {signal}"), || processes_in(&builds).is_empty());
    }
}

/// Check that a hanging benchmark is ended and reported, that the other program's rounds are still run, and that a
/// later run does what is missing.
#[test]
fn hung_benchmarks_are_ended() {
    let dir = tempfile::tempdir().unwrap();
    let hang = "[ -e \"$(dirname \"$0\")/go\" ] || sleep 1000\nexec \"$1\" 10\n";
    fs::write(dir.path().join("hang.sh"), hang).unwrap();
    let programs = [("hangs", "sh {here}/hang.sh {exe}"), ("fib", "{exe} 10")];
    let (manifest, out) = (benchmarks(dir.path(), "limit_s = 5", &programs), dir.path().join("out"));
    let rounds = |name: &str| {
        let text = fs::read_to_string(out.join("rounds.jsonl")).unwrap();
        text.lines().filter(|line| line.contains(&format!("\"program\":\"{name}\""))).count()
    };
    let hung = ran(&mut flags(&manifest, &out));
    assert_eq!(hung.status, 1, "{}", hung.stderr);
    assert!(hung.stderr.contains("hangs under gcc: the benchmark: killed after 5 s"), "{}", hung.stderr);
    assert_eq!((rounds("hangs"), rounds("fib")), (0, 2));
    assert!(processes_in(&out).is_empty());
    fs::write(dir.path().join("go"), "").unwrap();
    let resumed = ran(&mut flags(&manifest, &out));
    assert_eq!(resumed.status, 0, "{}", resumed.stderr);
    assert_eq!((rounds("hangs"), rounds("fib")), (2, 2));
}

/// Makes results look like those of versions that recorded neither a build's files nor what a round timed.
fn forget_identities(out: &Path) {
    for arm in ["gcc", "gcc.again"] {
        fs::remove_file(out.join("builds/fib").join(arm).join("files.json")).expect("results of a run");
    }
    let edit = |name: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let text = fs::read_to_string(out.join(name)).expect("results of a run");
        let values = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
        let lines = values.map(|value| {
            let mut value = value.expect("results of a run");
            change(&mut value);
            format!("{value}\n")
        });
        fs::write(out.join(name), lines.collect::<String>()).expect("results of a run");
    };
    edit("manifest.json", &|plan| {
        drop(plan.as_object_mut().expect("results of a run").remove("identities").expect("results of a run"))
    });
    edit("rounds.jsonl", &|line| {
        drop(line.as_object_mut().expect("results of a run").remove("made").expect("results of a run"))
    });
    edit("facts.jsonl", &|fact| {
        let mut key: Vec<serde_json::Value> =
            serde_json::from_str(fact["key"].as_str().expect("results of a run")).expect("results of a run");
        key.truncate(4);
        fact["key"] = serde_json::Value::from(key).to_string().into();
    });
}

/// Check that results of a version that recorded no identities are kept, and that editing a source makes new builds,
/// facts and rounds, which are not mixed with older ones.
#[test]
fn edited_sources_start_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (manifest, out) = (benchmarks(dir.path(), "", &[("fib", "{exe} 10")]), dir.path().join("out"));
    let lines = |name: &str| fs::read_to_string(out.join(name)).unwrap().lines().count();
    let again = || {
        let ran = ran(&mut flags(&manifest, &out));
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        (ran.stderr.contains("assuming that they are unchanged"), lines("facts.jsonl"), lines("rounds.jsonl"))
    };
    assert_eq!(again(), (false, 2, 2));
    forget_identities(&out);
    assert_eq!(again(), (true, 2, 2), "all is kept, and it is said");
    assert_eq!(again(), (false, 2, 2));
    let source = dir.path().join("fib.c");
    let text = fs::read_to_string(&source).unwrap();
    fs::write(&source, format!("/* edited */ {text}")).unwrap();
    assert_eq!(again(), (false, 4, 4), "all is made anew");
    let results = evaluation(&out);
    assert_eq!(results["results"][0]["programs"][0]["rounds"], 2, "{results}");
    assert_eq!(again(), (false, 4, 4));
}
