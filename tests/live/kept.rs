//! Which files a recording keeps, and when: files that will be gone later are kept at once, others are not. Loads the
//! real BPF program; mounts are in a separate mount namespace.

use crate::support::stacks::{Stack, commonest, stacks};
use crate::support::{Ended, compile, fpprof, number, ran, report, wait_for_samples, wait_until};
use fpprof_recording::Recording;
use fpprof_recording::model::{ModuleBytes, Sideband};
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Uses the CPU in `spin`, for some tenths of a second, or forever if requested.
const SPIN: &str = "
volatile unsigned long sink;
char secret[] = \"a key in the data\", *pointer = secret;
__attribute__((noinline)) void spin(void) { for (long i = 0; i < 300000000; i++) sink += i; }
int main(int argc, char **argv) { (void)argv; do spin(); while (argc > 1); return 0; }
";

/// Calls getpid through the vDSO's kernel entry. If requested, it first overwrites the symbol name of that entry, and
/// prints so; then it waits for input.
const ASKS: &str = "
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char *vdso = (char *)getauxval(AT_SYSINFO_EHDR);
    if (argc > 1 && argv[1][0] == 'r') {
        /* It can be changed as a whole only. */
        size_t bytes = 4096;
        for (; mprotect(vdso, bytes, PROT_READ | PROT_WRITE | PROT_EXEC); bytes += 4096) if (bytes > 65536) return 1;
        for (size_t at = 0; at < bytes - 16; at++)
            if (!memcmp(vdso + at, \"__kernel_vsyscall\", 17)) memcpy(vdso + at, \"a_strangers_names\", 17);
        if (!memmem(vdso, bytes, \"a_strangers_names\", 17) || write(1, \"r\", 1) != 1) return 1;
    }
    char byte;
    if (argc > 1 && read(0, &byte, 1) != 1) return 1;
    for (int i = 0; i < 3000000; i++) getppid();
    return 0;
}
";

fn program(dir: &Path, source: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let (file, program) = (dir.join("program.c"), dir.join("program"));
    fs::write(&file, source).expect("the source is written");
    compile(compiler, flags, &program, &file);
    program
}

/// Executes code in a memory file that is not ELF, next to data.
const MEMFD: &str = "
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    (void)argv;
    /* mov $300000000,%ecx; 1: dec %ecx; jnz 1b; ret */
    static const unsigned char code[] = { 0xb9, 0x00, 0xa3, 0xe1, 0x11, 0xff, 0xc9, 0x75, 0xfc, 0xc3 };
    char bytes[4096] = \"\";
    int fd = memfd_create(\"compiled\", 0);
    memcpy(bytes, code, sizeof(code));
    strcpy(bytes + 64, \"a key in the file\");
    if (write(fd, bytes, sizeof(bytes)) < 0) return 1;
    void *memory = mmap(0, sizeof(bytes), PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return 1;
    do ((void (*)(void))memory)(); while (argc > 1);
    return 0;
}
";

/// The modules with a path of this ending whose bytes a recording holds.
pub(crate) fn modules(file: &Path, ending: &str) -> Vec<ModuleBytes> {
    let mut found = Vec::new();
    let Ok(mut recording) = Recording::open(fs::File::open(file).expect("the recording is there")) else {
        return found;
    };
    let visited = recording.sideband(|event| match event {
        Sideband::Module(module) if module.path.ends_with(ending.as_bytes()) => found.push(module.clone()),
        _ => {}
    });
    visited.expect("the recording can be read");
    found
}

/// Check that a program that stays in place is not kept, and has its names, on file systems where stat(2) and the
/// mapping have different device numbers, with and without the right to open a file by its mapping.
#[test]
fn files_of_layered_file_systems_stay_where_they_are() {
    let layers = "mount -t tmpfs none \"$1/upper\" && mkdir \"$1/upper/files\" \"$1/upper/work\" &&
        mount -t overlay -o \"lowerdir=$1/lower,upperdir=$1/upper/files,workdir=$1/upper/work\" none \"$1/mount\"";
    for flags in [["-O1", "-Wl,--build-id"], ["-O1", "-Wl,--build-id=none"]] {
        for (limit, collector) in [("", "ebpf"), ("setpriv --bounding-set -all ", "perf-event")] {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            ["lower", "upper", "mount"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
            program(&at("lower"), SPIN, "gcc", &flags);
            let script = format!(
                "({layers}) >&2 || exit 9; {limit}\"$2\" record -q --collector \"$3\" -o \"$1/recording\" \
                 \"$1/mount/program\" || exit 8; exec \"$2\" report --json \"$1/recording\""
            );
            let mut command = Command::new("unshare");
            command.args(["-m", "sh", "-c", &script, "sh"]).arg(dir.path()).arg(env!("CARGO_BIN_EXE_fpprof"));
            let ran = ran(command.arg(collector));
            let what = format!("{flags:?} {limit}");
            assert_eq!(ran.status, 0, "{what}: {}", ran.stderr);
            assert!(modules(&at("recording"), "/mount/program").is_empty(), "{what}: the program is kept");
            let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
            assert_eq!(report["hottest"][0]["name"], "spin", "{what}: {report}");
            assert!(!ran.stderr.contains("could not be saved"), "{what}: {}", ran.stderr);
        }
    }
}

const FLAGS_OF_32_BITS: [&str; 4] = ["-D_GNU_SOURCE", "-O1", "-static", "-no-pie"];

/// Check that a 32-bit program is unwound through its own vDSO, which differs from ours.
#[test]
fn programs_of_32_bits_have_a_vdso_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path(), ASKS, "i686-linux-gnu-gcc", &FLAGS_OF_32_BITS);
    let file = dir.path().join("recording");
    let ran = ran(fpprof().args(["record", "-q", "--call-graph", "dwarf", "-o"]).arg(&file).arg(&program));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let kept = modules(&file, "[vdso32]");
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].bytes.get(..5), Some(&b"\x7fELF\x01"[..]), "of 32 bits");
    let report = report(&file, &[]);
    let dwarf = &report["strategies"]["dwarf"];
    let (samples, complete) = (number(dwarf, "samples"), number(dwarf, "complete"));
    assert!(complete * 100 >= samples * 95, "{dwarf:#}");
    let found = stacks(&file, "dwarf");
    let goes_through = |stack: &Stack| stack.names.starts_with(&["__kernel_vsyscall".into(), "__getppid".into()]);
    assert!(found.iter().any(goes_through), "{}", commonest(&found));
}

/// Check that a process that overwrites its vDSO affects no names in a recording: neither other processes' functions,
/// nor its own.
#[test]
fn a_process_that_changes_its_vdso_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path(), ASKS, "i686-linux-gnu-gcc", &FLAGS_OF_32_BITS);
    let start = |what| {
        let mut command = Command::new(&program);
        Ended(command.arg(what).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts"))
    };
    let mut renaming = start("renames");
    let mut ready = [0];
    renaming.stdout.take().unwrap().read_exact(&mut ready).expect("it renames");
    let mut other = start("other");
    let file = dir.path().join("recording");
    let mut record = fpprof();
    record.args(["record", "-q", "--call-graph", "dwarf", "-o"]).arg(&file);
    record.args(["-p", &format!("{},{}", renaming.id(), other.id())]);
    let mut record = Ended(record.spawn().expect("fpprof starts"));
    wait_until("it records", || fs::metadata(&file).is_ok_and(|metadata| metadata.len() > 0));
    for process in [&mut renaming, &mut other] {
        process.stdin.take().unwrap().write_all(b"x").expect("it waits");
        assert!(process.wait().unwrap().success());
    }
    assert!(record.wait().unwrap().success());
    let kept = modules(&file, "[vdso32]");
    let renamed = |bytes: &[u8]| bytes.windows(17).any(|name| name == b"a_strangers_names");
    assert!(kept.len() == 1 && !renamed(&kept[0].bytes), "{} modules", kept.len());
    let found = stacks(&file, "dwarf");
    let has = |name: &str| found.iter().any(|stack| stack.names.iter().any(|known| known == name));
    assert!(has("__kernel_vsyscall") && !has("a_strangers_names"), "{}", commonest(&found));
}

/// Starts a recorder of a program that runs forever, and waits for samples.
fn recorder(file: &Path, command: &[&str]) -> Ended {
    let mut record = fpprof();
    record.args(["record", "-q", "-o"]).arg(file).arg("--").args(command);
    let recorder = Ended(record.stderr(Stdio::null()).spawn().expect("fpprof starts"));
    wait_for_samples(file);
    recorder
}

fn kill(mut recorder: Ended) {
    recorder.kill().expect("it runs");
    recorder.wait().expect("its end");
}

/// The process that runs this program.
fn process_of(program: &Path) -> Process {
    let is_it = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program);
    let pids = fs::read_dir("/proc")
        .expect("processes")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Process(pids.into_iter().find(is_it).expect("the program runs"))
}

