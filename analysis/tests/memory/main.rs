//! Limits of memory and time for hostile files.
//!
//! Each file is handled by a process of its own, an instance of this program, so that the kernel's figure of the
//! largest resident set is that of this file.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![expect(clippy::cast_possible_truncation, reason = "sizes are small")]
#![expect(clippy::print_stdout, reason = "a process tells the one that started it")]

mod dwarf;
mod elf;
mod mutants;
mod perf;

use fpprof_analysis::address_space::{FileIx, Timeline};
use fpprof_analysis::modules::{FileModules, ModuleTable};
use fpprof_analysis::symbols::{Detail, Name, Symbolizer};
use fpprof_analysis::{audit, import};
use fpprof_recording::model::{CaptureMode, Collector, FileIdentity, Host, Meta, Mmap, Sideband, Target};
use fpprof_unwind::{ModuleId, Modules as _};
use std::collections::BTreeMap;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The most memory per file.
const MAX_BYTES: f64 = 256e6;
/// The most CPU time per file, seconds: twice the target, since tests share their machine.
const MAX_CPU_S: f64 = 4.0;

/// A value of `/proc/self/status`, bytes.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() << 10
}

/// CPU time of this process, seconds. `/proc/self/stat` has it in hundredths, after the name.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    [11, 12].iter().map(|&field| fields[field].parse::<f64>().unwrap() / 100.0).sum()
}

/// What to do with a file.
#[derive(Debug, Clone, Copy)]
enum Task {
    Names,
    Rows,
    Audit,
    Import,
    /// Everything that is done with ELF files, for many variants of this one.
    Mutants,
}

/// Environment variables that pass a child process its task, file, and addresses.
const TASK: [&str; 3] = ["FPPROF_TEST_TASK", "FPPROF_TEST_FILE", "FPPROF_TEST_SVMAS"];

/// Does something with a file in a child process, checks its cost, and returns its output.
fn bounded(name: &str, task: Task, path: &Path, svmas: &[u64]) -> Vec<String> {
    let (cpu_s, output) = measured(name, task, path, svmas);
    assert!(cpu_s <= MAX_CPU_S, "{name}: {task:?}: {cpu_s} s");
    output
}

/// The same without a limit of time; also returns the CPU time.
fn measured(name: &str, task: Task, path: &Path, svmas: &[u64]) -> (f64, Vec<String>) {
    let svmas: Vec<String> = svmas.iter().map(u64::to_string).collect();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hostile_files_are_bounded", "--nocapture"])
        .env(TASK[0], format!("{task:?}"))
        .env(TASK[1], path)
        .env(TASK[2], svmas.join(","))
        .output()
        .unwrap();
    let output = String::from_utf8(child.stdout).unwrap();
    assert!(child.status.success(), "{name}: {task:?}: {output} {}", String::from_utf8_lossy(&child.stderr));
    let value = |what: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(what)).unwrap();
        line.parse::<f64>().unwrap()
    };
    let (bytes, cpu_s) = (value("bytes "), value("cpu_s "));
    assert!(bytes <= MAX_BYTES, "{name}: {task:?}: {bytes} bytes");
    (cpu_s, output.lines().filter_map(|line| line.strip_prefix("line ")).map(str::to_owned).collect())
}

/// The task of a child process.
fn work(task: &str) {
    let path = PathBuf::from(std::env::var_os(TASK[1]).unwrap());
    let svmas: Vec<u64> = std::env::var(TASK[2]).unwrap().split(',').filter_map(|svma| svma.parse().ok()).collect();
    let output = match task {
        "Names" => names(&path, &svmas),
        "Rows" => rows(&path),
        "Audit" => {
            vec![format!("{:?}", audit::examine(File::open(&path).unwrap(), audit::AuditOptions::default()).is_ok())]
        }
        "Import" => vec![format!("{:?}", import::perf_data(File::open(&path).unwrap(), std::io::sink()))],
        "Mutants" => mutants::read_all(&path),
        other => panic!("{other}"),
    };
    // The test harness has left its first line unfinished.
    println!();
    output.iter().for_each(|line| println!("line {line}"));
    println!("bytes {}\ncpu_s {}", status("VmHWM:"), cpu_s());
}

fn meta() -> Meta {
    Meta {
        tool_version: "test".to_owned(),
        start_ns: 1,
        start_unix_ns: 0,
        host: Host { arch: "x86_64".to_owned(), cpus_online: 1, ..Host::default() },
        collector: Collector::Imported,
        events: Vec::new(),
        mode: CaptureMode::Fp,
        kernel_stacks: false,
        scrubbed: false,
        target: Target::System,
        not_counted: Vec::new(),
        aggregated_ns: None,
    }
}

