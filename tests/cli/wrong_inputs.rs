//! Wrong inputs: each gives one clear message with a remedy, the right exit status, and no data loss.

use crate::support::{ENDLESS, copy_program, fpprof, ran, run};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Checks that the message is one line from fpprof and has these words.
pub(crate) fn assert_refused(ran: &crate::support::Ran, status: i32, words: &[&str]) {
    assert_eq!(ran.status, status, "{ran:?}");
    for word in words {
        assert!(ran.stderr.contains(word), "`{word}` is not in: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    assert!(ran.stdout.is_empty(), "data on stdout although nothing was done: {}", ran.stdout);
}

/// Check that lines are refused for formats that have none.
#[test]
fn some_formats_have_no_lines() {
    for format in ["firefox", "perf-script", "parquet"] {
        assert_refused(
            &run(["export", "nothing", "--format", format, "--lines"]),
            2,
            &["--lines is for --format folded"],
        );
    }
}

/// Check that an impossible request is refused as a usage error before anything runs.
#[test]
fn values_are_checked_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let touch = format!("touch {}", mark.display());
    for (value, words) in [
        ("dwarf,0", &["dwarf,0", "64"][..]),
        ("dwarf,10G", &["10G"]),
        ("both,lots", &["lots"]),
        ("lbr", &["both"]),
        ("nonsense", &["expected auto[,fp], fp, dwarf[,BYTES], both[,BYTES][,1/N] or cfi[,BYTES][,verify=N][,fp]"]),
    ] {
        assert_refused(&run(["record", "--call-graph", value, "--", "sh", "-c", &touch]), 2, words);
    }
    assert_refused(&run(["record", "-F", "0", "--", "sh", "-c", &touch]), 2, &["--freq", "1 or more"]);
    assert_refused(&run(["record", "--duration", "0", "--", "sh", "-c", &touch]), 2, &["--duration"]);
    assert_refused(&run(["record"]), 2, &["command", "-p", "-a"]);
    assert_refused(&run(["record", "-p", "1", "--", "true"]), 2, &["-p"]);
    for (options, words) in [
        (&["--switch-output", "5"][..], &["`5` is neither a time", "30s", "100M"][..]),
        (&["--switch-output", "1000K"], &["1000K", "1M or more"]),
        (&["--switch-output", "1h", "--stats"], &["--stats"]),
        (&["--switch-output", "1h", "-e", "uprobe:/bin/sh:main"], &["probes", "CAP_SYS_ADMIN"]),
        (&["--switch-output", "1h", "-o", "-"], &["-o"]),
        (&["--switch-max-files", "2"], &["--switch-output"]),
    ] {
        assert_refused(&ran(fpprof().args(["record", "-a"]).args(options)), 2, words);
    }
    assert_refused(&run(["record", "--switch-output", "1h", "--", "sh", "-c", &touch]), 2, &["--switch-output", "CMD"]);
    for (options, words) in [
        (&["--switch-max-files", "2"][..], &["--switch-output", "-a and -G"][..]),
        (&["--include-self"], &["--include-self", "-a and -G"]),
        (&["--max-size", "0"], &["--max-size", "above 0"]),
    ] {
        assert_refused(&ran(fpprof().arg("record").args(options).args(["--", "sh", "-c", &touch])), 2, words);
    }
    for option in ["--exe", "--sysroot"] {
        let by_hand =
            ["unwind", "--elf", "/bin/sh", "--regs", "rip=0", "--stack", "0:/dev/null", option, "/nonexistent"];
        assert_refused(&run(by_hand), 2, &[option, "cannot be used with", "--elf"]);
    }
    assert_refused(&run(["import", "perf.data", "-o", "-"]), 2, &["stdout", "-o"]);
    for (options, words) in [
        (&["--aggregate"][..], &["--aggregate", "no two copied stacks are equal", "--call-graph cfi"][..]),
        (&["--aggregate", "--call-graph", "dwarf,4096"], &["no two copied stacks are equal", "--call-graph cfi"]),
        (&["-g", "--aggregate", "0.5s"], &["0.5s", "1s to 1h"]),
        (&["-g", "--aggregate", "true"], &["true", "`--` before a command"]),
    ] {
        assert_refused(&ran(fpprof().arg("record").args(options).args(["--", "sh", "-c", &touch])), 2, words);
    }
    assert_refused(&run(["nonsense"]), 2, &["nonsense"]);
    // A misspelt option must not be taken for the command.
    assert_refused(&run(["record", "--freqency=99", "sh", "-c", &touch]), 2, &["--freqency", "similar", "--freq"]);
    for command in ["record", "top", "verify", "compare"] {
        assert_refused(&run([command, "--no-such-option", "sh", "-c", &touch]), 2, &["--no-such-option"]);
    }
    assert!(!mark.exists(), "the command ran although the request was refused");
}

/// Check that a rate above the kernel's limit, or a ring too small for two samples, is refused with the required
/// number.
#[test]
fn limits_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.fpprof");
    let with = |args: &[&str]| ran(fpprof().arg("record").arg("-o").arg(&file).args(args).args(["--", "true"]));
    assert_refused(&with(&["-F", "99999999"]), 1, &["perf_event_max_sample_rate"]);
    assert_refused(&with(&["-m", "4K", "--call-graph", "dwarf,65536"]), 1, &["ring", "bytes"]);
    let copies = ["--collector", "perf-event", "--call-graph", "auto", "--aggregate"];
    assert_refused(&with(&copies), 1, &["copied stacks", "--call-graph cfi or fp", "without --aggregate"]);
    assert!(!file.exists(), "a refused recording left a file behind");
}

