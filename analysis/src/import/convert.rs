//! Converts perf's records to ours.

use fpprof_recording::model::{
    Abi, Arch, BuildId, Comm, Exit, FileIdentity, Fork, FpFrame, KernelSymbol, Mmap, NO_PROCESS, Sample, UserRegs,
};
use linux_perf_event_reader::{
    CommOrExecRecord, CommonData, CpuMode, EventRecord, ForkOrExitRecord, Mmap2FileId, Mmap2Record, MmapRecord, Regs,
    SampleRecord,
};
use std::collections::BTreeMap;

/// perf's number of the code segment register.
const PERF_REG_CS: u64 = 10;
/// Code segment of 32-bit programs (`__USER32_CS`, `arch/x86/include/asm/segment.h`).
const USER32_CS: u64 = 0x23;

/// The lowest of the values in a callchain that are not addresses but mark what follows (`PERF_CONTEXT_MAX`).
const CONTEXT_MAX: u64 = u64::MAX - 4094;
/// Kernel addresses follow (`PERF_CONTEXT_KERNEL`).
const CONTEXT_KERNEL: u64 = u64::MAX - 127;
/// User addresses follow (`PERF_CONTEXT_USER`).
const CONTEXT_USER: u64 = u64::MAX - 511;

/// perf's name of the kernel (`DSO__NAME_KALLSYMS`).
const KERNEL: &[u8] = b"[kernel.kallsyms]";

/// Build IDs by path, which perf collects at its end.
pub(super) type BuildIds = BTreeMap<Vec<u8>, BuildId>;

/// A process or thread ID; `None` for the kernel (−1).
pub(super) fn id(value: i32) -> Option<u32> {
    u32::try_from(value).ok()
}

/// The process or thread of a sample: an exiting thread has no number any more.
fn sampled(value: i32) -> Option<u32> {
    if value == -1 { Some(NO_PROCESS) } else { id(value) }
}

/// A file mapping with device, inode, or build ID; `None` for the kernel's own.
pub(super) fn mmap2(record: &Mmap2Record<'_>, common: &CommonData, build_ids: &BuildIds) -> Option<Mmap> {
    let path = record.path.as_slice().into_owned();
    let mut identity = match &record.file_id {
        Mmap2FileId::InodeAndVersion(file) => FileIdentity {
            dev_major: file.major,
            dev_minor: file.minor,
            inode: file.inode,
            inode_generation: file.inode_generation,
            build_id: None,
        },
        Mmap2FileId::BuildId(id) => FileIdentity { build_id: BuildId::new(id), ..FileIdentity::default() },
    };
    identity.build_id = identity.build_id.or_else(|| build_ids.get(&path).copied());
    Some(Mmap {
        time_ns: common.timestamp.unwrap_or(0),
        pid: id(record.pid)?,
        tid: id(record.tid)?,
        start: record.address,
        len: record.length,
        file_offset: record.page_offset,
        prot: record.protection,
        flags: record.flags,
        path,
        identity,
        synthesized: common.timestamp.unwrap_or(0) == 0,
    })
}

/// The symbol whose address is in the mapping of the kernel.
///
/// # Sources
/// `perf_event__synthesize_kernel_mmap` in `tools/perf/util/synthetic-events.c`: the symbol's name follows the path,
/// and its address is in the field for the file offset.
pub(super) fn kernel_symbol(record: &EventRecord<'_>, build_ids: &BuildIds) -> Option<KernelSymbol> {
    let (pid, path, address, build_id) = match record {
        EventRecord::Mmap(map) => (map.pid, &map.path, map.page_offset, None),
        EventRecord::Mmap2(Mmap2Record { pid, path, page_offset, file_id: Mmap2FileId::BuildId(id), .. }) => {
            (*pid, path, *page_offset, BuildId::new(id))
        }
        EventRecord::Mmap2(map) => (map.pid, &map.path, map.page_offset, None),
        _ => return None,
    };
    let path = path.as_slice();
    let name = path.strip_prefix(KERNEL).filter(|name| pid == -1 && !name.is_empty())?;
    let build_id = build_id.or_else(|| build_ids.get(KERNEL).copied());
    Some(KernelSymbol { name: String::from_utf8_lossy(name).into_owned(), address, build_id })
}

/// A mapping from an old perf, without an inode.
pub(super) fn mmap(record: &MmapRecord<'_>, common: &CommonData, build_ids: &BuildIds) -> Option<Mmap> {
    /// `PROT_READ | PROT_EXEC` and `PROT_READ` (`asm-generic/mman-common.h`).
    const PROTECTION: [u32; 2] = [1, 5];
    let path = record.path.as_slice().into_owned();
    Some(Mmap {
        time_ns: common.timestamp.unwrap_or(0),
        pid: id(record.pid)?,
        tid: id(record.tid)?,
        start: record.address,
        len: record.length,
        file_offset: record.page_offset,
        prot: if record.is_executable { PROTECTION[1] } else { PROTECTION[0] },
        flags: 0,
        identity: FileIdentity { build_id: build_ids.get(&path).copied(), ..FileIdentity::default() },
        path,
        synthesized: common.timestamp.unwrap_or(0) == 0,
    })
}

/// The name of the idle thread of each CPU, all with the number 0. perf writes no event for it.
///
/// # Sources
/// `perf_session__register_idle_thread` in `tools/perf/util/session.c`.
pub(super) fn idle() -> Comm {
    Comm { time_ns: 0, pid: 0, tid: 0, comm: b"swapper".to_vec(), exec: false, start_ticks: 0 }
}

