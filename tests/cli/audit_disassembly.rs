//! `fpprof audit` against objdump, function by function, on programs and libraries of this machine.

use crate::support::{fpprof, number, ran};
use fpprof_analysis::modules::{ElfFile, FileModules, Resolver as _};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Files with and without frame pointers, from gcc, clang and other compilers. Those before the comment are installed
/// with the tests' dependencies; the others are used if installed.
const FILES: [&str; 14] = [
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/lib/x86_64-linux-gnu/libm.so.6",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/lib/gcc/x86_64-linux-gnu/12/cc1",
    "/usr/bin/perl",
    "/usr/bin/fio",
    "/usr/bin/gdb",
    // Programs known to keep frame pointers, and an interpreter known not to.
    "/usr/bin/node",
    "/usr/lib/postgresql/15/bin/postgres",
    "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so",
    "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0",
    "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
    "/usr/bin/python3.11",
];
/// Number of functions compared.
const FUNCTIONS: usize = 1000;
/// The most functions whose readings may differ: every difference is printed, to be explained.
const MOST_DIFFERENCES: usize = 5;
/// Seed of the choice of functions.
const SEED: u64 = 20_261_120;

/// The properties of a function, from objdump's output.
#[derive(Debug, PartialEq, Eq)]
struct Reading {
    /// Whether it saves the caller's frame pointer, and then sets the register to point at it.
    is_framed: bool,
    is_calling: bool,
}

/// Reads a function in objdump's output. objdump is given the function alone: of a file, it reads all code and symbols.
fn reading(elf: &ElfFile, start: u64, len: u64) -> Reading {
    let offset = elf.image().file_offset(start).expect("an address in the file");
    let code = elf.read_range(offset, len, len).expect("the code is read");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), code).expect("a temporary file is written");
    let output = Command::new("objdump")
        .args(["-D", "-b", "binary", "-m", "i386:x86-64", "-w", "--no-show-raw-insn"])
        .arg(file.path())
        .output()
        .expect("objdump runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    judge(&String::from_utf8_lossy(&output.stdout))
}

fn judge(text: &str) -> Reading {
    let mut reading = Reading { is_framed: false, is_calling: false };
    let mut is_saved_on_top = false;
    for line in text.lines() {
        let Some((_, instruction)) = line.split_once(":\t") else { continue };
        let words: Vec<&str> = instruction.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
        reading.is_calling |= words.contains(&"call");
        match words.as_slice() {
            ["push", "%rbp"] => is_saved_on_top = true,
            ["mov", "%rsp,%rbp"] => reading.is_framed |= is_saved_on_top,
            ["push" | "pop" | "call" | "leave" | "ret", ..] => is_saved_on_top = false,
            [_, operands, ..] if operands.ends_with(",%rsp") || operands.ends_with(",%rbp") => is_saved_on_top = false,
            _ => {}
        }
    }
    reading
}

/// Check that objdump's text is interpreted correctly: a frame, a register that only looks like one, a call with
/// prefixes.
#[test]
fn disassembly_is_read() {
    let text = |lines: &[&str]| lines.iter().map(|line| format!("  10:\t{line}\n")).collect::<String>();
    let framed = text(&["push   %rbp", "mov    %edi,%eax", "mov    %rsp,%rbp", "data16 rex.W call 251560 <f@plt>"]);
    assert_eq!(judge(&framed), Reading { is_framed: true, is_calling: true });
    let pointer = text(&["push   %rbp", "push   %rbx", "sub    $0x90,%rsp", "mov    %rsp,%rbp", "jmp *%rax"]);
    assert_eq!(judge(&pointer), Reading { is_framed: false, is_calling: false });
    let moved = text(&["push   %rbp", "sub    $0x90,%rsp", "mov    %rsp,%rbp", "lea 0x8(%rip),%rdi  # 4 <call>"]);
    assert_eq!(judge(&moved), Reading { is_framed: false, is_calling: false });
}

/// Check that on a thousand functions the audit, which reads only unwind information, agrees with their code on which
/// keep a frame pointer and which call. Programs known to keep frame pointers must be found to, and those known not to
/// must not.
#[test]
fn functions_agree_with_disassembly() {
    let files: Vec<&str> = FILES.into_iter().filter(|file| Path::new(file).is_file()).collect();
    assert!(files.len() >= 6, "too few of the files are here: {files:?}");
    let audit = ran(fpprof().args(["audit", "--json", "--functions"]).args(&files));
    assert_eq!(audit.status, 0, "{}", audit.stderr);
    let audit: Value = serde_json::from_str(&audit.stdout).expect("JSON");
    let audited = audit["files"].as_array().expect("files");
    assert_eq!(audited.len() + number_or_0(&audit["other_names"]), files.len());
    let mut rng = fastrand::Rng::with_seed(SEED);
    let (mut compared, mut differences) = (0, Vec::new());
    for (index, file) in audited.iter().enumerate() {
        let path = file["path"].as_str().expect("a path");
        let of = &file["tally"]["functions"];
        let share = 100.0 * number(of, "non_leaf_framed") as f64 / number(of, "non_leaf").max(1) as f64;
        println!("{path}: {share:.1} % of {} non-leaf functions keep a frame pointer", number(of, "non_leaf"));
        assert_known(path, share);
        let elf =
            ElfFile::new(FileModules::new().open(Path::new(path)).expect("a readable file")).expect("an ELF file");
        let mut functions: Vec<&Value> =
            file["records"].as_array().expect("records").iter().filter(|one| one["kind"] == "function").collect();
        rng.shuffle(&mut functions);
        let wanted = (FUNCTIONS - compared).div_ceil(audited.len() - index);
        for function in functions.into_iter().take(wanted) {
            let expected = Reading { is_framed: function["framed"] == true, is_calling: function["leaf"] == false };
            let got = reading(&elf, number(function, "start"), number(function, "len"));
            compared += 1;
            if got != expected {
                differences.push(format!("{path} {:#x}: {expected:?}, objdump {got:?}", number(function, "start")));
            }
        }
    }
    println!("{compared} functions compared, {} differences\n{}", differences.len(), differences.join("\n"));
    assert_eq!(compared, FUNCTIONS);
    assert!(differences.len() <= MOST_DIFFERENCES, "{}", differences.join("\n"));
}

fn number_or_0(value: &Value) -> usize {
    value.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
}

/// Checks what distributions state about their builds: `PostgreSQL`, Node and `OpenJDK` keep frame pointers, Debian's
/// libraries do not.
fn assert_known(path: &str, share: f64) {
    let name = path.rsplit('/').next().unwrap_or(path);
    if ["node", "postgres", "libjvm.so"].contains(&name) {
        assert!(share > 99.0, "{path}: {share:.1} %");
    } else if name.starts_with("libpython") {
        assert!(share < 1.0, "{path}: {share:.1} %");
    } else if name.starts_with("libc.so") {
        assert!((1.0..20.0).contains(&share), "{path}: {share:.1} %");
    }
}