/// Check that a comparison fails if a run has no metric although one was asked for, and says which run and why.
#[test]
fn missing_metrics_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("n");
    let counter = format!("echo x >>{0}; [ $(wc -l <{0}) = 2 ] || echo 5 IOPS", file.display());
    let mut compare = fpprof();
    compare.args(["compare", "--modes", "none", "--repeat", "3", "--metric", "([0-9]+) IOPS", "--metric-name", "IOPS"]);
    let ran = ran(compare.arg("-o").arg(dir.path().join("out")).args(["--", "sh", "-c", &counter]));
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    let words = "none, round 2: no IOPS: `([0-9]+) IOPS` does not match the command's output";
    assert!(ran.stderr.contains(words) && ran.stdout.contains(words), "{} {}", ran.stdout, ran.stderr);
}

/// Check that a command that cannot be started is named, with the shell's exit statuses.
#[test]
fn commands_that_do_not_start_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.fpprof");
    let start = |command: &str| ran(fpprof().arg("record").arg("-o").arg(&file).args(["--", command]));
    assert_refused(&start("/nonexistent/program"), 127, &["/nonexistent/program"]);
    assert_refused(&start("no-such-program-anywhere"), 127, &["no-such-program-anywhere"]);
    let plain = dir.path().join("plain");
    fs::write(&plain, "not a program").unwrap();
    assert_refused(&start(plain.to_str().unwrap()), 126, &["plain"]);
    // Executable by its mode, but invalid: only execve itself finds out.
    let garbage = dir.path().join("garbage");
    fs::write(&garbage, [0x7f, b'X', 1, 2, 3]).unwrap();
    fs::set_permissions(&garbage, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_refused(&start(garbage.to_str().unwrap()), 126, &["garbage"]);
    let script = dir.path().join("script");
    fs::write(&script, "#!/nonexistent/interpreter\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_refused(&start(script.to_str().unwrap()), 127, &["script", "its interpreter is not there"]);
    assert!(!file.exists(), "a recording of nothing was left behind");
    fs::write(&file, "older").unwrap();
    assert_refused(&start(garbage.to_str().unwrap()), 126, &["garbage"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "older", "the older file is still there");
}

/// Check that a gate that is misspelt, out of range or applies to nothing is a usage error, in every command with
/// gates, and that nothing is read or run.
#[test]
fn gates_are_checked_before_anything_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let touch = format!("touch {}", mark.display());
    for gate in ["complate=95", "complete=101", "complete=nan", "agreement", "nonsense:agreement=9", "95"] {
        for command in ["report", "diff"] {
            assert_refused(&run([command, "/nonexistent/file", "--fail-below", gate]), 2, &["--fail-below"]);
        }
    }
    for most in ["nan", "-1", "101", "few"] {
        assert_refused(&run(["report", "/nonexistent/file", &format!("--max-lost={most}")]), 2, &["--max-lost"]);
        let record = run(["record", &format!("--max-lost={most}"), "--", "sh", "-c", &touch]);
        assert_refused(&record, 2, &["--max-lost"]);
    }
    assert!(!mark.exists(), "the command ran although the gate was refused");
    let of_report = run(["diff", "/nonexistent/file", "--fail-below", "complete=95"]);
    assert_refused(&of_report, 2, &["fpprof report", "agreement=PERCENT"]);
    let two_files = run(["diff", "/nonexistent/a", "/nonexistent/b", "--strategies", "fp,dwarf"]);
    assert_refused(&two_files, 2, &["one strategy"]);
    assert_refused(&run(["diff", "/nonexistent/a", "--strategies", "fp"]), 2, &["two strategies"]);
}

/// Check that attaching to a missing process is refused.
#[test]
fn a_process_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.fpprof");
    let attach = ran(fpprof().args(["record", "-p", "4194000", "-o"]).arg(&file));
    assert_refused(&attach, 1, &["4194000"]);
    // By its number, as `top -H` shows it.
    let of_thread = std::thread::scope(|scope| {
        let record = || {
            let tid = rustix::thread::gettid().to_string();
            (ran(fpprof().args(["record", "-p", &tid, "--duration", "1", "-o"]).arg(&file)), tid)
        };
        scope.spawn(record).join().unwrap()
    });
    assert_refused(&of_thread.0, 1, &[&format!("{} is a thread", of_thread.1), "-t"]);
    assert!(!file.exists());
}

