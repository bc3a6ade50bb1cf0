//! Values for the tests of this directory.

use fpprof_recording::model::{
    Abi, Arch, BuildId, CaptureMode, CfiEnd, CfiFrame, Cgroup, ChunkHole, Collector, Comm, CpuCounters, End, EndReason,
    Event, Exit, FileIdentity, Fork, FoundBy, FpEnd, FpFrame, Gap, Host, Interrupted, LossCause, Measure, Meta, Mmap,
    ModuleBytes, OwnCost, Sample, Sampling, Sideband, SidebandLoss, StackEnd, StackEndSource, Target, Uncounted,
    UserRegs,
};
use proptest::prelude::*;

pub(crate) fn meta() -> Meta {
    Meta {
        tool_version: "0.1.0".into(),
        start_ns: 1_000,
        start_unix_ns: 1_700_000_000_000_000_000,
        host: Host {
            arch: "x86_64".into(),
            kernel: "6.1".into(),
            cpu_model: "a CPU".into(),
            cpus_online: 2,
            memory_bytes: 1 << 30,
            ..Host::default()
        },
        collector: Collector::Ebpf,
        events: vec![Event {
            name: "cpu-clock".into(),
            sampling: Sampling::FrequencyHz(999),
            measure: Measure::Samples,
        }],
        mode: CaptureMode::Both { stack_bytes: 65_536, every: 1 },
        kernel_stacks: true,
        scrubbed: false,
        target: Target::Command { argv: vec!["true".into()], pid: 7 },
        not_counted: Vec::new(),
        aggregated_ns: None,
    }
}

/// The same on aarch64, whose return addresses are signed.
pub(crate) fn aarch64_meta() -> Meta {
    let mut meta = meta();
    meta.host.arch = Arch::Aarch64.name().into();
    meta.host.return_address_mask = (1 << 48) - 1;
    meta
}

/// The same sample on aarch64: with twice the registers, and signed return addresses on its stack.
pub(crate) fn on_aarch64(mut sample: Sample) -> Sample {
    let Some(old) = sample.user_regs else { return sample };
    let mut regs = UserRegs::new(Arch::Aarch64, old.abi, &[old.own(), old.own()].concat());
    let arch = regs.arch;
    for (number, value) in [(arch.ip(), old.ip()), (arch.sp(), old.sp()), (arch.fp(), old.fp())] {
        regs.values[number] = value;
    }
    sample.user_regs = Some(regs);
    let may_be_signed = sample.stack_holes.is_empty();
    for word in sample.stack.chunks_exact_mut(8).filter(|_| may_be_signed) {
        let value = u64::from_le_bytes(word.try_into().unwrap());
        if value >> 16 == 0x5555_0000 {
            word.copy_from_slice(&(value | 0x0035 << 48).to_le_bytes());
        }
    }
    sample
}

pub(crate) fn end() -> End {
    End {
        time_ns: 9_000,
        reason: EndReason::Exited(0),
        cpus: vec![CpuCounters {
            cpu: 0,
            fired: 9,
            recorded: 4,
            lost: [(LossCause::RingFull, 2), (LossCause::Throttled, 1)].into(),
            skipped: 1,
            dropped: 1,
            ..CpuCounters::default()
        }],
        sideband_lost: SidebandLoss::default(),
        own_cost: OwnCost::default(),
        uncounted: Uncounted::default(),
        notes: Vec::new(),
    }
}

/// Addresses that are often close together, and sometimes anywhere.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0u64..64).prop_map(|n| 0x7ffd_0000_1000 + n * 8),
        4 => (0u64..16).prop_map(|n| 0x5555_0000_0000 + n),
        2 => Just(0),
        1 => any::<u64>(),
    ]
}

fn registers() -> impl Strategy<Value = UserRegs> {
    let abi = prop_oneof![4 => Just(Abi::Bits64), 1 => Just(Abi::Bits32)];
    (abi, prop::collection::vec(word(), 17)).prop_map(|(abi, values)| UserRegs::new(Arch::X86_64, abi, &values))
}