/// A timeline of a process that maps the file.
fn mapped(path: &Path) -> Timeline {
    Timeline::new([Sideband::Mmap(Mmap {
        time_ns: 1,
        pid: 1,
        tid: 1,
        start: 0x10_0000,
        len: 0x1000,
        file_offset: 0,
        prot: 5,
        flags: 2,
        path: path.as_os_str().as_bytes().to_vec(),
        identity: FileIdentity::default(),
        synthesized: true,
    })])
}

/// The names of some addresses of a file, with files and lines, and the warnings.
fn names(path: &Path, svmas: &[u64]) -> Vec<String> {
    let (timeline, modules) = (mapped(path), FileModules::new());
    let table = ModuleTable::new(&timeline, &meta(), &modules);
    let wanted = BTreeMap::from([(FileIx(0), svmas.to_vec())]);
    let symbols = Symbolizer::new(&table, &wanted, None, Detail::Lines, NonZeroUsize::MIN);
    let name = |&svma: &u64| symbols.user(FileIx(0), svma).unwrap_or_default().first().map(Name::to_string);
    svmas.iter().map(|svma| name(svma).unwrap_or_default()).chain(symbols.warnings().iter().cloned()).collect()
}

/// Looks up rows of a file, so that its call frame information is read and indexed; returns the warnings.
fn rows(path: &Path) -> Vec<String> {
    let (timeline, modules) = (mapped(path), FileModules::new());
    let table = ModuleTable::new(&timeline, &meta(), &modules);
    if let Ok(module) = table.module(ModuleId(0)) {
        let _ = module.count_entries();
    }
    table.warnings()
}

/// Check that no file makes symbolising, unwinding, auditing or importing take more than 256 MB, and that there is a
/// warning about what is left out.
#[test]
fn hostile_files_are_bounded() {
    if let Ok(task) = std::env::var(TASK[0]) {
        return work(&task);
    }
    let dir = tempfile::tempdir().unwrap();
    for (name, path) in elf::many_headers(&dir) {
        for task in [Task::Names, Task::Rows, Task::Audit] {
            bounded(name, task, &path, &[0x1000]);
        }
    }
    for hostile in dwarf::all() {
        let path = dir.path().join("debug-information");
        std::fs::write(&path, &hostile.file).unwrap();
        let output = bounded(hostile.name, Task::Names, &path, &hostile.svmas);
        let expected = if hostile.is_too_much { "symbol" } else { "f" };
        assert!(output.iter().any(|name| name.starts_with(expected)), "{}: {output:?}", hostile.name);
        let is_told = output.iter().any(|line| line.contains("too much debug information"));
        assert_eq!(is_told, hostile.is_too_much, "{}: {output:?}", hostile.name);
        bounded(hostile.name, Task::Audit, &path, &[]);
    }
    let symbols = elf::many_symbols(&dir);
    let output = bounded("a gigabyte of symbols", Task::Names, &symbols, &[0x1800]);
    assert!(output[0] == "symbol" && output[1].contains("too many symbols"), "{output:?}");
    for (name, path, is_too_much) in elf::much_cfi(&dir) {
        let output = bounded(name, Task::Rows, &path, &[]);
        assert_eq!(
            output.iter().any(|line| line.contains("too much call frame information")),
            is_too_much,
            "{name}: {output:?}"
        );
        bounded(name, Task::Audit, &path, &[]);
    }
    for (name, file) in perf::all() {
        let path = dir.path().join("perf.data");
        std::fs::write(&path, file).unwrap();
        let output = bounded(name, Task::Import, &path, &[]);
        assert!(output[0].starts_with("Err"), "{name}: {output:?}");
    }
}

/// Check that no field of an ELF file, set to any of a few extreme values, makes symbolising, unwinding or auditing
/// panic or exceed its limits.
#[test]
fn fields_may_have_extreme_values() {
    let dir = tempfile::tempdir().unwrap();
    for (n, options) in [&["-g"][..], &["-gdwarf-4", "-gz", "-static-pie"]].into_iter().enumerate() {
        let path = dir.path().join(format!("program-{n}"));
        mutants::program(&path, options);
        let (_, output) = measured("mutants", Task::Mutants, &path, &[]);
        assert!(output[0].parse::<u32>().unwrap() > 1000, "{output:?}");
    }
}
