//! Cores written by the kernel, of x86-64 and i386 programs with known chains, compared with gdb.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use crate::changed::Changed;
use crate::changed_file;
use crate::support::crash::{CHAINS, Crash, addresses, assert_chain, died, frames};
use crate::support::{compile, fpprof, ran};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

const I386_INTERPRETER: &str =
    "-Wl,--dynamic-linker=/usr/i686-linux-gnu/lib/ld-linux.so.2,-rpath,/usr/i686-linux-gnu/lib";

/// Makes the kernel write cores to the program's working directory.
fn plain_cores() -> Changed {
    changed_file("/proc/sys/kernel/core_pattern", "core")
}

/// Checks every chain of a program whose cores the kernel writes, against gdb frame by frame.
fn check_native(compiler: &str, flags: &[&str], arch: &str) {
    let _plain_cores = plain_cores();
    let crash = Crash::new(compiler, flags, &[]);
    for (argument, functions, root) in CHAINS {
        let context = format!("{compiler} {flags:?} {argument}");
        let core = crash.core(argument);
        let unwound = crash.unwind(&core, &[]);
        assert_eq!(unwound["arch"], arch, "{context}");
        assert_chain(died(&unwound), functions, root, &context);
        // Another thread may be where the C library has no rows, around the system call that creates a thread.
        for thread in unwound["threads"].as_array().unwrap() {
            assert_ne!(thread["status"], "broken", "{context}: {thread:#}");
        }
        let (ours, gdb) = (addresses(died(&unwound)), crash.gdb(&core, "gdb", None));
        // gdb does not show the first function of a context, which nothing called.
        let n = if argument == "context" { gdb.len().min(ours.len() - 1) } else { ours.len() };
        assert_eq!(ours[..n], gdb[..n], "{context}");
        assert!(argument == "context" || gdb.len() == n, "{context}: {gdb:x?}");
    }
}

/// Check that kernel cores of x86-64 programs, position independent or static, give gdb's frames.
#[test]
fn x86_64_cores_of_the_kernel() {
    for flags in [&["-pie", "-fPIE"][..], &["-static"]] {
        check_native("gcc", flags, "x86-64");
    }
}

/// Check the same for i386 programs, which this kernel runs.
#[test]
fn i386_cores_of_the_kernel() {
    for flags in [&["-pie", "-fPIE", I386_INTERPRETER][..], &["-no-pie", "-static"]] {
        check_native("i686-linux-gnu-gcc", flags, "i386");
    }
}

/// Check that registers and stack bytes, extracted from a core by gdb, give the same stack as the core.
#[test]
fn registers_and_bytes_are_enough() {
    let _plain_cores = plain_cores();
    let crash = Crash::new("gcc", &["-static", "-no-pie"], &[]);
    let core = crash.core("qsort");
    let bytes = crash.dir.path().join("stack.bin");
    let names = ["rip", "rsp", "rbp", "rbx", "r12", "r13", "r14", "r15"];
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", &format!("core-file {}", core.display())]);
    gdb.args(["-ex", &format!("dump binary memory {} $sp $sp+2048", bytes.display())]);
    for name in names {
        gdb.args(["-ex", &format!("printf \"REG {name}=0x%lx\\n\", ${name}")]);
    }
    let output = gdb.arg(&crash.program).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let regs: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("REG ")).collect();
    assert_eq!(regs.len(), names.len(), "{output:?}");
    let sp = regs[1].trim_start_matches("rsp=");
    let mut command = fpprof();
    command.args(["unwind", "--json", "--elf"]).arg(&crash.program).args(["--regs", &regs.join(",")]);
    command.arg("--stack").arg(format!("{sp}:{}", bytes.display()));
    let unwound = ran(&mut command);
    assert_eq!(unwound.status, 0, "{}", unwound.stderr);
    let bare: Value = serde_json::from_str(&unwound.stdout).unwrap();
    let (bare, whole) = (&bare["threads"][0], crash.unwind(&core, &[]));
    assert_eq!((&bare["status"], addresses(bare)), (&"complete".into(), addresses(died(&whole))));

    // A return address that does not follow a call is marked, and followed.
    let forged = addresses(bare)[1];
    let mut stack = std::fs::read(&bytes).unwrap();
    let word = stack.chunks_exact_mut(8).find(|word| **word == forged.to_le_bytes()).unwrap();
    word.copy_from_slice(&(forged + 1).to_le_bytes());
    std::fs::write(&bytes, stack).unwrap();
    let unwound = ran(&mut command);
    assert_eq!(unwound.status, 0, "{}", unwound.stderr);
    let bare: Value = serde_json::from_str(&unwound.stdout).unwrap();
    let frames = frames(&bare["threads"][0]).iter();
    let doubtful = frames.map(|frame| (frame["address"].as_u64().unwrap(), frame["no_call_before"] == true));
    assert_eq!(doubtful.filter(|&(_, is_doubtful)| is_doubtful).map(|(at, _)| at).collect::<Vec<_>>(), [forged + 1]);
}