fn fp_end() -> impl Strategy<Value = FpEnd> {
    prop::sample::select(vec![
        FpEnd::Unknown,
        FpEnd::Zero,
        FpEnd::Unreadable,
        FpEnd::NotAscending,
        FpEnd::ZeroReturnAddress,
        FpEnd::MaxDepth,
    ])
}

/// A chunk of few or many words, sometimes ending within a word, with holes, whose bytes are zero.
fn chunk() -> impl Strategy<Value = (Vec<u8>, Vec<ChunkHole>)> {
    let len = prop_oneof![4 => Just(0usize), 8 => 1..40usize, 1 => 500..600usize];
    let words = len.prop_flat_map(|len| prop::collection::vec(word(), len));
    let holes = prop::collection::vec((0u32..5_000, 0u32..300), 0..3);
    (words, 0..8usize, holes).prop_map(|(words, cut, mut holes)| {
        let mut stack: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        stack.truncate(stack.len().saturating_sub(cut));
        holes.sort_unstable();
        for &(offset, len) in &holes {
            let start = stack.len().min(offset as usize);
            let end = stack.len().min((offset + len) as usize);
            stack.get_mut(start..end).unwrap_or_default().fill(0);
        }
        (stack, holes.into_iter().map(|(offset, len)| ChunkHole { offset, len }).collect())
    })
}

fn stack_end() -> impl Strategy<Value = StackEnd> {
    let source = prop::sample::select(vec![
        StackEndSource::StartStack,
        StackEndSource::ThreadBase,
        StackEndSource::Mapping,
        StackEndSource::AltStack,
    ]);
    (word(), source).prop_map(|(address, source)| StackEnd { address, source })
}

fn interrupted() -> impl Strategy<Value = Interrupted> {
    (word(), chunk(), any::<u8>(), prop::option::of(stack_end())).prop_map(|(sp, chunk, bytes_below_sp, stack_end)| {
        let (stack, stack_holes) = chunk;
        Interrupted { sp, stack, bytes_below_sp, stack_holes, stack_end }
    })
}

/// The chain that follows from registers and stack in part, followed by arbitrary entries.
fn with_chain(mut sample: Sample, n_true: usize, rest: Vec<(u64, u64)>) -> Sample {
    if let Some(regs) = sample.user_regs {
        let mut fp = regs.fp();
        sample.user_fp.push(FpFrame { address: regs.ip(), frame_address: 0 });
        let start = sample.stack_start();
        let word = |address: u64| {
            let offset = usize::try_from(address.wrapping_sub(start)).ok()?;
            Some(u64::from_le_bytes(*sample.stack.get(offset..)?.first_chunk()?))
        };
        for _ in 0..n_true {
            let (Some(next), Some(address)) = (word(fp), word(fp.wrapping_add(8))) else { break };
            sample.user_fp.push(FpFrame { address, frame_address: fp });
            fp = next;
        }
    }
    sample.user_fp.extend(rest.into_iter().map(|(address, frame_address)| FpFrame { address, frame_address }));
    sample
}