/// Check that a file of another format, an empty, a truncated and a missing file have different messages, in every
/// command that reads one.
#[test]
fn foreign_files_are_named_for_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes, words) in [
        ("empty", &b""[..], &["empty"][..]),
        ("perf.data", b"PERFILE2\x68\0\0\0\0\0\0\0", &["perf"]),
        ("elf", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0", &["ELF"]),
        ("text", b"hello, world, this is some text\n", &["not an fpprof recording"]),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        for command in ["report", "flamegraph", "archive"] {
            assert_refused(&run([command, path.to_str().unwrap()]), 1, words);
        }
        assert_refused(&run(["export", path.to_str().unwrap(), "--format", "folded"]), 1, words);
    }
    for command in ["report", "export", "flamegraph"] {
        assert_refused(&run([command, "/nonexistent/file"]), 1, &["/nonexistent/file", "fpprof record"]);
        assert_refused(&run([command, "/dev/null"]), 1, &["not a regular file"]);
    }
    let file = dir.path().join("text");
    assert_refused(&run(["report", "x", "--symfs", file.to_str().unwrap()]), 1, &["not a directory"]);
    assert_refused(&run(["report", dir.path().to_str().unwrap()]), 1, &[dir.path().to_str().unwrap()]);
}

/// Check that a reader of stdout that has seen enough is no error, whatever is written.
#[test]
fn readers_may_leave() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.fpprof");
    let options = ["record", "-F", "499", "--call-graph", "both", "--duration", "1", "-o"];
    let recorded = ran(fpprof().args(options).arg(&file).arg("--").args(ENDLESS));
    assert!(file.exists(), "{recorded:?}");
    let name = file.to_str().unwrap();
    for args in [
        &["flamegraph", name, "-o", "-"][..],
        &["diff", name, "--svg", "-"],
        &["export", name, "-o", "-"],
        &["report", name, "--html", "-"],
    ] {
        let mut writing = fpprof().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(writing.stdout.take());
        let done = writing.wait_with_output().unwrap();
        let messages = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success() && !messages.contains("fpprof:"), "{args:?}: {messages}");
    }
}

