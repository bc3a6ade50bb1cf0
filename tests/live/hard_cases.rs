//! Programs that do not fit into the manifest of `workloads` because of their language, architecture or size: their
//! recordings, and how their stacks end.

use crate::support::stacks::{Stack, commonest, stacks, stacks_in};
use crate::support::{
    Ended, compile, cpu_time, fpprof, number, ran, record, report, source, until_enough, wait_for_samples, wait_until,
};
use fpprof_recording::Recording;
use fpprof_workloads::{build, programs};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Samples with all of these functions on the stack, leaf first, in this order: (all, those with this end).
fn with(stacks: &[Stack], functions: &[&str], class: &str, stop: &str) -> (u64, u64) {
    let has = |stack: &&Stack| {
        let mut names = stack.names.iter();
        functions.iter().all(|function| names.any(|name| name == function))
    };
    let samples = |stacks: Vec<&Stack>| stacks.iter().map(|stack| stack.samples).sum();
    let all: Vec<&Stack> = stacks.iter().filter(has).collect();
    let right = all.iter().copied().filter(|stack| stack.class == class && stack.stop == stop).collect();
    (samples(all), samples(right))
}

fn roots<'a>(report: &'a Value, strategy: &str) -> &'a Value {
    report.pointer(&format!("/strategies/{strategy}/roots")).unwrap_or_else(|| panic!("{report:#}"))
}

/// Check that goroutines end in `goexit` under both strategies, code on the scheduler's stack in its root, and that
/// only a few samples, in the run-time library's own assembly, are broken.
#[test]
fn goroutines_and_the_scheduler_have_their_roots() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("goroutine");
    compile("go", &["build"], &program, &source("goroutine.go"));
    let file = dir.path().join("recording");
    let report = until_enough("goroutines", |seconds| {
        let command = [program.to_str().unwrap(), &seconds.to_string()];
        record(&file, &["-q", "-F", "1999", "--call-graph", "both,32768"], &command);
        let report = report(&file, &[]);
        let has_scheduler = roots(&report, "dwarf")["g0"].as_u64() > Some(0);
        let (in_burn, _) = with(&stacks(&file, "dwarf"), &["main.burn"], "complete", "");
        (has_scheduler && in_burn >= 500).then_some(report)
    });
    let chain = ["main.burn", "main.mid", "main.outer", "runtime.goexit"];
    for strategy in ["dwarf", "fp"] {
        let found = stacks(&file, strategy);
        let (all, complete) = with(&found, &chain[..1], "complete", "");
        let (whole, _) = with(&found, &chain[..3], "complete", "");
        assert!(all >= 500 && complete * 100 >= all * 99, "{strategy}: {complete} of {all}: {}", commonest(&found));
        assert!(whole * 100 >= all * 99, "{strategy}: {whole} of {all} have the chain: {}", commonest(&found));
        assert!(roots(&report, strategy)["goexit"].as_u64() >= Some(complete), "{strategy}: {report:#}");
    }
    let dwarf = &report["strategies"]["dwarf"];
    let broken: u64 = dwarf["broken"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert!(broken * 100 <= number(dwarf, "samples") * 2, "{dwarf:#}");
}

/// Check that the code that a signal handler returns to has its name, in folded stacks and in the page.
#[test]
fn code_after_handlers_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let text = "#include <signal.h>\n#include <time.h>\nstatic volatile long sink;
        static void handler(int n) { for (long i = 0; i < 1000000; i++) sink += i; }
        int main(int n, char **v) { signal(SIGUSR1, handler); time_t end = time(0) + v[1][0] - '0' + 1;
            while (time(0) < end) raise(SIGUSR1); }";
    std::fs::write(path("handler.c"), text).unwrap();
    compile("gcc", &["-O1", "-g", "-static"], &path("handler"), &path("handler.c"));
    let (file, page) = (path("recording"), path("page.html"));
    record(&file, &["-q", "-F", "499", "--call-graph", "both"], &[path("handler").to_str().unwrap(), "0"]);
    let (all, named) = with(&stacks(&file, "dwarf"), &["handler", "__restore_rt", "main"], "complete", "");
    assert!(named > 0 && named == all, "{named} of {all}: {}", commonest(&stacks(&file, "dwarf")));
    let written = ran(fpprof().arg("report").arg(&file).arg("--html").arg(&page));
    assert_eq!(written.status, 0, "{}", written.stderr);
    assert!(std::fs::read_to_string(&page).unwrap().contains("__restore_rt"));
}

