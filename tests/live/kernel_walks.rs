//! Walks by call frame information in the kernel. Loads the real BPF program.

use crate::runtimes;
use crate::support::{assert_balance, compile, fpprof, number, ran, record, report, source, until_enough};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The source of a program whose stacks are known.
fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/programs").join(name)
}

/// The walks of a report.
fn walks(report: &Value) -> &Value {
    assert_balance(report);
    report.get("kernel_walks").unwrap_or_else(|| panic!("walks in the kernel: {report}"))
}

/// The numbers of all and of complete stacks.
fn stacks(report: &Value) -> (u64, u64) {
    let of_cfi = report.pointer("/strategies/cfi").expect("the strategy of such recordings");
    (number(of_cfi, "samples"), number(of_cfi, "complete"))
}

/// Stands for the seconds to run in the words of a command of [`check_all`].
const SECONDS: &str = "SECONDS";

/// Records a command and copies the stack of every walk, until `enough` walks were checked; checks that none differs
/// from its copied stack, and that `percent` of the stacks are complete.
fn check_all(dir: &Path, command: &[&str], enough: u64, percent: u64) -> Value {
    let file = dir.join("walks.fpprof");
    let report = until_enough("walks", |seconds| {
        let seconds = seconds.to_string();
        let command: Vec<String> = command.iter().map(|word| word.replace(SECONDS, &seconds)).collect();
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        record(&file, &["-F", "1999", "--call-graph", "cfi,1M,verify=1"], &command);
        let report = report(&file, &[]);
        (number(walks(&report), "verified") >= enough).then_some(report)
    });
    let found = walks(&report);
    assert_eq!(number(found, "different"), 0, "{command:?}: {found}");
    let (samples, complete) = stacks(&report);
    assert!(complete * 100 >= samples * percent, "{command:?}: {complete} of {samples} complete: {report}");
    report
}

/// Builds a program without frame pointers.
fn built(dir: &Path, source: &str, flags: &[&str]) -> String {
    let compiler =
        if Path::new(source).extension().is_some_and(|extension| extension == "cpp") { "g++" } else { "gcc" };
    let output = dir.join(source.replace('.', "_"));
    compile(compiler, &[&["-O2", "-fomit-frame-pointer", "-pthread"], flags].concat(), &output, &program(source));
    output.into_os_string().into_string().expect("a path in UTF-8")
}

/// Check that the kernel's walks agree with copied stacks for many kinds of programs: exceptions, stacks on the heap,
/// tail calls, thousands of threads, children of vfork, the vDSO, goroutines.
#[test]
fn walks_are_those_of_copied_stacks() {
    let dir = tempfile::tempdir().unwrap();
    for (source, flags, percent) in [
        ("exception.cpp", &[][..], 90),
        ("longjmp.c", &[], 99),
        ("coroutine.c", &[], 99),
        ("tail_call.c", &[], 99),
        ("threads.c", &[], 90),
        ("vfork.c", &[], 90),
        ("vdso.c", &[], 99),
        ("deep.c", &[], 99),
    ] {
        check_all(dir.path(), &[&built(dir.path(), source, flags), SECONDS], 200, percent);
    }
    let goroutine = dir.path().join("goroutine");
    compile("go", &["build"], &goroutine, &source("goroutine.go"));
    check_all(dir.path(), &[&goroutine.to_string_lossy(), SECONDS], 200, 90);
}

/// Check that the kernel walks from signal handlers to the interrupted code: on the same stack, on an alternate one, and
/// from one handler to another; also if the kernel has forgotten the alternate stack, so that no copy would contain the
/// interrupted one.
#[test]
fn signal_frames_are_walked() {
    let dir = tempfile::tempdir().unwrap();
    let altstack = built(dir.path(), "altstack.c", &[]);
    let signals = dir.path().join("signals");
    compile("gcc", &["-O2", "-fomit-frame-pointer", "-pthread"], &signals, &source("signals.c"));
    for program in [&*altstack, &signals.to_string_lossy()] {
        let found = check_all(dir.path(), &[program, SECONDS], 200, 90);
        // Code of the dynamic loader may miss for want of registers, too.
        let missed = walks(&found)["misses"].get("other_registers").and_then(Value::as_u64).unwrap_or(0);
        assert!(missed * 10 < number(walks(&found), "complete"), "{program}: {found}");
    }
    let file = dir.path().join("altstack.fpprof");
    for kind in ["same-stack", "disarmed"] {
        until_enough(kind, |seconds| {
            record(&file, &["-F", "999", "--call-graph", "cfi,verify=0"], &[&altstack, &seconds.to_string(), kind]);
            let found = report(&file, &[]);
            let complete = number(walks(&found), "complete");
            (complete >= 200 && complete * 10 >= number(&found, "recorded") * 9).then_some(())
        });
    }
}