/// Check that help that cannot be written is an error, as all other output.
#[test]
fn full_devices_are_reported() {
    for args in [&["--help"][..], &["--version"], &["doctor"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = fpprof().args(args).stdout(full).output().unwrap();
        let messages = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && messages.contains("No space left"), "{args:?}: {messages}");
    }
}

/// Check that commands are waited for, and files parsed in another process, if whoever started us ignores SIGCHLD.
#[test]
fn children_are_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.fpprof");
    let ignoring = |args: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' CHLD; exec \"$@\"", "sh"]).arg(fpprof().get_program()).args(args);
        ran(&mut shell)
    };
    let name = file.to_str().unwrap();
    let burn = "$end = time + 1; while (time <= $end) {} exit 7";
    let recorded = ignoring(&["record", "-F", "499", "-o", name, "--", "perl", "-e", burn]);
    assert_eq!(recorded.status, 7, "{}", recorded.stderr);
    let reported = ignoring(&["report", name]);
    assert_eq!((reported.status, reported.stderr.as_str()), (0, ""));
}

/// Check that a command that waits for a pipe that nobody writes to ends by a signal, and leaves no file.
#[test]
fn waiting_for_a_pipe_can_be_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for args in [&["report", "pipe"][..], &["import", "pipe", "-o", "out"]] {
        let mut limited = Command::new("timeout");
        limited.args(["--signal=INT", "--kill-after=60", "2"]).arg(fpprof().get_program());
        let interrupted = ran(limited.args(args).current_dir(dir.path()));
        assert_eq!(interrupted.status, 124, "{args:?}: it was not killed: {}", interrupted.stderr);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{args:?}");
    }
}

/// Check that no output replaces a recording, and that `diff` says what is missing of a damaged one.
#[test]
fn recordings_are_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.fpprof");
    let options = ["record", "-F", "499", "--call-graph", "both", "--duration", "1", "-o"];
    let recorded = ran(fpprof().args(options).arg(&file).arg("--").args(ENDLESS));
    let before = fs::read(&file).unwrap_or_else(|_| panic!("{recorded:?}"));
    let name = file.to_str().unwrap();
    for args in [
        &["export", name, "-o", name][..],
        &["flamegraph", name, "-o", name],
        &["report", name, "--html", name],
        &["archive", name, "-o", name],
        &["diff", name, "--svg", name],
    ] {
        let refused = ran(fpprof().args(args));
        assert_eq!(refused.status, 1, "{args:?}: {refused:?}");
        assert!(refused.stderr.contains("would be overwritten; choose another output file"), "{args:?}: {refused:?}");
        assert!(fs::read(&file).unwrap() == before, "{args:?}");
    }
    fs::write(&file, &before[..before.len() * 2 / 3]).unwrap();
    let diff = run(["diff", name, "--json"]);
    assert!(diff.stdout.contains("truncated or corrupt block"), "{diff:?}");
}

