//! Samples of a program that reports its own callers.

use fpprof_external::{ModuleFile, ModuleRef, Request};
use fpprof_unwind::Chunk;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The program's output.
pub(crate) struct Capture {
    _directory: TempDir,
    pub(crate) regs: [u64; 17],
    pub(crate) stack: Vec<u8>,
    /// Return addresses, leaf first.
    pub(crate) callers: Vec<u64>,
    /// The mapped files and the vDSO.
    pub(crate) modules: Vec<Mapped>,
}

/// A module as it was mapped.
#[derive(Clone)]
pub(crate) struct Mapped {
    pub(crate) path: Option<PathBuf>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) bias: u64,
}

impl Capture {
    /// Builds the program with these flags and runs it until it stops in the given case.
    pub(crate) fn new(flags: &[&str], case: &str, depth: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/external/program.c");
        let built = Command::new("gcc").args(["-O2", "-o"]).arg(&program).arg(source).args(flags).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let mut run = Command::new(&program);
        let ran = run.arg(directory.path()).arg(case).arg(depth.to_string()).status().unwrap();
        assert!(ran.success(), "{ran}");

        let read = |name| fs::read(directory.path().join(name)).unwrap();
        let regs = words(&read("regs")).try_into().unwrap();
        let callers = words(&read("truth")).into_iter().rev().collect();
        let maps = String::from_utf8(read("maps")).unwrap();
        let vdso = read("vdso");
        let modules = modules(&maps, &vdso);
        Self { stack: read("stack"), _directory: directory, regs, callers, modules }
    }

    /// The modules as a request needs them.
    pub(crate) fn refs(&self) -> Vec<ModuleRef<'_>> {
        self.modules.iter().map(Mapped::as_ref).collect()
    }

    /// A request for the whole sample.
    pub(crate) fn request<'a>(&'a self, modules: &'a [ModuleRef<'a>], modules_id: u64) -> Request<'a> {
        Request {
            modules,
            modules_id,
            regs: &self.regs,
            stack: Chunk {
                start: self.regs[7],
                bytes: &self.stack,
                stack_end: Some(self.regs[7] + self.stack.len() as u64),
                holes: &[],
            },
            interrupted: None,
            max_depth: 1024,
        }
    }

    /// The program itself.
    pub(crate) fn program(&self) -> &Mapped {
        let is_program = |module: &&Mapped| module.path.as_ref().is_some_and(|path| path.ends_with("program"));
        self.modules.iter().find(is_program).unwrap()
    }
}

impl Mapped {
    pub(crate) fn as_ref(&self) -> ModuleRef<'_> {
        let file = self.path.as_deref().map_or(ModuleFile::Bytes(&self.bytes), ModuleFile::Path);
        ModuleRef { file, start: self.start, end: self.end, bias: self.bias }
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

/// One module for all mappings of a file. The first mapping is that of the file's start; it gives the bias, unless the
/// program is position-dependent, whose bias is 0.
fn modules(maps: &str, vdso: &[u8]) -> Vec<Mapped> {
    let mut by_path: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [range, _, _, _, _, path] = fields[..] else { continue };
        let (start, end) = range.split_once('-').unwrap();
        let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
        if path.starts_with('/') || path == "[vdso]" {
            let span = by_path.entry(path).or_insert((start, end));
            *span = (span.0.min(start), span.1.max(end));
        }
    }
    let module = |(path, (start, end)): (&str, (u64, u64))| {
        let is_file = path.starts_with('/');
        let bytes = if is_file { fs::read(path).unwrap() } else { vdso.to_vec() };
        // `e_type` is at offset 16; 2 is `ET_EXEC` (gABI, ELF header).
        let bias = if bytes[16] == 2 { 0 } else { start };
        Mapped { path: is_file.then(|| path.into()), bytes, start, end, bias }
    };
    by_path.into_iter().map(module).collect()
}
