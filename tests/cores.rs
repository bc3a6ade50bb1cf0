//! Cores as the kernel and emulators write them, of x86-64, i386 and aarch64 programs whose chains are known, held against
//! gdb where that can unwind them.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

use serde_json::Value;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{fpprof, ran};

const AARCH64_ROOT: &str = "/usr/aarch64-linux-gnu";
const I386_INTERPRETER: &str =
    "-Wl,--dynamic-linker=/usr/i686-linux-gnu/lib/ld-linux.so.2,-rpath,/usr/i686-linux-gnu/lib";
const SIGSEGV: i32 = 11;

/// Functions of `crash.c`, for each of its arguments, and how the stack ends.
const CHAINS: [(&str, &[&str], &str); 4] = [
    ("qsort", &["leaf", "deep", "deep", "deep", "deep", "compare", "outer", "main"], "_start"),
    ("signal", &["leaf", "deep", "deep", "deep", "deep", "on_signal", "outer", "main"], "_start"),
    ("thread", &["leaf", "deep", "deep", "deep", "deep", "thread_main"], "thread_start"),
    ("context", &["leaf", "deep", "deep", "deep", "deep", "coroutine"], "__start_context"),
];

/// A program, and how it is run.
struct Crash {
    dir: tempfile::TempDir,
    program: PathBuf,
    /// In front of the program.
    emulator: &'static [&'static str],
}

impl Crash {
    fn new(compiler: &str, flags: &[&str], emulator: &'static [&'static str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("crash");
        let usual: &[&str] = &["-O2", "-fomit-frame-pointer", "-Wall", "-Werror", "-pthread"];
        support::compile(compiler, &[usual, flags].concat(), &program, &support::source("crash.c"));
        Self { dir, program, emulator }
    }

    /// Lets the program die, and gives its core.
    fn core(&self, argument: &str) -> PathBuf {
        let folder = self.dir.path().join(argument);
        std::fs::create_dir(&folder).unwrap();
        let pattern = CorePattern::plain();
        let mut run = Command::new("sh");
        run.args(["-c", "ulimit -c unlimited && exec \"$@\"", "sh"]).args(self.emulator).arg(&self.program);
        let output = run.arg(argument).current_dir(&folder).output().unwrap();
        drop(pattern);
        assert_eq!(output.status.signal(), Some(SIGSEGV), "{output:?}");
        // An emulator dies of the same signal, and leaves a core of itself beside that of the program.
        let is_wanted = |name: &str| name.ends_with(".core") || self.emulator.is_empty() && name.starts_with("core");
        let mut files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let core = files.find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_wanted));
        core.unwrap_or_else(|| panic!("no core in {}", folder.display()))
    }

    /// What `fpprof unwind` says of a core.
    fn unwind(&self, core: &Path, options: &[&str]) -> Value {
        let mut command = fpprof();
        command.args(["unwind", "--json", "--core"]).arg(core).arg("--exe").arg(&self.program).args(options);
        let ran = ran(&mut command);
        assert_eq!(ran.status, 0, "{}\n{}", ran.stderr, ran.stdout);
        serde_json::from_str(&ran.stdout).unwrap()
    }

    /// The frames of the thread that died, as gdb has them: their addresses.
    fn gdb(&self, core: &Path, gdb: &str, root: Option<&str>) -> Vec<u64> {
        let script = self.dir.path().join("frames.gdb");
        let frames = "python
frame = gdb.newest_frame()
while frame:
    if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
        print('FRAME', frame.pc())
    frame = frame.older()
end
";
        std::fs::write(&script, frames).unwrap();
        let mut command = Command::new(gdb);
        command.args(["-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set backtrace past-main on"]);
        if let Some(root) = root {
            command.args(["-ex", &format!("set sysroot {root}")]);
        }
        command.args(["-ex", &format!("core-file {}", core.display()), "-x"]).arg(&script).arg(&self.program);
        let output = command.output().unwrap_or_else(|error| panic!("{gdb}: {error}"));
        let text = String::from_utf8_lossy(&output.stdout);
        let frames = text.lines().filter_map(|line| line.strip_prefix("FRAME ")?.parse().ok());
        let frames: Vec<u64> = frames.collect();
        assert!(!frames.is_empty(), "{gdb}: {output:?}");
        frames
    }
}