/// Check that 32-bit programs have their chains under both strategies, and their roots by their rows; and the chains
/// without registers, too.
#[test]
fn programs_of_32_bits_are_unwound() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("chain");
    let chain = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/programs/chain.c");
    let flags = ["-O2", "-static", "-no-pie", "-fno-omit-frame-pointer", "-DWITH_LEAF_FRAME"];
    compile("i686-linux-gnu-gcc", &flags, &program, &chain);
    let file = dir.path().join("recording");
    let (fp, dwarf) = until_enough("samples", |seconds| {
        let command = [program.to_str().unwrap(), &seconds.to_string()];
        record(&file, &["-q", "-F", "997", "--call-graph", "both,8192"], &command);
        let fp = stacks(&file, "fp");
        (fp.iter().map(|stack| stack.samples).sum::<u64>() >= 200).then(|| (fp, stacks(&file, "dwarf")))
    });
    let assert_chains = |fp: &[Stack]| -> u64 {
        let (all, _) = with(fp, &["burn", "mid", "outer", "main"], "complete", "");
        let samples: u64 = fp.iter().map(|stack| stack.samples).sum();
        assert!(all * 100 >= samples * 90 && all > 20, "{all} of {samples}: {}", commonest(fp));
        samples
    };
    let fp_samples = assert_chains(&fp);
    let alone = until_enough("samples", |seconds| {
        let command = [program.to_str().unwrap(), &seconds.to_string()];
        record(&file, &["-q", "-F", "997", "--call-graph", "fp"], &command);
        let fp = stacks(&file, "fp");
        (fp.iter().map(|stack| stack.samples).sum::<u64>() >= 200).then_some(fp)
    });
    assert_chains(&alone);
    let (burn, complete) = with(&dwarf, &["burn", "mid", "outer", "main"], "complete", "");
    assert!(complete == burn && burn * 100 >= fp_samples * 90, "{complete} of {burn}: {}", commonest(&dwarf));
}

/// Check that in the stack of a 32-bit process that has most addresses mapped, words that only look like addresses are
/// zeroed, and that it is unwound like others.
#[test]
fn words_of_32_bits_stay_only_if_they_lead_to_code_or_the_stack() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("much_mapped");
    let flags = ["-O1", "-static", "-no-pie", "-fno-omit-frame-pointer"];
    compile("i686-linux-gnu-gcc", &flags, &program, &source("much_mapped.c"));
    let file = dir.path().join("recording");
    // The words that the program marks, in all its samples.
    let marks = || {
        let mut recording = Recording::open(std::fs::File::open(&file).unwrap()).unwrap();
        let mut n = 0;
        let is_mark = |word: &[u8]| word[1..] == [0x72, 0x65, 0x74];
        recording.samples(|sample| n += sample.stack.chunks_exact(4).filter(|word| is_mark(word)).count()).unwrap();
        n
    };
    let program = program.to_str().unwrap();
    record(&file, &["-q", "--call-graph", "dwarf", "--keep-raw-stacks"], &[program]);
    assert!(marks() >= 256, "they are there to be kept");
    let all_of = |strategy: &str| {
        let found = stacks(&file, strategy);
        let chain: &[&str] = &["burn", "main"];
        (with(&found, chain, "complete", ""), found.iter().map(|stack| stack.samples).sum::<u64>())
    };
    until_enough("samples", |seconds| {
        record(&file, &["-q", "-F", "997", "--call-graph", "both,8192"], &[program, &seconds.to_string()]);
        (all_of("fp").1 >= 200).then_some(())
    });
    assert_eq!(marks(), 0);
    for strategy in ["fp", "dwarf"] {
        let ((chain, complete), all) = all_of(strategy);
        // The C library has no frame pointers, so only the rows lead to the root.
        let is_whole = strategy == "fp" || complete == chain;
        assert!(is_whole && chain * 100 >= all * 90, "{strategy}: {complete} of {chain} of {all}");
    }
}

/// Check that among 2,000 libraries the right one is found, with little memory.
#[test]
fn two_thousand_modules() {
    let dir = tempfile::tempdir().unwrap();
    let (program, library) = (dir.path().join("many"), dir.path().join("libcall.so"));
    let source = source("many_modules.c");
    compile("gcc", &["-O2", "-DLIBRARY", "-shared", "-fPIC"], &library, &source);
    compile("gcc", &["-O2"], &program, &source);
    let file = dir.path().join("recording");
    let command = [program.to_str().unwrap(), dir.path().to_str().unwrap(), "2000"];
    record(&file, &["-q", "-F", "997", "--call-graph", "both,8192"], &command);
    let found = stacks(&file, "dwarf");
    let (all, complete) = with(&found, &["burn", "call", "outer", "main"], "complete", "");
    assert!(all > 50 && complete == all, "{complete} of {all}: {}", commonest(&found));
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -v 1000000 && exec \"$@\"", "sh"]).arg(env!("CARGO_BIN_EXE_fpprof"));
    let report = ran(limited.arg("report").arg(&file).arg("--json"));
    assert_eq!(report.status, 0, "in a GB of addresses: {}", report.stderr);
}

