//! Prints the stack of a thread of a running process: `cargo run --example process -- TID` (x86-64).

#![expect(clippy::print_stdout, reason = "the stack is this program's output")]

use fpprof_unwind::{Arch, Mapping, Module, ModuleId, ReadFault, ReadWith, Regs, Space, Stack, Unwinder};
use nix::{sys::ptrace, sys::wait::waitpid, unistd::Pid};
use object::{Object as _, ObjectSegment as _};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tid = Pid::from_raw(std::env::args().nth(1).ok_or("usage: process TID")?.parse()?);
    ptrace::attach(tid)?;
    waitpid(tid, None)?;

    let (mut modules, mut mappings) = (Vec::new(), Vec::new());
    for line in fs::read_to_string(format!("/proc/{tid}/maps"))?.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [range, rights, offset, _, _, path @ ..] = fields.as_slice() else { continue };
        let (start, end) = range.split_once('-').ok_or("no range")?;
        let (start, end) = (u64::from_str_radix(start, 16)?, u64::from_str_radix(end, 16)?);
        let (offset, executable) = (u64::from_str_radix(offset, 16)?, rights.contains('x'));
        let mut mapping = Mapping { start, end, executable, module: None, bias: 0 };
        if let (true, Ok(bytes)) = (executable, fs::read(path.concat())) {
            let file = object::File::parse(bytes.as_slice())?;
            let segment = file.segments().find(|one| (one.file_range().0..).contains(&offset) && one.address() > 0);
            let segment = segment.ok_or("no segment")?;
            mapping.bias = start.wrapping_sub(segment.address() + (offset - segment.file_range().0));
            mapping.module = Some(ModuleId(u32::try_from(modules.len())?));
            modules.push(Module::from_object(&file)?);
        }
        mappings.push(mapping);
    }

    let now = ptrace::getregs(tid)?;
    let regs = Regs::new(Arch::X86_64).with_ip(now.rip).with_sp(now.rsp).with_fp(now.rbp);
    let mem = File::open(format!("/proc/{tid}/mem"))?;
    let memory = ReadWith(|avma, buf: &mut [u8]| mem.read_exact_at(buf, avma).map_err(|_| ReadFault::OtherStack));
    let mut stack = Stack::default();
    Unwinder::default().unwind(&modules, &Space::new(0, mappings), &regs, &memory, &mut stack);
    for frame in &stack {
        println!("{:#x} by {:?}", frame.address, frame.source);
    }
    println!("{}", stack.stop);
    Ok(())
}