/// Commands that run JIT-compiled code with frame pointers.
fn jit_programs(dir: &Path, seconds: &str) -> [Vec<String>; 2] {
    let program = dir.join("busy.js");
    std::fs::write(&program, runtimes::PROGRAM).expect("a temporary file is written");
    let classes = runtimes::compile_java(dir);
    let milliseconds = format!("{seconds}000");
    [
        vec!["node".into(), program.to_string_lossy().into(), milliseconds.clone()],
        ["java", "-XX:+PreserveFramePointer", "-cp", &classes, "Busy", &milliseconds].map(str::to_owned).to_vec(),
    ]
}

/// Check that the kernel walks through JIT-compiled code by its frame pointers, as the unwinder does in copied stacks,
/// and that such frames are marked.
#[test]
fn jit_compiled_code_is_walked() {
    let dir = tempfile::tempdir().unwrap();
    for command in jit_programs(dir.path(), SECONDS) {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let found = check_all(dir.path(), &command, 400, 0);
        let (samples, complete) = stacks(&found);
        let (walked, marked) = (number(walks(&found), "complete"), number(&found["strategies"]["cfi"], "fp_in_jit"));
        assert!(complete * 10 >= samples * 9 && walked * 2 >= samples && marked * 2 >= samples, "{command:?}: {found}");
    }
}

/// Check that the kernel walks to the entry point of programs with musl, whose start code has no rows: static and dynamic
/// ones, and one in a signal handler on an alternate stack.
#[test]
fn musl_is_walked_to_its_entry_point() {
    let dir = tempfile::tempdir().unwrap();
    for (source, flags) in [("deep.c", &["-static"][..]), ("deep.c", &[]), ("altstack.c", &["-static"])] {
        let program = dir.path().join("program").into_os_string().into_string().expect("a path in UTF-8");
        let flags = [&["-O2", "-fomit-frame-pointer", "-pthread"], flags].concat();
        compile("musl-gcc", &flags, Path::new(&program), &self::program(source));
        let found = check_all(dir.path(), &[&program, SECONDS], 200, 90);
        let walked = number(walks(&found), "complete");
        assert!(walked * 2 >= number(&found, "recorded"), "{source}: {found}");
    }
}

/// Check that a library mapped where another one was a moment before is walked by its own rules, although both look
/// alike.
#[test]
fn rules_are_those_of_the_file_that_is_mapped() {
    let dir = tempfile::tempdir().unwrap();
    // The same instructions at the same addresses, except for the frame size.
    let source = dir.path().join("library.c");
    let text = "#include \"program.h\"\nvoid WORK(void) { volatile char frame[BYTES]; frame[0] = 1; work(250); frame[1] = 1; }";
    std::fs::write(&source, text).expect("a temporary file is written");
    for (name, bytes) in [("a", 1000), ("b", 3000)] {
        let defined = [format!("-DWORK={name}_work"), format!("-DBYTES={bytes}")];
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/workloads/programs");
        let flags = ["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", include, &defined[0], &defined[1]];
        compile("gcc", &flags, &dir.path().join(format!("lib{name}.so")), &source);
    }
    check_all(dir.path(), &[&built(dir.path(), "dlopen.c", &["-ldl"]), SECONDS], 200, 99);
}

/// Check that a program is walked by its own rules if it took the place of another one with functions at the same
/// addresses: by execve, or in a new process with the same number.
#[test]
fn rules_are_those_of_the_program_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/workloads/programs");
    let programs = ["-DBYTES=1000", "-DBYTES=3000"].map(|bytes| {
        let program = dir.path().join(bytes);
        let flags = ["-O2", "-fomit-frame-pointer", "-no-pie", include, bytes];
        compile("gcc", &flags, &program, &source("replaced.c"));
        program.into_os_string().into_string().expect("a path in UTF-8")
    });
    for how in ["exec", "pid"] {
        check_all(dir.path(), &[&programs[0], SECONDS, how, &programs[1]], 200, 90);
    }
}

/// Check that nbdkit's and fio's stacks are complete from the start, most of them walked in the kernel, and that the
/// known functions of a program are in its walks.
#[test]
fn most_stacks_are_walked_in_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let workload = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/nbdkit-fio.sh");
    // The load of the machine determines how fast rules are loaded, and the share of the programs' start.
    until_enough("walks that are complete", |seconds| {
        let found = check_all(dir.path(), &[workload, SECONDS], 200 * u64::from(seconds), 90);
        let (complete, misses) = (number(walks(&found), "complete"), &walks(&found)["misses"]);
        let missed: u64 = misses.as_object().into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum();
        let (samples, whole) = stacks(&found);
        (complete > missed && whole * 100 >= samples * 99).then_some(())
    });

    let file = dir.path().join("deep.fpprof");
    record(&file, &["-F", "1999", "--call-graph", "cfi,verify=0"], &[&built(dir.path(), "deep.c", &["-g"]), "2", "20"]);
    let found = report(&file, &[]);
    assert!(walks(&found).get("verified").is_some_and(|verified| verified == 0), "{found}");
    let folded = ran(fpprof().arg("export").arg(&file));
    let chain = ["main", &["recurse"; 20].join(";"), "burn"].join(";");
    let in_chain =
        folded.stdout.lines().filter(|line| line.contains(&chain)).filter_map(|line| line.rsplit(' ').next());
    let samples: u64 = in_chain.filter_map(|n| n.parse::<u64>().ok()).sum();
    assert!(samples * 10 >= number(&found, "recorded") * 9, "{samples} samples in the known chain: {}", folded.stdout);
}