/// A process that is killed on drop.
struct Process(u32);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", &self.0.to_string()]).status();
    }
}

/// Check that of a memory file that is not ELF only its existence is recorded.
#[test]
fn files_that_are_no_programs_are_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path(), MEMFD, "gcc", &["-O1"]);
    let file = dir.path().join("recording");
    let mut recorder = recorder(&file, &[program.to_str().unwrap(), "endless"]);
    let process = process_of(&program);
    let kept = || modules(&file, "/memfd:compiled (deleted)");
    wait_until("the file is noted", || !kept().is_empty());
    drop(process);
    recorder.wait().expect("its end");
    let kept = kept();
    assert!(kept.len() == 1 && kept[0].bytes.is_empty(), "{kept:?}");
    let report = report(&file, &[]);
    assert!(report["hottest"][0]["name"].as_str().unwrap().contains("memfd:compiled"), "{}", report["hottest"]);
}

/// Check that the file of a program that is deleted while it runs is soon in the recording, so that stacks are complete
/// even if the recorder is killed.
#[test]
fn deleted_programs_are_kept_before_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let program = program(dir.path(), SPIN, "gcc", &["-O1"]);
    let (name, file) = (program.to_str().unwrap(), dir.path().join("recording"));
    let recorder = recorder(&file, &[name, "endless"]);
    let _process = process_of(&program);
    let bytes = fs::read(&program).unwrap();
    fs::remove_file(&program).unwrap();
    wait_until("the program is kept", || !modules(&file, "/program").is_empty());
    kill(recorder);
    let kept = modules(&file, "/program");
    assert!(kept.len() == 1 && kept[0].bytes.len() == bytes.len(), "{} times", kept.len());
    let holds_the_secret = |bytes: &[u8]| bytes.windows(17).any(|window| window == b"a key in the data");
    assert!(holds_the_secret(&bytes) && !holds_the_secret(&kept[0].bytes), "data is not kept");
    let report = report(&file, &[]);
    assert_eq!(report["ended_in_order"], false, "{report}");
    assert_eq!(report["hottest"][0]["name"], "spin", "{report}");
    let dwarf = &report["strategies"]["dwarf"];
    assert!(number(dwarf, "complete") * 100 >= number(dwarf, "samples") * 95, "{dwarf:#}");
}

/// Check that the lines of a table of compiled code are in the recording soon after they were written, each once.
#[test]
fn tables_of_compiled_code_are_kept_before_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let program = crate::jit::program(dir.path());
    let file = dir.path().join("recording");
    let recorder = recorder(&file, &[program.to_str().unwrap(), "none", "-"]);
    let process = process_of(&program);
    let table = PathBuf::from(format!("/tmp/perf-{}.map", process.0));
    let mut lines = fs::File::create(&table).unwrap();
    let held = || modules(&file, &format!("[perf-map {}]", process.0)).into_iter().flat_map(|module| module.bytes);
    let mut wanted = String::new();
    for n in 1..4 {
        writeln!(lines, "{n}000 10 function{n}").unwrap();
        wanted.push_str(&format!("{n}000 10 function{n}\n"));
        wait_until("its line is kept", || held().eq(wanted.bytes()));
    }
    kill(recorder);
    fs::remove_file(&table).unwrap();
    assert_eq!(String::from_utf8(held().collect()).unwrap(), wanted);
}