/// Check that code in the middle of a file that is not ELF truncates a stack with a reason.
#[test]
fn code_inside_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("embedded");
    compile("gcc", &["-O2"], &program, &source("embedded.c"));
    let (file, archive) = (dir.path().join("recording"), dir.path().join("archive.zip"));
    let command = [program.to_str().unwrap(), archive.to_str().unwrap()];
    record(&file, &["-q", "-F", "997", "--call-graph", "both,8192"], &command);
    let found = stacks(&file, "dwarf");
    let inside = |stack: &&Stack| stack.names[0].contains("archive.zip");
    let samples: u64 = found.iter().filter(inside).map(|stack| stack.samples).sum();
    assert!(samples > 50, "{}", commonest(&found));
    for stack in found.iter().filter(inside) {
        assert_eq!((&*stack.class, &*stack.stop, stack.names.len()), ("truncated", "module_unavailable", 1));
    }
}

/// Check that the starts of a thread and of a context are distinguished from other code without a caller, although the
/// C library has no symbols for either.
#[test]
fn roots_are_named() {
    for (name, root) in [("threads", "thread_start"), ("coroutine", "__start_context"), ("leaf", "_start")] {
        let dir = tempfile::tempdir().unwrap();
        let program = programs().iter().find(|program| program.name == name).unwrap();
        let built = build(program, dir.path()).unwrap();
        let file = dir.path().join("recording");
        let report = until_enough(name, |seconds| {
            let command = [built.to_str().unwrap(), &seconds.to_string()];
            record(&file, &["-q", "-F", "499", "--call-graph", "both,16384"], &command);
            Some(report(&file, &[])).filter(|report| number(report, "recorded") >= 100)
        });
        let dwarf = &report["strategies"]["dwarf"];
        let ended = roots(&report, "dwarf")[root].as_u64().unwrap_or(0);
        assert!(ended * 100 >= number(dwarf, "samples") * 85, "{name}: {dwarf:#}");
    }
}

/// Check that the report says what would help stacks that end early, and that it helps: a larger chunk for a stack with
/// a frame of 100,000 bytes, and a larger depth for one of 1,500 frames. If a thread switched to another stack, nothing
/// helps, and the report says so.
#[test]
fn suggested_remedies_help() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    let recorded = |name: &str, call_graph: &str| {
        let program = programs().iter().find(|program| program.name == name).unwrap();
        let built = build(program, dir.path()).unwrap();
        until_enough(name, |seconds| {
            let seconds = seconds.to_string();
            let command = [&[built.to_str().unwrap(), &*seconds], program.arguments].concat();
            record(&file, &["-q", "-F", "499", "--call-graph", call_graph], &command);
            (number(&report(&file, &[]), "recorded") >= 100).then_some(())
        });
    };
    let report_text = || ran(fpprof().arg("report").arg(&file)).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let complete = |options: &[&str]| {
        let report = report(&file, options);
        let dwarf = &report["strategies"]["dwarf"];
        number(dwarf, "complete") * 100 / number(dwarf, "samples").max(1)
    };
    recorded("big_frame", "both,65536");
    assert!(complete(&[]) < 10);
    let words = report_text();
    let larger = words.split_once("use --call-graph ").and_then(|(_, rest)| rest.split_once(". ")).map(|(at, _)| at);
    recorded("big_frame", larger.unwrap_or_else(|| panic!("{words}")));
    assert!(complete(&[]) > 90, "{larger:?}: {}", report_text());
    recorded("too_deep", "dwarf,262144");
    assert!(complete(&[]) < 10 && complete(&["--max-depth", "2000"]) > 90, "{}", report_text());
    recorded("sigaltstack_disarmed", "both,65536");
    let words = "(stack_switch): a sample has the current stack, and the one that a signal interrupted";
    assert!(report_text().contains(words), "{}", report_text());
}