/// The kernel's pattern for the names of cores, made one that leaves them where a program runs, and restored.
struct CorePattern(Option<String>);

impl CorePattern {
    const PATH: &str = "/proc/sys/kernel/core_pattern";

    fn plain() -> Self {
        let pattern = std::fs::read_to_string(Self::PATH).unwrap();
        if pattern.starts_with("core") && !pattern.contains('/') {
            return Self(None);
        }
        std::fs::write(Self::PATH, "core").expect("only root may say where cores go");
        Self(Some(pattern))
    }
}

impl Drop for CorePattern {
    fn drop(&mut self) {
        if let Some(pattern) = &self.0 {
            let _ = std::fs::write(Self::PATH, pattern);
        }
    }
}

/// The thread that died.
fn died(unwound: &Value) -> &Value {
    let threads = unwound["threads"].as_array().unwrap();
    threads.iter().find(|thread| thread["signal"] == SIGSEGV).unwrap_or_else(|| panic!("{unwound:#}"))
}

fn frames(thread: &Value) -> &[Value] {
    thread["frames"].as_array().unwrap()
}

fn addresses(thread: &Value) -> Vec<u64> {
    frames(thread).iter().map(|frame| frame["address"].as_u64().unwrap()).collect()
}

/// Checks that a thread has the functions of a chain in this order, and others of libraries only.
fn assert_chain(thread: &Value, functions: &[&str], root: &str, context: &str) {
    let all = ["leaf", "deep", "compare", "on_signal", "outer", "thread_main", "coroutine", "main"];
    let names = frames(thread).iter().filter_map(|frame| frame["symbol"].as_str());
    let ours: Vec<&str> = names.filter(|name| all.contains(name)).collect();
    assert_eq!(ours, functions, "{context}: {thread:#}");
    assert_eq!((&thread["status"], &thread["reason"]), (&"complete".into(), &root.into()), "{context}: {thread:#}");
    for frame in frames(thread).iter().skip(1) {
        assert_eq!(frame["found"], "cfi", "{context}: {thread:#}");
    }
}

/// Checks every chain of a program whose cores the kernel writes, against gdb frame by frame.
fn check_native(compiler: &str, flags: &[&str], arch: &str) {
    let crash = Crash::new(compiler, flags, &[]);
    for (argument, functions, root) in CHAINS {
        let context = format!("{compiler} {flags:?} {argument}");
        let core = crash.core(argument);
        let unwound = crash.unwind(&core, &[]);
        assert_eq!(unwound["arch"], arch, "{context}");
        assert_chain(died(&unwound), functions, root, &context);
        // Another thread may be where the C library has no rows, around the system call that makes a thread.
        for thread in unwound["threads"].as_array().unwrap() {
            assert_ne!(thread["status"], "broken", "{context}: {thread:#}");
        }
        let (ours, gdb) = (addresses(died(&unwound)), crash.gdb(&core, "gdb", None));
        // gdb does not show the first function of a context, which nothing has called.
        let n = if argument == "context" { gdb.len().min(ours.len() - 1) } else { ours.len() };
        assert_eq!(ours[..n], gdb[..n], "{context}");
        assert!(argument == "context" || gdb.len() == n, "{context}: {gdb:x?}");
    }
}

/// Check that cores the kernel writes of x86-64 programs, position independent or static, give gdb's frames.
#[test]
fn x86_64_cores_of_the_kernel() {
    for flags in [&["-pie", "-fPIE"][..], &["-static"]] {
        check_native("gcc", flags, "x86-64");
    }
}

/// Check the same of i386 programs, which this kernel runs.
#[test]
fn i386_cores_of_the_kernel() {
    for flags in [&["-pie", "-fPIE", I386_INTERPRETER][..], &["-no-pie", "-static"]] {
        check_native("i686-linux-gnu-gcc", flags, "i386");
    }
}