/// The name of a thread.
pub(super) fn comm(record: &CommOrExecRecord<'_>, common: &CommonData) -> Option<Comm> {
    Some(Comm {
        time_ns: common.timestamp.unwrap_or(0),
        pid: id(record.pid)?,
        tid: id(record.tid)?,
        comm: record.name.as_slice().into_owned(),
        exec: record.is_execve,
        start_ticks: 0,
    })
}

/// A new process or thread.
pub(super) fn fork(record: &ForkOrExitRecord) -> Option<Fork> {
    Some(Fork {
        time_ns: record.timestamp,
        pid: id(record.pid)?,
        tid: id(record.tid)?,
        parent_pid: id(record.ppid)?,
        parent_tid: id(record.ptid)?,
    })
}

/// The end of a process or thread.
pub(super) fn exit(record: &ForkOrExitRecord) -> Option<Exit> {
    Some(Exit { time_ns: record.timestamp, pid: id(record.pid)?, tid: id(record.tid)? })
}

/// Converts a sample of an event, given with its fixed period, into `out`, reusing its memory; `None` if it has no
/// process or time. If the stack is read separately, `out.stack` is left unspecified for the caller to fill in.
pub(super) fn sample(
    record: &SampleRecord<'_>,
    (event, fixed_period): (usize, u64),
    arch: Arch,
    is_stack_apart: bool,
    out: &mut Sample,
) -> Option<()> {
    let Sample { mut stack, mut kernel, mut user_fp, .. } = std::mem::take(out);
    if !is_stack_apart {
        copy_stack(record, &mut stack);
    }
    kernel.clear();
    user_fp.clear();
    *out = Sample {
        time_ns: record.timestamp?,
        cpu: record.cpu.unwrap_or(0),
        pid: sampled(record.pid?)?,
        tid: sampled(record.tid?)?,
        event: u16::try_from(event).ok()?,
        weight: record.period.unwrap_or(fixed_period),
        in_kernel: record.cpu_mode == CpuMode::Kernel,
        user_regs: record.user_regs.as_ref().and_then(|regs| user_regs(regs, arch)),
        stack,
        kernel,
        user_fp,
        ..Sample::default()
    };
    chains(record, out);
    Some(())
}

/// `None` unless all registers were recorded: for arm64 frame pointers perf records only the link register.
fn user_regs(regs: &Regs<'_>, arch: Arch) -> Option<UserRegs> {
    let values: Option<Vec<u64>> = arch.perf_registers().iter().map(|&number| regs.get(number.into())).collect();
    let is_32 = arch == Arch::X86_64 && regs.get(PERF_REG_CS) == Some(USER32_CS);
    Some(UserRegs::new(arch, if is_32 { Abi::Bits32 } else { Abi::Bits64 }, &values?))
}

/// The bytes the kernel actually copied (`dyn_size`), not the space reserved for them.
fn copy_stack(record: &SampleRecord<'_>, stack: &mut Vec<u8>) {
    stack.clear();
    let Some((data, copied)) = &record.user_stack else { return };
    let copied = usize::try_from(*copied).unwrap_or(usize::MAX).min(data.len());
    if let Some(bytes) = data.get(0..copied) {
        stack.extend_from_slice(&bytes.as_slice());
    }
}

fn chains(record: &SampleRecord<'_>, out: &mut Sample) {
    let Some(chain) = record.callchain else { return };
    let mut in_user = !out.in_kernel;
    for address in (0..chain.len()).filter_map(|index| chain.get(index)) {
        match address {
            CONTEXT_KERNEL => in_user = false,
            CONTEXT_USER => in_user = true,
            CONTEXT_MAX.. => {}
            _ if in_user => out.user_fp.push(FpFrame { address, frame_address: 0 }),
            _ => out.kernel.push(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use byteorder::LittleEndian;
    use linux_perf_event_reader::{RawData, RawDataU64};

    /// The registers of a sample with those in `mask`, each with the value ten times its number.
    fn sampled(mask: u64, arch: Arch) -> Option<UserRegs> {
        let words = (0..64_u64).filter(|number| mask >> number & 1 != 0);
        let bytes: Vec<u8> = words.flat_map(|number| (number * 10).to_le_bytes()).collect();
        user_regs(&Regs::new(mask, RawDataU64::from_raw_data::<LittleEndian>(RawData::Single(&bytes))), arch)
    }

    /// Check that registers of arm64 have DWARF numbers, and that the link register alone, as perf records it with
    /// frame pointers, does not count as all of them.
    #[test]
    fn registers_of_arm64() {
        let regs = sampled((1 << 33) - 1, Arch::Aarch64).unwrap();
        assert_eq!((regs.fp(), regs.sp(), regs.ip(), regs.own().len()), (290, 310, 320, 33));
        assert_eq!(regs.abi, Abi::Bits64);
        assert_eq!(sampled(1 << 30, Arch::Aarch64), None);
    }

    /// Check that registers of x86 are in DWARF order, and that 32-bit code is recognised by the code segment.
    #[test]
    fn registers_of_x86() {
        let regs = sampled(0x00ff_0fff, Arch::X86_64).unwrap();
        assert_eq!((regs.fp(), regs.sp(), regs.ip(), regs.own()[1]), (60, 70, 80, 30));
        assert_eq!(regs.abi, Abi::Bits64);
    }
}