/// Check that a process that maps a copy of a library with other names and without call frame information, but with the
/// same build id, does not affect the stacks of a process that maps the library itself.
#[test]
fn a_copy_of_a_library_lends_nothing_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let [program, library, copy] = ["program", "library.so", "copy.so"].map(|name| dir.path().join(name));
    let code = source("lent_library.c");
    let flags = ["-O1", "-shared", "-fPIC", "-Wl,--build-id=0x123456789a"];
    compile("gcc", &["-O1"], &program, &code);
    compile("gcc", &[&flags[..], &["-DNAME=right"]].concat(), &library, &code);
    compile("gcc", &[&flags[..], &["-DNAME=wrong", "-fno-asynchronous-unwind-tables"]].concat(), &copy, &code);
    let run = |library: &Path, more: &[&str]| Ended(Command::new(&program).arg(library).args(more).spawn().unwrap());
    let (honest, other) = (run(&library, &[]), run(&copy, &["copy"]));
    let pids = [honest.id().to_string(), other.id().to_string()];
    for pid in &pids {
        wait_until("the library's code runs", || cpu_time(pid) > Duration::from_millis(50));
    }
    let file = dir.path().join("recording");
    let (found, wrong) = until_enough("samples of both", |seconds| {
        let seconds = (2 * seconds).to_string();
        let args =
            ["record", "-q", "-F", "499", "--call-graph", "both,16384", "--duration", &seconds, "-p", &pids.join(",")];
        assert_eq!(ran(fpprof().args(args).arg("-o").arg(&file)).status, 0);
        let found = stacks(&file, "dwarf");
        let of = |name: &str| -> u64 {
            found.iter().filter(|stack| stack.names[0] == name).map(|stack| stack.samples).sum()
        };
        let wrong = of("wrong");
        (of("right") > 50 && wrong > 50).then_some((found, wrong))
    });
    let (right, complete) = with(&found, &["right", "entry", "main"], "complete", "");
    assert!(complete == right, "{complete} of {right}: {}", commonest(&found));
    let (_, truncated) = with(&found, &["wrong"], "truncated", "no_cfi");
    assert!(truncated == wrong, "the copy's own process has the copy's names: {}", commonest(&found));
}

/// Checks that nearly all stacks of a process that shares its parent's memory are complete, and that many are in the
/// library.
fn assert_shared(what: &str, file: &Path, pid: &str) {
    let found = stacks_in(file, "dwarf", &["--pid".as_ref(), pid.as_ref()]);
    let samples: u64 = found.iter().map(|stack| stack.samples).sum();
    let (_, complete) = with(&found, &["child"], "complete", "");
    let (_, lent) = with(&found, &["lent", "entry", "child"], "complete", "");
    assert!(
        lent > 50 && complete * 100 >= samples * 90,
        "{what}: {complete}, {lent} of {samples}: {}",
        commonest(&found)
    );
}

/// Check that a process that shared its parent's memory before the recording gets the library that the parent loads
/// later.
#[test]
fn shared_memory_of_running_processes_is_mapped_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let [program, library, file, loads] =
        ["program", "library.so", "recording", "loads"].map(|name| dir.path().join(name));
    let code = source("shared_memory.c");
    compile("gcc", &["-O1"], &program, &code);
    compile("gcc", &["-O1", "-shared", "-fPIC", "-DNAME=lent"], &library, &code);
    for target in ["both", "everything"] {
        let parent = Ended(Command::new(&program).arg(&library).arg(&loads).spawn().unwrap());
        let parent_pid = parent.id().to_string();
        let mut child_pid = String::new();
        wait_until("the process has a child", || {
            child_pid = ran(Command::new("pgrep").args(["-P", &parent_pid])).stdout.trim().to_owned();
            !child_pid.is_empty()
        });
        let mut recorder = fpprof();
        recorder.args(["record", "-q", "-F", "499", "--call-graph", "dwarf,16384", "-o"]).arg(&file);
        match target {
            "both" => recorder.args(["-p", &format!("{parent_pid},{child_pid}")]),
            _ => recorder.args(["-a", "--", "tail", "--pid", &child_pid, "-f", "/dev/null"]),
        };
        let mut recorder = Ended(recorder.spawn().unwrap());
        wait_for_samples(&file);
        std::fs::write(&loads, "").unwrap();
        let mut parent = parent;
        assert!(parent.wait().unwrap().success());
        assert!(recorder.wait().unwrap().success());
        assert_shared(target, &file, &child_pid);
        std::fs::remove_file(&loads).unwrap();
        std::fs::remove_file(&file).unwrap();
    }
}

/// Check that a process that shares its parent's memory gets the library that the parent loads later, with either
/// collector.
#[test]
fn shared_memory_is_mapped_for_all_that_share_it() {
    let dir = tempfile::tempdir().unwrap();
    let [program, library, file] = ["program", "library.so", "recording"].map(|name| dir.path().join(name));
    let code = source("shared_memory.c");
    compile("gcc", &["-O1"], &program, &code);
    compile("gcc", &["-O1", "-shared", "-fPIC", "-DNAME=lent"], &library, &code);
    for collector in ["ebpf", "perf-event"] {
        let options = ["-q", "-F", "499", "--call-graph", "dwarf,16384", "--collector", collector];
        record(&file, &options, &[program.to_str().unwrap(), library.to_str().unwrap()]);
        let found = stacks(&file, "dwarf");
        let (lent, complete) = with(&found, &["lent", "entry", "child"], "complete", "");
        let samples: u64 = found.iter().map(|stack| stack.samples).sum();
        assert!(complete * 100 >= samples * 90, "{collector}: {complete} of {lent}, {samples}: {}", commonest(&found));
    }
}
