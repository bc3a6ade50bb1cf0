//! Compares cores that gdb makes of real programs with gdb's own backtraces; and reads malformed cores.

use super::{Bare, Core, CoreError, CoreOptions, LoadedFile, UnwoundCore, register_by_name, unwind_bare, unwind_core};
use crate::modules::{FileModules, Missing, Resolver as _};
use crate::test_support::TestDir;
use fpprof_unwind::{Arch, Fallback, Regs};
use std::collections::BTreeMap;
use std::path::Path;

/// Two threads that wait for signals in a recursion, and one that dies in a callback of libc, which has neither symbols
/// nor frame pointers.
const THREADS: &str = "
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static volatile int waiting;
__attribute__((noinline)) int descend(int n, volatile char *p) {
    volatile char room[24]; room[0] = p[0];
    if (n == 0) { __sync_fetch_and_add(&waiting, 1); for (;;) pause(); }
    int r = descend(n - 1, room);
    return r + room[0];
}
__attribute__((noinline)) static void *work(void *depth) {
    volatile char c = 1;
    return (void *)(long)descend((int)(long)depth, &c);
}
__attribute__((noinline)) int compare(const void *a, const void *b) {
    while (waiting < 2) usleep(1000);
    *(volatile int *)8 = *(const int *)a + *(const int *)b;
    return 0;
}
int main(void) {
    pthread_t t[2];
    for (long i = 0; i < 2; i++) pthread_create(&t[i], 0, work, (void *)(3 + 5 * i));
    int v[4] = {3, 1, 2, 0};
    qsort(v, 4, sizeof *v, compare);
    return v[0];
}
";

/// Runs `program` under gdb until it dies; returns the core and gdb's backtraces: addresses by thread, leaf first.
fn core_of(dir: &TestDir, program: &Path) -> (std::path::PathBuf, BTreeMap<u32, Vec<u64>>) {
    let core = dir.path("core");
    let save = format!("generate-core-file {}", core.display());
    let program = program.to_str().unwrap();
    let args = ["-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set startup-with-shell off"];
    // Without inline frames every line of the backtrace is a physical frame; `set print address on` and missing debug
    // information give every line an address; `past-main` shows the callers of main.
    let words = ["set print symbol-filename off", "set backtrace past-main on", "set backtrace past-entry off", "run"];
    let frames = "python
import gdb
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame = gdb.newest_frame()
    while frame:
        if frame.type() != gdb.INLINE_FRAME:
            print('FRAME', thread.ptid[1], hex(frame.pc()))
        frame = frame.older()
";
    let script = dir.path("frames.gdb");
    std::fs::write(&script, format!("{frames}end\n")).unwrap();
    let mut all: Vec<&str> = args.to_vec();
    for word in &words {
        all.extend(["-ex", word]);
    }
    all.extend(["-ex", &save, "-x", script.to_str().unwrap(), program]);
    let text = dir.run("gdb", &all);
    let mut threads: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for line in text.lines() {
        if let ["FRAME", tid, address] = line.split(' ').collect::<Vec<_>>()[..] {
            let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
            threads.entry(tid.parse().unwrap()).or_default().push(address);
        }
    }
    assert!(core.exists() && !threads.is_empty(), "{text}");
    (core, threads)
}

fn read(core: &Path) -> Result<Core, CoreError> {
    Core::read(FileModules::new().open(core).map_err(CoreError::File)?)
}

fn unwind(path: &Path, exe: Option<&Path>, root: Option<&Path>) -> UnwoundCore {
    let mut files = FileModules::new();
    if let Some(root) = root {
        files = files.with_root(root).from_another_machine();
    }
    let core = read(path).unwrap();
    let open = || files.open(path).unwrap();
    let options = CoreOptions { resolver: &files, executable: exe, root, unwinding: fpprof_unwind::Options::default() };
    unwind_core(&core, [open(), open()], &options)
}

fn addresses(unwound: &UnwoundCore) -> BTreeMap<u32, Vec<u64>> {
    let thread = |thread: &super::ThreadOut| (thread.tid, thread.frames.iter().map(|frame| frame.address).collect());
    unwound.threads.iter().map(thread).collect()
}