/// The chains that can be followed in an emulator of version 7: it has no vDSO, hence no rows for its signal frame.
fn emulated() -> impl Iterator<Item = (&'static str, &'static [&'static str], &'static str)> {
    CHAINS.into_iter().filter(|(argument, _, _)| *argument != "signal")
}

const QEMU: &[&str] = &["qemu-aarch64", "-cpu", "max", "-L", AARCH64_ROOT];

/// Check that aarch64 cores, which an emulator writes without a list of files, have the known chains, whether return
/// addresses are signed in non-leaf functions, in all of them, or not at all.
#[test]
fn aarch64_cores_with_signed_return_addresses() {
    let protections = ["none", "pac-ret", "pac-ret+leaf", "standard"];
    for (protection, link) in protections.into_iter().zip(["-pie", "-pie", "-no-pie", "-static"]) {
        let flag = format!("-mbranch-protection={protection}");
        let crash = Crash::new("aarch64-linux-gnu-gcc", &[&flag, link], QEMU);
        let disassembly = Command::new("aarch64-linux-gnu-objdump").arg("-d").arg(&crash.program).output().unwrap();
        let signs = String::from_utf8_lossy(&disassembly.stdout).contains("paciasp");
        assert!(signs || protection == "none", "{protection} signs nothing");
        for (argument, functions, root) in emulated() {
            let context = format!("{protection} {link} {argument}");
            let core = crash.core(argument);
            let unwound = crash.unwind(&core, &["--sysroot", AARCH64_ROOT]);
            assert_eq!(unwound["arch"], "aarch64", "{context}");
            assert_chain(died(&unwound), functions, root, &context);
            if protection != "none" && protection != "standard" {
                assert!(has_signed_words(&core), "{context}: no signed return address in the core");
            }
        }
    }
}

/// Whether some word of a core is the signed form of another that is code's address: bits above 47 set, the rest in the
/// first 4 GiB above where qemu loads programs.
fn has_signed_words(core: &Path) -> bool {
    let bytes = std::fs::read(core).unwrap();
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let is_code = |address: u64| (0x40_0000..0x41_0000).contains(&address) || address >> 32 == 0x55;
    words.filter(|&word| word >> 63 == 0 && word >> 48 != 0 && is_code(word & 0xffff_ffff_ffff)).count() >= 4
}

/// Check that unsigned aarch64 stacks are frame by frame those of gdb, which cannot follow signed ones in a core.
#[test]
fn aarch64_stacks_are_those_of_gdb() {
    for link in ["-no-pie", "-static"] {
        let crash = Crash::new("aarch64-linux-gnu-gcc", &["-mbranch-protection=none", link], QEMU);
        let core = crash.core("qsort");
        let unwound = crash.unwind(&core, &["--sysroot", AARCH64_ROOT]);
        let gdb = crash.gdb(&core, "gdb-multiarch", Some(AARCH64_ROOT));
        assert_eq!(addresses(died(&unwound)), gdb, "{link}");
    }
}

/// Check that without its executable a core without a list of files says what is missing, and invents no frame.
#[test]
fn a_core_without_files_says_so() {
    let crash = Crash::new("aarch64-linux-gnu-gcc", &[], QEMU);
    let core = crash.core("qsort");
    let ran = ran(fpprof().args(["unwind", "--json", "--core"]).arg(&core));
    let unwound: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(unwound["warnings"].to_string().contains("--exe"), "{unwound:#}");
    let died = died(&unwound);
    assert_eq!((frames(died).len(), &died["reason"]), (1, &"no_module".into()), "{died:#}");
}

/// Check that registers and bytes of a stack, as gdb takes them out of a core, give the stack that the core gives.
#[test]
fn registers_and_bytes_are_enough() {
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
    let ran = ran(command.arg("--stack").arg(format!("{sp}:{}", bytes.display())));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let bare: Value = serde_json::from_str(&ran.stdout).unwrap();
    let (bare, whole) = (&bare["threads"][0], crash.unwind(&core, &[]));
    assert_eq!((&bare["status"], addresses(bare)), (&"complete".into(), addresses(died(&whole))));
}

/// Check that the depth is what was asked for, and that where there are no rows a walk stops unless it may follow the
/// frame pointer, and then says so of every frame it found so.
#[test]
fn limits_and_fallbacks_are_asked_for() {
    let flags = ["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-no-pie"];
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
    // `leaf` has no frame: its caller's is taken for its own, and one `deep` is missing.
    let expected = [("leaf", "registers"), ("deep", by_fp), ("deep", by_fp), ("deep", by_fp), ("thread_main", by_fp)];
    assert_eq!(found[..5], expected, "{guessed:#}");
    let cut = crash.unwind(&core, &["--fallback", "fp", "--max-depth", "3"]);
    assert_eq!((frames(died(&cut)).len(), &died(&cut)["reason"]), (3, &"max_depth".into()), "{cut:#}");
}
