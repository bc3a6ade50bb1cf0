//! The kernel's walk by call frame information, compiled for the host and run on the copied stacks of recordings: it
//! must give the unwinder's stack or a miss.

use crate::runtimes;
use crate::support::{compile, record, until_enough};
use fpprof_analysis::modules::{FileModules, ModuleTable, RuleFiles};
use fpprof_analysis::replay::{Collect, PlacedModule, Recorded, Seen};
use fpprof_analysis::strategy::Strategy;
use fpprof_collector::{JIT_RULE, walk_copied_stack};
use fpprof_recording::Recording;
use fpprof_recording::model::{Abi, CfiFrame, FoundBy};
use fpprof_unwind::{Fallback, Frame, FrameSource, Options, StopReason};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The results of walks.
#[derive(Debug, Default)]
struct Walked {
    same: usize,
    missed: BTreeMap<&'static str, usize>,
    different: Vec<String>,
}

/// Walks the stacks of a recording, and compares them with the unwinder's.
struct Walks<'a> {
    modules: &'a ModuleTable<'a>,
    rule_files: RuleFiles,
    /// Rules by (file, address in the file).
    rules: HashMap<(u32, u64), Option<u64>>,
    walked: Walked,
}

impl Walks<'_> {
    fn new<'a>(modules: &'a ModuleTable<'a>) -> Walks<'a> {
        let (rule_files, rules) = (RuleFiles::default(), HashMap::new());
        Walks { modules, rule_files, rules, walked: Walked::default() }
    }

    /// The rule of an address of a module, as user space would load it into the maps.
    fn rule(&mut self, module: &PlacedModule, address: u64) -> Option<u64> {
        let svma = address.wrapping_sub(module.bias);
        let key = (module.file.0, svma);
        if let Some(known) = self.rules.get(&key) {
            return *known;
        }
        let found = self.find_rule(module, svma);
        self.rules.insert(key, found);
        found
    }

    fn find_rule(&mut self, module: &PlacedModule, svma: u64) -> Option<u64> {
        let segments = &self.modules.image(module.file).ok()?.segments;
        let segment = segments.iter().find(|segment| svma.wrapping_sub(segment.svma) < segment.file_bytes)?;
        let offset = svma.wrapping_sub(segment.svma).wrapping_add(segment.file_offset);
        let path = &self.modules.file(module.file)?.path;
        let file = File::open(Path::new(std::ffi::OsStr::from_bytes(path))).ok()?;
        let rules = self.rule_files.rules(file, std::slice::from_ref(&(offset..offset + 1)))?;
        rules.into_iter().find(|(range, _)| range.contains(&offset)).map(|(_, rule)| rule)
    }
}

impl Collect for Walks<'_> {
    fn add(&mut self, seen: &Seen<'_>) {
        let (Some(stack), Some(regs)) = (seen.stack(0), &seen.sample.user_regs) else { return };
        if stack.frames.is_empty() || regs.abi != Abi::Bits64 {
            return;
        }
        let mut sample = seen.sample.clone();
        let modules = self.modules;
        let rule = |address| {
            if seen.space.space.find(address).is_some_and(|mapping| mapping.executable && mapping.module.is_none()) {
                return Some(JIT_RULE);
            }
            let module =
                seen.space.modules(modules).iter().find(|module| (module.start..module.end).contains(&address))?;
            self.rule(module, address)
        };
        walk_copied_stack(&mut sample, rule, |address| seen.space.code_before(modules, address));
        let end = sample.cfi_end.expect("each walk ends");
        if !end.is_complete() {
            *self.walked.missed.entry(end.name()).or_default() += 1;
            return;
        }
        let root = match stack.stop {
            // Some root names begin with underscores there.
            StopReason::Complete(root) => Some(root.name().trim_start_matches('_')),
            _ => None,
        };
        let expected = stack.frames.iter().map(|Frame { address, cfa, source, flags }| {
            let found_by = match source {
                FrameSource::Heuristic => FoundBy::LastWord,
                _ if flags.fp_in_jit => FoundBy::FramePointer,
                _ => FoundBy::Row,
            };
            CfiFrame { address: *address, cfa: *cfa, is_instruction: flags.is_instruction, found_by }
        });
        let (expected, frames): (Vec<_>, _) = (expected.collect(), sample.cfi_frames);
        if root == Some(end.name()) && frames == expected {
            self.walked.same += 1;
        } else {
            self.walked.different.push(format!("{end:?}, {frames:x?} and not {root:?}, {expected:x?}"));
        }
    }

    fn merge(&mut self, other: Self) {
        self.walked.add(other.walked);
    }
}

impl Walked {
    fn add(&mut self, other: Self) {
        self.same += other.same;
        other.missed.into_iter().for_each(|(end, n)| *self.missed.entry(end).or_default() += n);
        self.different.extend(other.different);
    }
}