/// Check that every thread of a core has exactly gdb's frames, without any frame pointers, whether the program is
/// position-independent, at a fixed address, or static.
#[test]
fn stacks_are_those_of_gdb() {
    for args in [&["-pie", "-fPIE"][..], &["-no-pie"], &["-static"]] {
        let dir = TestDir::new();
        let flags: Vec<&str> = ["-O2", "-fomit-frame-pointer", "-pthread"].iter().chain(args).copied().collect();
        let program = dir.compile("threads", "threads.c", THREADS, &flags);
        let (core, gdb) = core_of(&dir, &program);
        let unwound = unwind(&core, None, None);
        assert_eq!(unwound.threads.len(), 3, "{args:?}");
        for thread in &unwound.threads {
            assert_eq!(thread.status, "complete", "{args:?} {thread:?}");
        }
        assert_eq!(addresses(&unwound), gdb, "{args:?}");
        let died = unwound.threads.iter().find(|thread| thread.signal == 11).unwrap();
        let names: Vec<&str> = died.frames.iter().filter_map(|frame| frame.symbol.as_deref()).collect();
        assert_eq!(names.first(), Some(&"compare"), "{names:?}");
        assert!(names.contains(&"main"), "{names:?}");
        assert_eq!((died.frames[0].found.as_str(), died.frames[1].found.as_str()), ("registers", "cfi"));
        let deepest = unwound
            .threads
            .iter()
            .map(|thread| thread.frames.iter().filter(|frame| frame.symbol.as_deref() == Some("descend")).count());
        assert_eq!(deepest.max(), Some(9), "3 + 5 calls below the first");
        assert_eq!(unwound.warnings, Vec::<String>::new(), "{args:?}");
    }
}

/// Check that `--exe` replaces a missing executable, that a wrong file is not used for it, and that with a root only
/// files below it are used.
#[test]
fn files_are_found_and_verified() {
    let dir = TestDir::new();
    let flags = ["-O2", "-fomit-frame-pointer", "-pthread", "-Wl,--build-id=sha1"];
    let program = dir.compile("threads", "threads.c", THREADS, &flags);
    let (core, gdb) = core_of(&dir, &program);
    let moved = dir.path("moved");
    std::fs::rename(&program, &moved).unwrap();
    let gone = unwind(&core, None, None);
    assert!(gone.threads.iter().any(|thread| thread.reason == "module_unavailable"), "{gone:?}");
    assert!(gone.warnings.iter().any(|text| text.ends_with("threads: not found")), "{:?}", gone.warnings);
    assert_eq!(addresses(&unwind(&core, Some(&moved), None)), gdb);

    let other = dir.compile("other", "other.c", &THREADS.replace("room[24]", "room[72]"), &flags);
    let wrong = unwind(&core, Some(&other), None);
    let died = wrong.threads.iter().find(|thread| thread.signal == 11).unwrap();
    assert_eq!((died.reason.as_str(), died.frames.len()), ("build_id_mismatch", 1));
    assert!(wrong.warnings.iter().any(|text| text.contains("its build id is not the one")), "{:?}", wrong.warnings);

    let root = dir.path("root");
    std::fs::create_dir(&root).unwrap();
    let rooted = unwind(&core, Some(&moved), Some(&root));
    assert!(rooted.threads.iter().all(|thread| thread.status != "complete"), "no libc below the root");
}

/// Check that a core truncated anywhere, or with changed bytes, gives an error or stacks but no panic.
#[test]
fn damaged_cores_are_harmless() {
    let dir = TestDir::new();
    let flags = ["-O2", "-static", "-pthread"];
    let program = dir.compile("threads", "threads.c", THREADS, &flags);
    let (core, _) = core_of(&dir, &program);
    let whole = std::fs::read(&core).unwrap();
    let damaged = dir.path("damaged");
    let try_it = |bytes: &[u8]| {
        std::fs::write(&damaged, bytes).unwrap();
        read(&damaged).map(|_| unwind(&damaged, None, None))
    };
    for part in [0, 3, 64, 100, 4096, whole.len() / 2, whole.len() - 1] {
        // gdb writes notes at the end: if they are cut off, there are no threads.
        if let Ok(unwound) = try_it(&whole[..part]) {
            assert!(!unwound.threads.is_empty());
        }
    }
    let core = read(&core).unwrap();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    let headers = 64 + 56 * (core.loads.len() + 1);
    let notes = whole.len() - 20_000;
    for round in 0..150 {
        let mut bytes = whole.clone();
        for _ in 0..8 {
            let at = if round % 2 == 0 { random(headers) } else { notes + random(20_000) };
            bytes[at] = u8::try_from(random(256)).unwrap();
        }
        let _ = try_it(&bytes);
    }
}