/// Check that a short stack that ends in the code of the entry point is complete, because the stack ends there.
#[test]
fn short_stacks_are_complete() {
    const SOURCE: &str = ".globl _start
_start: call first
hlt
first: .cfi_startproc
call last
ret
.cfi_endproc
last: .cfi_startproc
mov 0, %rax
ret
.cfi_endproc
";
    let _plain_cores = plain_cores();
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("short.s"), dir.path().join("short"));
    std::fs::write(&source, SOURCE).unwrap();
    compile("gcc", &["-nostdlib", "-static"], &program, &source);
    let run = ["-c", "ulimit -c unlimited && exec ./short"];
    let died = Command::new("sh").args(run).current_dir(dir.path()).status().unwrap();
    assert!(died.code().is_none(), "{died}");
    let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let is_core = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("core");
    let core = files.into_iter().find(is_core).unwrap();
    let unwound = ran(fpprof().args(["unwind", "--json", "--core"]).arg(core).arg("--exe").arg(&program));
    assert_eq!(unwound.status, 0, "{}", unwound.stderr);
    let unwound: Value = serde_json::from_str(&unwound.stdout).unwrap();
    let thread = &unwound["threads"][0];
    let names: Vec<&str> = frames(thread).iter().filter_map(|frame| frame["symbol"].as_str()).collect();
    assert_eq!(names, ["last", "first", "_start"], "{thread:#}");
    assert_eq!((&thread["status"], &thread["reason"]), (&"complete".into(), &"_start".into()), "{thread:#}");
}

/// Check that the depth limit holds, and that without rows a walk stops unless it may follow the frame pointer, and
/// then marks every frame found so.
#[test]
fn limits_and_fallbacks_are_asked_for() {
    let flags = ["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-no-pie"];
    let _plain_cores = plain_cores();
    let crash = Crash::new("gcc", &flags, &[]);
    let core = crash.core("thread");
    let plain = crash.unwind(&core, &[]);
    assert_eq!((frames(died(&plain)).len(), &died(&plain)["reason"]), (1, &"no_cfi".into()), "{plain:#}");
    let guessed = crash.unwind(&core, &["--fallback", "fp"]);
    let found: Vec<(&str, &str)> = frames(died(&guessed))
        .iter()
        .filter_map(|frame| Some((frame["symbol"].as_str()?, frame["found"].as_str()?)))
        .take(6)
        .collect();
    let by_fp = "frame_pointer";
    // `leaf` has no frame: its caller's frame pointer is taken for its own, and one `deep` is missing.
    let expected = [("leaf", "registers"), ("deep", by_fp), ("deep", by_fp), ("deep", by_fp), ("thread_main", by_fp)];
    assert_eq!(found[..5], expected, "{guessed:#}");
    let cut = crash.unwind(&core, &["--fallback", "fp", "--max-depth", "3"]);
    assert_eq!((frames(died(&cut)).len(), &died(&cut)["reason"]), (3, &"max_depth".into()), "{cut:#}");
}