/// A walk by call frame information: CFAs ascend except after some interrupted frames, and that of the last frame may be
/// 0. There are few frames of few sizes, so that the same ones occur at several depths.
fn walk() -> impl Strategy<Value = (Vec<CfiFrame>, Option<CfiEnd>)> {
    let sizes =
        prop_oneof![8 => (1u64..4).prop_map(|words| words * 8), 1 => (1..u64::MAX / 128).prop_map(|words| words * 8)];
    let found_by = prop::sample::select(vec![FoundBy::Row, FoundBy::FramePointer, FoundBy::LastWord]);
    let frames = prop::collection::vec((word(), sizes, prop::bool::weighted(0.1), any::<bool>(), found_by), 0..6);
    let end = prop::sample::select(CfiEnd::ALL.to_vec());
    (1..u64::MAX / 2, frames, any::<bool>(), end).prop_map(|(mut cfa, frames, is_whole, end)| {
        let mut frames: Vec<CfiFrame> = frames
            .into_iter()
            .map(|(address, size, is_instruction, descends, found_by)| {
                let below = cfa.checked_sub(size).filter(|&below| is_instruction && descends && below > 0);
                cfa = below.unwrap_or_else(|| cfa.wrapping_add(size));
                CfiFrame { address, cfa, is_instruction, found_by }
            })
            .collect();
        if let Some(last) = frames.last_mut().filter(|_| is_whole) {
            last.cfa = 0;
        }
        if let Some(leaf) = frames.first_mut() {
            (leaf.is_instruction, leaf.found_by) = (true, FoundBy::Row);
        }
        (frames, Some(end))
    })
}

/// An arbitrary sample of a few threads and CPUs.
pub(crate) fn arbitrary_sample() -> impl Strategy<Value = Sample> {
    (sample_without_walk(), prop::option::of(walk())).prop_map(|(sample, walk)| {
        let (cfi_frames, cfi_end) = walk.unwrap_or_default();
        Sample { cfi_frames, cfi_end, ..sample }
    })
}

fn sample_without_walk() -> impl Strategy<Value = Sample> {
    let head = (any::<u64>(), 0u32..3, 1u32..3, 1u32..4, any::<u16>(), any::<u64>(), any::<(bool, bool, bool, bool)>());
    let counters = (any::<u64>(), 0u64..10, prop::option::weighted(0.2, any::<u32>()));
    let stacks = (
        prop::option::weighted(0.8, registers()),
        chunk(),
        prop_oneof![Just(0u8), Just(128), any::<u8>()],
        prop::option::of(stack_end()),
        prop::option::weighted(0.2, interrupted()),
        prop::collection::vec(word(), 0..6),
    );
    let chain = (fp_end(), 0..6usize, prop::collection::vec((word(), prop_oneof![Just(0), word()]), 0..4));
    (head, counters, stacks, chain).prop_map(|(head, counters, stacks, chain)| {
        let (time_ns, cpu, pid, tid, event, weight, (in_kernel, in_exec, entering, withheld)) = head;
        let (user_regs, (stack, stack_holes), bytes_below_sp, stack_end, interrupted, kernel) = stacks;
        let (fp_end, n_true, rest) = chain;
        let sample = Sample {
            time_ns,
            cpu,
            pid,
            tid,
            event,
            weight,
            cpu_fired: counters.0,
            cpu_lost: counters.1,
            in_kernel,
            in_exec: in_exec && user_regs.is_none(),
            entering_kernel: entering && user_regs.is_none() && stack_holes.is_empty(),
            withheld: withheld && user_regs.is_some() && stack_holes.is_empty(),
            user_regs,
            user_fp: Vec::new(),
            fp_end,
            kernel,
            bytes_below_sp: if stack.is_empty() || user_regs.is_none() { 0 } else { bytes_below_sp },
            stack,
            stack_holes,
            stack_end,
            interrupted,
            cfi_frames: Vec::new(),
            cfi_end: None,
            shed_from: counters.2,
        };
        with_chain(sample, n_true, rest)
    })
}