/// Check that a file that is not a core, or of an unsupported architecture, is refused with the right reason.
#[test]
fn others_are_refused_by_name() {
    let dir = TestDir::new();
    let program = dir.compile("program", "a.c", "int main(void) { return 0; }", &[]);
    assert!(matches!(read(&program), Err(CoreError::NotACore(_))));
    let mut bytes = std::fs::read(&program).unwrap();
    // e_type, e_machine
    bytes[16..20].copy_from_slice(&[4, 0, 22, 0]);
    let s390 = dir.path("s390");
    std::fs::write(&s390, &bytes).unwrap();
    let error = read(&s390).unwrap_err();
    assert_eq!(error.to_string(), "unsupported architecture s390; supported: x86-64, i386, aarch64");
    bytes[18] = 62;
    std::fs::write(&s390, &bytes).unwrap();
    assert_eq!(read(&s390), Err(CoreError::NoThreads));
    bytes[4] = 1;
    std::fs::write(&s390, &bytes).unwrap();
    assert_eq!(read(&s390), Err(CoreError::X32));
    assert_eq!(read(&dir.path("nothing")), Err(CoreError::File(Missing::NotFound)));
    assert_eq!(read(dir.path(".").as_path()), Err(CoreError::File(Missing::NotRegular)));
}

/// Check that registers and stack bytes suffice: three frames of a file at a chosen address, and the reason at the end
/// of the bytes.
#[test]
fn bare_registers_are_unwound() {
    let dir = TestDir::new();
    let path = dir.compile(
        "program",
        "a.s",
        crate::test_support::THREE_FRAMES,
        &["-nostdlib", "-static-pie", "-Wl,--build-id=sha1"],
    );
    let svma = crate::test_support::symbols(&path);
    let bias = 0x7f12_3456_7000;
    let mut regs = Regs::new(Arch::X86_64);
    let at = |name: &str, value| (register_by_name(Arch::X86_64, name).unwrap(), value);
    for (register, value) in [at("rip", svma["middle"].0 + 4 + bias), at("rsp", 0x7ffd_1000), at("rbp", 0)] {
        regs.set(register, value);
    }
    let words = [1, 2, 3, svma["after_middle"].0 + bias];
    let stack: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    let files = FileModules::new();
    let unwinding = fpprof_unwind::Options { fallback: Fallback::None, ..fpprof_unwind::Options::default() };
    let options = CoreOptions { resolver: &files, executable: None, root: None, unwinding };
    let file = LoadedFile { path: path.clone(), bias };
    let bare = Bare { regs, stack_start: 0x7ffd_1000, stack, files: vec![file] };
    let unwound = unwind_bare(&bare, &options).unwrap();
    let [thread] = &unwound.threads[..] else { panic!("{unwound:?}") };
    assert_eq!(thread.status, "complete");
    let frames: Vec<(Option<&str>, Option<u64>)> =
        thread.frames.iter().map(|frame| (frame.symbol.as_deref(), frame.svma)).collect();
    let expected = [(Some("middle"), svma["middle"].0 + 4), (Some("_start"), svma["after_middle"].0)];
    assert_eq!(frames, expected.map(|(name, svma)| (name, Some(svma))));
    let cut = Bare { stack: bare.stack[..24].to_vec(), ..bare.clone() };
    let cut = unwind_bare(&cut, &options).unwrap();
    assert_eq!((cut.threads[0].reason.as_str(), cut.threads[0].frames.len()), ("chunk_end", 1));
    let arm = Bare { regs: Regs::new(Arch::Aarch64), ..bare };
    assert_eq!(unwind_bare(&arm, &options), Err((path, CoreError::Machine(62))));
}

/// Check that registers can be found by their names in debuggers.
#[test]
fn registers_have_names() {
    assert_eq!(register_by_name(Arch::X86_64, "rip"), Some(16));
    assert_eq!(register_by_name(Arch::X86_64, "rsp"), Some(7));
    assert_eq!(register_by_name(Arch::X86_64, "r15"), Some(15));
    assert_eq!(register_by_name(Arch::I386, "eip"), Some(8));
    assert_eq!(register_by_name(Arch::I386, "ebp"), Some(5));
    assert_eq!(register_by_name(Arch::Aarch64, "x30"), Some(30));
    assert_eq!(register_by_name(Arch::Aarch64, "pc"), Some(32));
    assert_eq!(register_by_name(Arch::X86_64, "x30"), None);
}
