//! Real ELF files and recordings for tests.

use crate::address_space::MappedFile;
use crate::modules::{FileModules, Resolver};
use fpprof_recording::model::{
    Arch, CaptureMode, Collector, CpuCounters, End, EndReason, Event, FileIdentity, Host, Measure, Meta, Mmap, OwnCost,
    Sample, Sampling, SidebandLoss, Target, Uncounted, UserRegs,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Three frames whose rows are known: `leaf` at its first instruction has the return address at sp, `middle` has 24
/// bytes of its own below its return address, `_start` has no caller according to its row. `data` looks like code that
/// follows no call.
pub(crate) const THREE_FRAMES: &str = "
        .text
        .globl _start
        .type _start, @function
_start: .cfi_startproc
        .cfi_undefined rip
        call middle
after_middle: nop
        .cfi_endproc
        .size _start, . - _start
        .type middle, @function
middle: .cfi_startproc
        sub $24, %rsp
        .cfi_def_cfa_offset 32
        call leaf
after_leaf: add $24, %rsp
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size middle, . - middle
        .type leaf, @function
leaf:   .cfi_startproc
        nop
        ret
        .cfi_endproc
        .size leaf, . - leaf
        .type data, @function
data:   .fill 32, 1, 0x90
after_nops: nop
        .size data, . - data
        .section .note.GNU-stack,\"\",@progbits
";

/// `PROT_READ | PROT_EXEC`.
pub(crate) const READ_EXEC: u32 = 5;

/// A directory for files built by the system's compiler.
pub(crate) struct TestDir {
    dir: TempDir,
}

impl TestDir {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Compiles `source`, written to `source_name` (`.c`, `.cpp` or `.s`), into `name`.
    pub(crate) fn compile(&self, name: &str, source_name: &str, source: &str, args: &[&str]) -> PathBuf {
        let source_path = self.path(source_name);
        std::fs::write(&source_path, source).unwrap();
        let path = self.path(name);
        run(Command::new("gcc").args(["-o".as_ref(), path.as_os_str(), source_path.as_os_str()]).args(args));
        path
    }

    pub(crate) fn run(&self, program: &str, args: &[&str]) -> String {
        run(Command::new(program).args(args).current_dir(self.dir.path()))
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// SVMA and size of the symbols of a file, according to `nm`.
pub(crate) fn symbols(path: &Path) -> BTreeMap<String, (u64, u64)> {
    let text = run(Command::new("nm").arg("-S").arg(path));
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let is_address = |text: &str| matches!(text.len(), 8 | 16);
    let parse = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        [svma, bytes, _, name] if is_address(svma) => Some((name.to_string(), (number(svma), number(bytes)))),
        [svma, _, name] if is_address(svma) => Some((name.to_string(), (number(svma), 0))),
        _ => None,
    };
    text.lines().filter_map(parse).collect()
}

/// The identity that a collector would record for a file.
pub(crate) fn identity(path: &Path, with_build_id: bool) -> FileIdentity {
    let opened = FileModules::new().open(path).unwrap();
    let stat = opened.stat;
    let build_id = crate::modules::ElfFile::new(opened).ok().and_then(|elf| elf.image().build_id);
    FileIdentity {
        dev_major: stat.dev_major,
        dev_minor: stat.dev_minor,
        inode: stat.inode,
        inode_generation: 0,
        build_id: build_id.filter(|_| with_build_id),
    }
}

pub(crate) fn mapped(path: &Path, identity: FileIdentity) -> MappedFile {
    MappedFile { path: path.to_str().unwrap().into(), identity, first_mapped_ns: 0 }
}

/// Metadata of a recording of this kernel that starts now, with the wall clock as its clock.
pub(crate) fn meta(mode: CaptureMode) -> Meta {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let start_unix_ns = u64::try_from(now.as_nanos()).unwrap();
    Meta {
        tool_version: "test".to_string(),
        start_ns: 1_000,
        start_unix_ns: start_unix_ns + 1_000,
        host: Host {
            arch: "x86_64".to_string(),
            kernel: "6.18.0".to_string(),
            cpu_model: "test".to_string(),
            cpus_online: 2,
            memory_bytes: 1 << 30,
            ..Host::default()
        },
        collector: Collector::Ebpf,
        events: vec![Event {
            name: "cpu-clock".to_string(),
            sampling: Sampling::FrequencyHz(999),
            measure: Measure::Samples,
        }],
        mode,
        kernel_stacks: true,
        scrubbed: false,
        target: Target::System,
        not_counted: Vec::new(),
        aggregated_ns: None,
    }
}

pub(crate) fn executable(pid: u32, start: u64, len: u64, file_offset: u64, path: &Path, id: FileIdentity) -> Mmap {
    Mmap {
        time_ns: 1_000,
        pid,
        tid: pid,
        start,
        len,
        file_offset,
        prot: READ_EXEC,
        flags: 2,
        path: path.to_str().unwrap().into(),
        identity: id,
        synthesized: true,
    }
}

/// The end of a recording with these counters.
pub(crate) fn end(cpus: Vec<CpuCounters>) -> End {
    End {
        time_ns: 1_000_001_000,
        reason: EndReason::Exited(0),
        cpus,
        sideband_lost: SidebandLoss::default(),
        own_cost: OwnCost::default(),
        uncounted: Uncounted::default(),
        notes: Vec::new(),
    }
}

/// A sample at `ip` with a stack of these words.
pub(crate) fn dwarf_sample(pid: u32, n: u64, ip: u64, sp: u64, words: &[u64]) -> Sample {
    let mut values = [0; 17];
    values[7] = sp;
    values[16] = ip;
    Sample {
        time_ns: 2_000 + n,
        pid,
        tid: pid,
        cpu_fired: n + 1,
        user_regs: Some(UserRegs::new(Arch::X86_64, fpprof_recording::model::Abi::Bits64, &values)),
        stack: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        ..Sample::default()
    }
}