/// Check that frame pointers are recorded with walks in the same sample: both find the callers with frames, and only
/// walks find those in libc, which has none.
#[test]
fn frame_pointers_are_taken_beside_walks() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("both.fpprof");
    let program = dir.path().join("leaf").into_os_string().into_string().expect("a path in UTF-8");
    compile("gcc", &["-O0", "-fno-omit-frame-pointer"], Path::new(&program), &program_of_one_loop(dir.path()));
    let report = until_enough("walks", |_| {
        record(&file, &["-F", "1999", "--call-graph", "auto,fp,verify=3"], &[&program]);
        let report = report(&file, &[]);
        (number(walks(&report), "complete") >= 200).then_some(report)
    });
    let agreement = report.pointer("/agreements/0").expect("two strategies of the same samples");
    assert_eq!((&agreement["reference"], &agreement["other"]), (&"cfi".into(), &"fp".into()), "{agreement}");
    let relations = &agreement["relations"];
    let right: u64 = ["same", "prefix"].iter().filter_map(|relation| relations.get(*relation)?.as_u64()).sum();
    let samples = number(agreement, "samples");
    assert!(right * 10 >= samples * 9, "{right} of {samples} right as far as they go: {report}");
    let folded = ran(fpprof().args(["export", "--strategy", "fp"]).arg(&file));
    assert!(folded.stdout.contains(";main;turn "), "{}", folded.stdout);
}

/// Check that the walks of an undumpable program are complete samples: one chosen for verification has its frames and
/// its frame pointers, and is not counted as withheld.
#[test]
fn walks_of_closed_programs_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (file, program) = (dir.path().join("closed.fpprof"), dir.path().join("closed"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/closed.c");
    compile("gcc", &["-O1"], &program, &source);
    let (program, made) = (program.to_string_lossy(), dir.path().join("made").to_string_lossy().into_owned());
    let found = until_enough("walks", |seconds| {
        // It runs until it is killed.
        let command = ["sh", "-c", "timeout $0 $1 $2; true", &seconds.to_string(), &program, &made];
        record(&file, &["-F", "999", "--call-graph", "cfi,verify=1,fp"], &command);
        let found = report(&file, &[]);
        (number(walks(&found), "complete") >= 200).then_some(found)
    });
    let samples = |strategy: &str| number(&found["strategies"][strategy], "samples");
    assert_eq!(samples("fp"), samples("cfi"), "{found}");
    let misses: u64 = walks(&found)["misses"].as_object().into_iter().flatten().filter_map(|(_, n)| n.as_u64()).sum();
    assert!(number(walks(&found), "complete") + misses >= samples("cfi"), "{found}");
    assert!(number(&found, "withheld") <= misses, "{found}");
}

/// The source of a program that always runs one loop, called by `main`: its frames exist except for an instruction or
/// two.
fn program_of_one_loop(dir: &Path) -> PathBuf {
    let source = dir.join("loop.c");
    let text = "int turn(int n) { for (volatile int i = 0; i < n; i++) {} return n; }\nint main(void) { return turn(600000000) == 0; }";
    std::fs::write(&source, text).expect("a temporary file is written");
    source
}

/// Check that impossible requests are refused with an alternative: walks without eBPF, other strategies on such a
/// recording, the strategy on another recording, and invalid options.
#[test]
fn impossible_requests_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (walked, copied) = (dir.path().join("walked.fpprof"), dir.path().join("copied.fpprof"));
    let busy = ["perl", "-e", "for (1..9000000) {}"];
    record(&walked, &["--call-graph", "cfi"], &busy);
    record(&copied, &["--call-graph", "dwarf"], &busy);
    let refused = |args: &[&str], words: &str| {
        let ran = ran(fpprof().args(args));
        assert!(ran.status != 0 && ran.stderr.contains(words), "{args:?}: {}", ran.stderr);
    };
    let [walked, copied] = [&walked, &copied].map(|path| path.to_str().expect("a path in UTF-8"));
    refused(&["report", walked, "--strategies", "dwarf"], "--call-graph both");
    refused(&["report", walked, "--strategies", "fp"], "--call-graph cfi,fp");
    refused(&["report", copied, "--strategies", "cfi"], "--call-graph cfi");
    let by_perf = ["record", "--collector", "perf-event", "--call-graph", "cfi", "-o", walked, "--", "true"];
    refused(&by_perf, "--call-graph cfi");
    refused(&["record", "--call-graph", "cfi,verify=often", "-o", walked, "--", "true"], "verify=N");
    refused(&["record", "--call-graph", "cfi,8x", "-o", walked, "--", "true"], "8x");
}