fn identity() -> impl Strategy<Value = FileIdentity> {
    (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(
        |(dev_major, dev_minor, inode, inode_generation, build_id)| FileIdentity {
            dev_major,
            dev_minor,
            inode,
            inode_generation,
            build_id: BuildId::new(&build_id),
        },
    )
}

/// An arbitrary event.
pub(crate) fn arbitrary_sideband() -> impl Strategy<Value = Sideband> {
    let ids = || (any::<u64>(), any::<u32>(), any::<u32>());
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let ranges = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>());
    prop_oneof![
        (ids(), ranges, bytes(), identity(), any::<bool>()).prop_map(|(ids, ranges, path, identity, synthesized)| {
            let (time_ns, pid, tid) = ids;
            let (start, len, file_offset, prot, flags) = ranges;
            Sideband::Mmap(Mmap {
                time_ns,
                pid,
                tid,
                start,
                len,
                file_offset,
                prot,
                flags,
                path,
                identity,
                synthesized,
            })
        }),
        (ids(), bytes(), any::<bool>(), any::<u64>()).prop_map(|((time_ns, pid, tid), comm, exec, start_ticks)| {
            Sideband::Comm(Comm { time_ns, pid, tid, comm, exec, start_ticks })
        }),
        (ids(), any::<u32>(), any::<u32>()).prop_map(|((time_ns, pid, tid), parent_pid, parent_tid)| {
            Sideband::Fork(Fork { time_ns, pid, tid, parent_pid, parent_tid })
        }),
        ids().prop_map(|(time_ns, pid, tid)| Sideband::Exit(Exit { time_ns, pid, tid })),
        (ids(), bytes(), bytes()).prop_map(|((time_ns, pid, _), path, environment)| {
            Sideband::Cgroup(Cgroup { time_ns, pid, path, environment })
        }),
        (bytes(), identity(), bytes()).prop_map(|(path, identity, bytes)| Sideband::Module(ModuleBytes {
            path,
            identity,
            bytes
        })),
    ]
}

/// A sample determined by its number, with some of everything.
pub(crate) fn fixed_sample(number: u64) -> Sample {
    let sp = 0x7ffd_0000_1000 - number % 5 * 64;
    let mut values = [0x5555_0000_0000 + number % 7; 17];
    values[6] = sp + 16;
    values[7] = sp;
    let words = (0..32 + number % 5 * 8).map(|at| match at {
        2 => sp + 80,
        3 | 11 => 0x5555_0000_1234,
        _ => number * at % 13,
    });
    Sample {
        time_ns: 1_000_000 * number,
        cpu: u32::from(number.is_multiple_of(3)),
        pid: 7,
        tid: 7 + u32::from(number.is_multiple_of(2)),
        event: 0,
        weight: 1_001_001,
        cpu_fired: number,
        cpu_lost: number / 10,
        in_kernel: number.is_multiple_of(4),
        in_exec: false,
        entering_kernel: false,
        withheld: false,
        user_regs: Some(UserRegs::new(Arch::X86_64, Abi::Bits64, &values)),
        user_fp: vec![
            FpFrame { address: values[16], frame_address: 0 },
            FpFrame { address: 0x5555_0000_1234, frame_address: sp + 16 },
        ],
        fp_end: FpEnd::Zero,
        kernel: if number.is_multiple_of(4) { vec![0xffff_ffff_8100_0000 + number % 3, 5] } else { Vec::new() },
        stack: words.flat_map(u64::to_le_bytes).collect(),
        bytes_below_sp: 0,
        stack_holes: Vec::new(),
        stack_end: Some(StackEnd { address: 0x7ffd_0000_1100, source: StackEndSource::StartStack }),
        interrupted: None,
        cfi_frames: Vec::new(),
        cfi_end: None,
        shed_from: None,
    }
}

/// A gap determined by its number.
pub(crate) fn fixed_gap(number: u64) -> Gap {
    let causes = [LossCause::RingFull, LossCause::Throttled, LossCause::ExecWindow];
    let start_ns = 1_000_000 * number;
    let (cpu, end_ns) = (u32::from(number.is_multiple_of(2)), start_ns + number * 1000);
    let cause = causes.into_iter().cycle().nth(usize::try_from(number % 3).unwrap()).unwrap();
    Gap { cpu, event: 0, start_ns, end_ns, lost: number + 1, cause }
}

/// An event determined by its number.
pub(crate) fn fixed_event(number: u64) -> Sideband {
    Sideband::Exit(Exit { time_ns: number, pid: 7, tid: 8 })
}