/// Walks all stacks of a recording.
fn walk(file: &Path) -> Walked {
    let mut recording = Recording::open(File::open(file).expect("a recording")).expect("a recording");
    let recorded = Recorded::read(&mut recording, None).expect("a whole recording");
    let resolver = FileModules::new();
    let modules = recorded.modules(&resolver);
    let options = Options { fallback: Fallback::Jit, ..Options::default() };
    let replay = recorded.replay(&modules, &[Strategy::Dwarf], options);
    replay.run(&mut recording, NonZeroUsize::MIN, || Walks::new(&modules)).expect("samples").collected.walked
}

fn built(dir: &Path, name: &str, compiler: &str, flags: &[&str]) -> String {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/programs").join(name);
    let output = dir.join(name.replace('.', "_"));
    compile(compiler, flags, &output, &program);
    output.into_os_string().into_string().expect("a path in UTF-8")
}

/// Check that the kernel's C code gives the unwinder's stacks or misses, on the copied stacks of nbdkit and fio, the
/// C++ compiler, rustc, Python, C++ exceptions and programs with known stacks; and that it gives many of each.
#[test]
fn walks_on_the_host_are_those_of_the_unwinder() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| -> String {
        let path: PathBuf = dir.path().join(name);
        std::fs::write(&path, text).expect("a temporary file is written");
        path.into_os_string().into_string().expect("a path in UTF-8")
    };
    let includes: String =
        ["map", "regex", "iostream", "algorithm"].map(|name| format!("#include <{name}>\n")).concat();
    let cpp = path("large.cpp", &(includes + "int main() { std::map<int, std::regex> all; return all.size(); }"));
    let rust = path(
        "large.rs",
        "fn main() { let all: std::collections::BTreeMap<String, Vec<u64>> = (0..9).map(|n| (n.to_string(), vec![n])).collect(); println!(\"{all:?}\"); }",
    );
    let python = path(
        "busy.py",
        "import json, re\nfor n in range(3000):\n    json.loads(json.dumps([list(range(99))])); re.sub('a+', 'b', 'aaa' * 99)\n",
    );
    let object = dir.path().join("object").into_os_string().into_string().expect("a path in UTF-8");
    let nbdkit_fio = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/nbdkit-fio.sh");
    let exception = built(dir.path(), "exception.cpp", "g++", &["-O2"]);
    let flags = ["-O2", "-fomit-frame-pointer", "-pthread"];
    let mut commands = vec![
        vec!["g++", "-O2", "-c", &cpp, "-o", &object],
        vec!["rustc", "-O", &rust, "-o", &object],
        vec!["python3", &python],
    ];
    let programs = ["deep.c", "coroutine.c", "longjmp.c", "tail_call.c", "threads.c", "altstack.c", "vdso.c"];
    let programs = programs.map(|name| built(dir.path(), name, "gcc", &flags));
    commands.extend(
        [nbdkit_fio, &exception].into_iter().chain(programs.iter().map(String::as_str)).map(|name| vec![name, "1"]),
    );
    for command in commands {
        check(dir.path(), &command);
    }
}

/// Check the same on stacks of node, of Java with and without frame pointers, and of programs with musl, whose start
/// code has no rows.
#[test]
fn walks_without_rows_are_those_of_the_unwinder() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("busy.js").into_os_string().into_string().expect("a path in UTF-8");
    std::fs::write(&script, runtimes::PROGRAM).expect("a temporary file is written");
    let classes = runtimes::compile_java(dir.path());
    let flags = ["-O2", "-fomit-frame-pointer", "-pthread"];
    let musl = built(dir.path(), "deep.c", "musl-gcc", &[&flags[..], &["-static"]].concat());
    let altstack = built(dir.path(), "altstack.c", "musl-gcc", &flags);
    check(dir.path(), &["node", &script, "1000"]);
    for option in ["-XX:+PreserveFramePointer", "-XX:-PreserveFramePointer"] {
        check(dir.path(), &["java", option, "-XX:TieredStopAtLevel=1", "-cp", &classes, "Busy", "1000"]);
    }
    check(dir.path(), &[&musl, "1"]);
    check(dir.path(), &[&altstack, "1"]);
}

/// Walks the stacks of a command until there are enough.
fn check(dir: &Path, command: &[&str]) {
    let file = dir.join("stacks.fpprof");
    // The vDSO is not a file from which rules can be read here.
    let is_missed = command.first().is_some_and(|name| name.ends_with("vdso_c"));
    let mut walked = Walked::default();
    until_enough("stacks", |_| {
        record(&file, &["-F", "1999", "--call-graph", "dwarf,1M"], command);
        walked.add(walk(&file));
        let n = if is_missed { walked.missed.values().sum() } else { walked.same };
        (n >= 100).then_some(())
    });
    assert_eq!(walked.different.len(), 0, "{command:?}: {:?}", walked.different.first());
}
