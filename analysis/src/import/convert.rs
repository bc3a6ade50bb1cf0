//! perf's records as ours.

use fpprof_recording::model::{Abi, BuildId, Comm, Exit, FileIdentity, Fork, FpFrame, Mmap, Sample, UserRegs};
use linux_perf_event_reader::{
    CommOrExecRecord, CommonData, CpuMode, ForkOrExitRecord, Mmap2FileId, Mmap2Record, MmapRecord, Regs, SampleRecord,
};
use std::collections::BTreeMap;

/// perf's number of each register, in DWARF order.
///
/// # Sources
/// `enum perf_event_x86_regs` (`arch/x86/include/uapi/asm/perf_regs.h`); psABI figure 3.36.
const PERF_REGS: [u64; 17] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8];
/// perf's number of the code segment register.
const PERF_REG_CS: u64 = 10;
/// Code segment of 32-bit programs (`__USER32_CS`, `arch/x86/include/asm/segment.h`).
const USER32_CS: u64 = 0x23;

/// First of the values that are no addresses but say whose addresses follow (`PERF_CONTEXT_MAX`).
const CONTEXT_MAX: u64 = u64::MAX - 4094;
/// Kernel addresses follow (`PERF_CONTEXT_KERNEL`).
const CONTEXT_KERNEL: u64 = u64::MAX - 127;
/// User addresses follow (`PERF_CONTEXT_USER`).
const CONTEXT_USER: u64 = u64::MAX - 511;

/// Build ids by path, as perf collected them at its end.
pub(super) type BuildIds = BTreeMap<Vec<u8>, BuildId>;

/// A process or thread id, unless it stands for the kernel (−1).
pub(super) fn id(value: i32) -> Option<u32> {
    u32::try_from(value).ok()
}

/// A file mapping with device, inode, or build id; `None` for the kernel's own.
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

/// A mapping of older perfs, which know no inode.
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

/// A name.
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

/// The end of one.
pub(super) fn exit(record: &ForkOrExitRecord) -> Option<Exit> {
    Some(Exit { time_ns: record.timestamp, pid: id(record.pid)?, tid: id(record.tid)? })
}

/// A sample in the place of another, whose memory it takes over; `None` if it has no process, time or CPU. A stack that is
/// read apart is left to the caller: `out.stack` is any then.
pub(super) fn sample(record: &SampleRecord<'_>, event: usize, is_stack_apart: bool, out: &mut Sample) -> Option<()> {
    let Sample { mut stack, mut kernel, mut user_fp, .. } = std::mem::take(out);
    if !is_stack_apart {
        copy_stack(record, &mut stack);
    }
    kernel.clear();
    user_fp.clear();
    *out = Sample {
        time_ns: record.timestamp?,
        cpu: record.cpu.unwrap_or(0),
        pid: id(record.pid?)?,
        tid: id(record.tid?)?,
        event: u16::try_from(event).ok()?,
        weight: record.period.unwrap_or(1),
        in_kernel: record.cpu_mode == CpuMode::Kernel,
        user_regs: record.user_regs.as_ref().and_then(user_regs),
        stack,
        kernel,
        user_fp,
        ..Sample::default()
    };
    chains(record, out);
    Some(())
}

fn user_regs(regs: &Regs<'_>) -> Option<UserRegs> {
    let mut values = [0; 17];
    for (value, number) in values.iter_mut().zip(PERF_REGS) {
        *value = regs.get(number)?;
    }
    let abi = if regs.get(PERF_REG_CS) == Some(USER32_CS) { Abi::Bits32 } else { Abi::Bits64 };
    Some(UserRegs { abi, values })
}

/// The bytes the kernel really copied (`dyn_size`), not the room it left for them.
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