/// Check that what is no perf.data file, no core or no linked ELF file is named for what it is, and that the message
/// says where a truncated file ends.
#[test]
fn what_cannot_be_unwound_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let write = |name: &str, bytes: &[u8]| fs::write(at(name), bytes).unwrap();
    write("empty", b"");
    write("text", b"hello, world, this is some text\n");
    fs::write(at("main.c"), "int main(void) { return 0; }").unwrap();
    crate::support::compile("gcc", &["-c"], at("object").as_ref(), at("main.c").as_ref());
    crate::support::compile("gcc", &[], at("program").as_ref(), at("main.c").as_ref());
    let program = fs::read(at("program")).unwrap();
    // As a core (ELF type 4) it is truncated in its program headers.
    write("core", &[&program[..16], &[4], &program[17..100]].concat());
    write("cut", &program[..program.len() / 2]);
    write("begun", b"PERFILE2\x68\0\0\0\0\0\0\0");
    let refused = |args: &[&str], words: &str| assert_refused(&ran(fpprof().args(args)), 1, &[words]);
    for (file, words) in [
        ("nothing", "No such file"),
        ("", "Is a directory"),
        ("empty", "not a perf.data file: the file is empty"),
        ("text", "not a perf.data file: it looks like text"),
        ("program", "not a perf.data file: it looks like an ELF file"),
        ("begun", "its header is truncated"),
    ] {
        refused(&["import", &at(file), "-o", &at("imported")], words);
        assert!(!dir.path().join("imported").exists(), "{file}");
    }
    for (file, words) in [
        ("nothing", "not found"),
        ("", "not a regular file"),
        ("empty", "not a valid ELF file"),
        ("object", "not a core dump, but an object file"),
        ("program", "not a core dump, but an executable or a library"),
        ("core", "the core dump is truncated"),
    ] {
        refused(&["unwind", "--core", &at(file)], words);
    }
    for (file, pc, words) in [
        ("nothing", "1", "not found"),
        ("", "1", "not a regular file"),
        ("text", "1", "not a valid ELF file"),
        ("program", "nothing+4", "no function `nothing`"),
        (
            "program",
            "0xffffffff",
            "no call frame information covers 0xffffffff: the file's call frame information covers 0x",
        ),
        ("object", "0xffffffff", "this is an unlinked object file, which has no addresses"),
        ("cut", "main", "no function `main`"),
        ("cut", "0x1000", "the file has no section headers: it is truncated"),
    ] {
        refused(&["cfi", "--elf", &at(file), "--pc", pc], words);
    }
    assert_refused(&run(["cfi", "--elf", &at("program"), "--pc", "12x"]), 2, &["`12x` is not an address"]);
    for (registers, words) in [
        ("rip=zz,rsp=8", "`rip=zz`: expected NAME=VALUE"),
        ("x30=8,rsp=8", "x86-64 has no register x30; it has rax, rdx"),
        ("rsp=8", "the instruction pointer and the stack pointer"),
    ] {
        let stack = format!("0:{}", at("empty"));
        let refused = run(["unwind", "--elf", &at("program"), "--regs", registers, "--stack", &stack]);
        assert_refused(&refused, 2, &[words]);
    }
}

/// Check that a request for BPF without the right to load programs is answered with the missing capabilities, and
/// writes no empty profile.
#[test]
fn without_privilege_the_missing_capability_is_named() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(dir.path(), open).unwrap();
    // The program itself must be readable by the ordinary user, wherever it was built.
    let program = dir.path().join("fpprof");
    copy_program(Path::new(env!("CARGO_BIN_EXE_fpprof")), &program);
    let file = dir.path().join("r.fpprof");
    let record = |collector| {
        ran(Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"])
            .arg(&program)
            .args(["record", "--collector", collector, "-o"])
            .arg(&file)
            .args(["--", "true"]))
    };
    assert_refused(&record("ebpf"), 1, &["CAP_BPF", "CAP_PERFMON"]);
    assert!(!file.exists(), "an empty profile was left behind");
    // What cannot be read is not said to be something else.
    for name in ["r.fpprof", "r.fpprof.old"] {
        fs::write(dir.path().join(name), "another's").unwrap();
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    assert_refused(&record("perf-event"), 1, &["cannot read", "r.fpprof.old", "Permission denied"]);
}

/// Check that names with terminal control characters are escaped in every message: fpprof's own, the operating system's
/// errors, and those of the command line parser.
#[test]
fn names_in_errors_are_escaped() {
    let name = "\u{1b}[31m\u{7}\nfpprof: all is well";
    let event = format!("uprobe:/{name}:f");
    let cases: [&[&str]; 4] = [
        &["report", name],
        &["import", name],
        &["cfi", "--elf", name, "--pc", "1"],
        &["record", "-e", &event, "-o", "/dev/null", "--", "true"],
    ];
    for args in cases {
        let refused = ran(fpprof().args(args));
        assert_refused(&refused, 1, &["\\u{1b}[31m\\u{7}"]);
        assert!(!refused.stderr.contains(['\u{1b}', '\u{7}']), "{}", refused.stderr);
    }
    // The parser's own messages: an option or value that it repeats must not begin a line.
    let cases: [&[&str]; 3] = [
        &["report", "--strategies", "fp\nfpprof: all is well"],
        &["report", "--fp\nfpprof: all is well"],
        &["record", "-F", "1\nfpprof: all is well", "true"],
    ];
    for args in cases {
        let refused = ran(fpprof().args(args));
        assert_refused(&refused, 2, &["\\nfpprof: all is well"]);
        assert!(!refused.stderr.lines().any(|line| line.starts_with("fpprof: all is well")), "{}", refused.stderr);
    }
    // The same on a terminal.
    let command = format!("{} report '--\u{1b}]0;title\u{7}'", env!("CARGO_BIN_EXE_fpprof"));
    let usage = ran(Command::new("script").args(["-qec", &command, "/dev/null"]));
    assert!(usage.stdout.contains("unexpected argument") && !usage.stdout.contains("\u{1b}]0;"), "{usage:?}");
}

/// Check that binary output is not written to a terminal.
#[test]
fn terminals_get_no_binary_output() {
    for args in ["export --format pprof", "export --format otlp", "archive -o -"] {
        let command = format!("{} {args} nothing.fpprof", env!("CARGO_BIN_EXE_fpprof"));
        let refused = ran(Command::new("script").args(["-qec", &command, "/dev/null"]));
        assert!(refused.status == 2 && refused.stdout.contains("the output is binary"), "{args}: {refused:?}");
    }
}

/// Check that a store that cannot be recorded into is named before anything runs.
#[test]
fn live_recordings_need_a_directory() {
    let cases: [(&[&str], &str); 5] = [
        (&["-o", "-"], "--live writes a directory"),
        (&["--aggregate"], "--aggregate"),
        (&["--switch-output", "1h"], "--switch-output"),
        (&["--max-size", "1M"], "--max-size"),
        (&["0.5s"], "not a time from 1s to 1h"),
    ];
    for (options, words) in cases {
        assert_refused(&ran(fpprof().args(["record", "--live"]).args(options).args(["--", "true"])), 2, &[words]);
    }
}

/// Check that `query` says where its program comes from if there is none, and else hands over all arguments and returns its
/// exit status.
#[test]
fn query_runs_its_program() {
    let dir = tempfile::tempdir().unwrap();
    let [copy, query] = ["fpprof", "fpprof-query"].map(|name| dir.path().join(name));
    copy_program(Path::new(env!("CARGO_BIN_EXE_fpprof")), &copy);
    let ask = || ran(Command::new(&copy).env("PATH", dir.path()).args(["query", "--help", "-s", "x", "SELECT 1"]));
    assert_refused(&ask(), 1, &["install the package fpprof-query", "`./dev query`"]);
    let script = dir.path().join("script");
    fs::write(&script, "#!/bin/sh\necho \"$@\"\nexit 3\n").unwrap();
    copy_program(&script, &query);
    fs::set_permissions(&query, fs::Permissions::from_mode(0o700)).unwrap();
    let asked = ask();
    assert_eq!((asked.status, asked.stdout.as_str()), (3, "--help -s x SELECT 1\n"), "{}", asked.stderr);
}
