//! A handmade summary and folded stacks, modelled on a recording of nbdkit and fio.

use fpprof_analysis::accuracy::{Agreement, Difference, DisputedFunction, Relation};
use fpprof_analysis::folded::{Folded, FoldedStack, FrameLabel, Origin};
use fpprof_analysis::overhead::Overhead;
use fpprof_analysis::spread::Spread;
use fpprof_analysis::summary::{
    ChunkNeeds, ChunkPoint, Cost, Environment, HotFunction, ProcessSummary, Quality, Summary, Volume,
};
use fpprof_unwind::{BrokenReason, Root, StopReason, TruncatedReason};
use std::collections::BTreeMap;

/// Counts by name.
pub(crate) fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|&(name, n)| (name.to_owned(), n)).collect()
}

fn quality(complete: u64, truncated: &[(&str, u64)], broken: &[(&str, u64)], frames: u64, suspects: u64) -> Quality {
    let (truncated, broken) = (counts(truncated), counts(broken));
    Quality {
        samples: complete + truncated.values().sum::<u64>() + broken.values().sum::<u64>(),
        complete,
        truncated,
        broken,
        frames,
        roots: counts(&[("_start", complete)]),
        leaf_skip_suspects: suspects,
        fp_in_jit: 0,
        fp_fallback: 0,
        no_stack: BTreeMap::new(),
        frames_per_stack: Some(Spread { min: 1, p50: 23, p90: 28, p99: 31, max: 44 }),
        needed_bytes: Some(Spread { min: 16, p50: 536, p90: 38_896, p99: 39_144, max: 39_376 })
            .filter(|_| suspects == 0),
    }
}

fn process(pid: u32, comm: &str, fp: Quality, dwarf: Quality) -> ProcessSummary {
    let samples = dwarf.samples;
    let strategies = [("fp".to_owned(), fp), ("dwarf".to_owned(), dwarf)].into();
    ProcessSummary { pid, comm: comm.to_owned(), processes: None, samples, strategies }
}

fn environment() -> Environment {
    Environment {
        kernel: "6.18.0".to_owned(),
        cpu_model: "AMD EPYC 9004".to_owned(),
        cpus: 2,
        distribution: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        event: "cpu-clock".to_owned(),
        rate: "999 Hz".to_owned(),
        mode: "both,65536".to_owned(),
        target: "nbdkit -U - null 1G --run 'export uri; fio nbd.fio'".to_owned(),
        collector: "ebpf".to_owned(),
        aggregated_s: None,
    }
}

fn processes() -> Vec<ProcessSummary> {
    vec![
        process(
            1201,
            "fio",
            quality(9, &[("no_module", 80)], &[("ra_not_exec", 6_200), ("misaligned", 11)], 20_000, 804),
            quality(6_279, &[("chunk_end", 20)], &[("ra_not_exec", 1)], 190_000, 0),
        ),
        process(
            1190,
            "nbdkit",
            quality(5, &[("no_module", 42)], &[("ra_not_exec", 5_953)], 32_000, 400),
            quality(6_000, &[], &[], 94_000, 0),
        ),
        process(1188, "sh", quality(0, &[], &[("ra_not_exec", 1)], 1, 0), quality(1, &[], &[], 100, 0)),
    ]
}

fn point(chunk_bytes: u64, complete: u64, mean_copied_bytes: f64) -> ChunkPoint {
    let bytes_per_sample = mean_copied_bytes + 330.0;
    ChunkPoint {
        chunk_bytes,
        complete,
        mean_copied_bytes,
        bytes_per_sample,
        bytes_per_minute: bytes_per_sample * 8_000.0 * 60.0 / 8.02,
    }
}

/// The agreements of `fp` and `dwarf@8192` with `dwarf`.
fn agreements() -> Vec<Agreement> {
    let function = |name: &str, module: &str, relation, samples| DisputedFunction {
        name: name.to_owned(),
        module: module.to_owned(),
        samples,
        relations: BTreeMap::from([(relation, samples)]),
    };
    let fp = Agreement {
        reference: "dwarf".to_owned(),
        other: "fp".to_owned(),
        samples: 12_301,
        same: 14,
        both_complete: 14,
        both_complete_same: 10,
        relations: BTreeMap::from([
            (Relation::WrongFrame, 9_000),
            (Relation::LeafCallerMissing, 1_204),
            (Relation::Prefix, 2_083),
            (Relation::Same, 14),
        ]),
        frames: Difference { n_same: 40_000, n_missing: 1_500, n_not_reached: 230_000, n_wrong: 11_000, n_beyond: 0 },
        functions: vec![
            function("__send", "libc.so.6", Relation::WrongFrame, 9_000),
            function("[no symbol]", "fio", Relation::Prefix, 2_083),
            function("memcpy\u{1b}[31m", "libc.so.6", Relation::LeafCallerMissing, 1_204),
        ],
        modules: vec![
            function("", "libc.so.6", Relation::WrongFrame, 10_204),
            function("", "fio", Relation::Prefix, 2_083),
        ],
    };
    let same = Agreement {
        other: "dwarf@65536".to_owned(),
        same: 12_301,
        both_complete: 12_280,
        both_complete_same: 12_280,
        relations: BTreeMap::from([(Relation::Same, 12_301)]),
        frames: Difference { n_same: 271_500, ..Difference::default() },
        functions: Vec::new(),
        modules: Vec::new(),
        ..fp.clone()
    };
    vec![fp, same]
}

fn overhead() -> Overhead {
    Overhead {
        interrupts: 12_355,
        interrupt_ns: Some(13_000),
        interrupts_s: Some(0.16),
        programs_s: Some(0.02),
        collector_s: 0.26,
        all_s: 0.44,
        machine_s: 16.04,
        target_s: Some(12.36),
        percent_of_machine: 2.74,
        percent_of_target: Some(3.56),
        on_target_percent: Some(1.46),
        written_bytes: Some(4_772_800),
        to_disk_bytes: Some(4_780_032),
    }
}

/// The results for chunks of other sizes.
fn chunk_sizes() -> Vec<ChunkNeeds> {
    vec![
        ChunkNeeds {
            comm: String::new(),
            samples: 8_000,
            smallest_bytes: BTreeMap::from([
                (50, Some(3_208)),
                (90, Some(38_912)),
                (95, Some(39_040)),
                (99, Some(39_376)),
                (100, None),
            ]),
            curve: vec![point(512, 3_900, 500.0), point(4_096, 4_010, 3_700.0), point(65_536, 7_990, 20_875.5)],
            depth_bytes: Some(Spread { min: 64, p50: 3_300, p90: 39_100, p99: 39_500, max: 131_072 }),
            without_depth: 3,
        },
        ChunkNeeds {
            comm: "fio".to_owned(),
            samples: 4_100,
            smallest_bytes: BTreeMap::from([
                (50, Some(38_848)),
                (90, Some(38_912)),
                (95, Some(39_040)),
                (99, None),
                (100, None),
            ]),
            curve: vec![point(512, 0, 512.0), point(4_096, 110, 4_090.0), point(65_536, 4_050, 37_722.0)],
            depth_bytes: None,
            without_depth: 4_100,
        },
    ]
}

fn hot(name: &str, module: &str, self_samples: u64, total_samples: u64) -> HotFunction {
    HotFunction {
        name: name.to_owned(),
        module: module.to_owned(),
        self_samples,
        total_samples,
        self_blocked_ns: None,
        total_blocked_ns: None,
    }
}

fn volume() -> Volume {
    Volume {
        bytes_per_sample: 388.0,
        ring_bytes_per_sample: Some(33_480.0),
        stack_bytes: 405_933_000,
        bytes_per_minute: 35_706_643.0,
    }
}

/// A summary in which every part has content.
pub(crate) fn summary() -> Summary {
    let fp = quality(
        14,
        &[("max_depth", 2), ("no_module", 120)],
        &[("ra_not_exec", 9_853), ("misaligned", 1_180), ("cfa_not_increasing", 900), ("loop", 1), ("bad_cfi", 231)],
        52_900,
        1_204,
    );
    let dwarf = quality(12_280, &[("chunk_end", 20)], &[("ra_not_exec", 1)], 284_100, 0);
    Summary {
        fired: 12_355,
        recorded: 12_301,
        lost: counts(&[("ring_full", 44), ("throttled", 0)]),
        skipped: 10,
        dropped: 0,
        unaccounted: 0,
        lost_gaps: 3,
        shed: 4,
        ticks_missing: 0,
        withheld: 0,
        sideband_lost: 0,
        file_bytes: 4_772_788,
        duration_s: 8.02,
        ended: "command exited with status 0".to_owned(),
        ended_in_order: true,
        damage: Vec::new(),
        environment: environment(),
        volume: volume(),
        cost: Some(Cost {
            collector_cpu_s: 0.21,
            collector_cpu_percent: 2.6,
            start_cpu_s: 0.31,
            stop_cpu_s: 0.05,
            parser_cpu_s: 0.02,
            max_rss_bytes: 44_900_000,
            map_bytes: Some(71_400_000),
            bpf_ns_per_tick: Some(1_623.0),
            overhead: overhead(),
        }),
        processes: processes(),
        strategies: [("fp".to_owned(), fp), ("dwarf".to_owned(), dwarf)].into(),
        chunk_sizes: chunk_sizes(),
        agreements: agreements(),
        kernel_walks: None,
        no_call_before: BTreeMap::new(),
        waits: None,
        blocked_ns: None,
        filtered: None,
        hottest_strategy: "dwarf".to_owned(),
        hottest: vec![
            hot("copy_user_generic", "[kernel]", 2_310, 2_310),
            hot("nbd_internal_command_common", "libnbd.so.0.0.0", 402, 1_930),
            hot("fio_nbd_queue(thread_data*, io_u*, std::vector<unsigned char>)", "fio", 44, 3_018),
            hot("[libc.so.6+0x9f000]", "libc.so.6", 1, 12_301),
        ],
        warnings: vec![
            "/usr/sbin/nbdkit was replaced during the recording: its names are those of build id 01ab".to_owned(),
        ],
    }
}

/// A frame.
pub(crate) fn frame(name: &str, module: &str, origin: Origin) -> FrameLabel {
    FrameLabel { name: name.to_owned(), module: module.to_owned(), origin }
}

/// Builds folded stacks from (comm, frames root first, stop, samples).
pub(crate) fn folded(stacks: &[(&str, &[FrameLabel], StopReason, u64)]) -> Folded {
    let mut folded = Folded::default();
    for (index, (comm, frames, stop, samples)) in stacks.iter().enumerate() {
        let frames = frames.iter().map(|label| {
            let known = folded.frames.iter().position(|other| other == label);
            let index = known.unwrap_or_else(|| {
                folded.frames.push(label.clone());
                folded.frames.len() - 1
            });
            u32::try_from(index).unwrap()
        });
        let frames = frames.collect();
        let pid = 100 + u32::try_from(index).unwrap();
        folded.stacks.push(FoldedStack {
            comm: (*comm).to_owned(),
            pid,
            frames,
            stop: *stop,
            samples: *samples,
            weight: 0,
        });
    }
    folded
}

fn cfi(name: &str) -> FrameLabel {
    frame(name, "fio", Origin::Cfi)
}

fn leaf(name: &str) -> FrameLabel {
    frame(name, "fio", Origin::Leaf)
}

fn kernel(name: &str) -> FrameLabel {
    frame(name, "[kernel]", Origin::Kernel)
}

/// `send` with its kernel frames.
fn send() -> Vec<FrameLabel> {
    vec![cfi("send"), kernel("entry_SYSCALL_64"), kernel("do_syscall_64"), kernel("unix_stream_sendmsg")]
}

/// Stacks with every origin and every class of end.
pub(crate) fn dwarf() -> Folded {
    let from_start = |tail: &[FrameLabel]| [&[cfi("_start"), cfi("__libc_start_main"), cfi("main")], tail].concat();
    let on_thread = |tail: &[FrameLabel]| [&[cfi("clone3"), cfi("start_thread")], tail].concat();
    let io = |tail: &[FrameLabel]| {
        from_start(&[&[cfi("fio_backend"), cfi("run_threads"), cfi("thread_main")], tail].concat())
    };
    let reply = |tail: &[FrameLabel]| {
        on_thread(&[&[cfi("connection_worker"), cfi("protocol_recv_request_send_reply")], tail].concat())
    };
    let inlined = || frame("td_io_queue", "fio", Origin::Inlined);
    let guess = frame("plt_stub", "libnbd.so.0", Origin::Heuristic);
    let fallback = frame("jit_code", "", Origin::FramePointer);
    let complete = StopReason::Complete(Root::Start);
    let thread = StopReason::Complete(Root::ThreadStart);
    let cut = StopReason::Truncated(TruncatedReason::ChunkEnd);
    let wrong = StopReason::Broken(BrokenReason::RaNotExec);
    let worker = StopReason::Complete(Root::KernelThread);
    folded(&[
        ("fio", &io(&[leaf("do_io")]), complete, 900),
        ("fio", &io(&[cfi("do_io"), inlined(), leaf("nbd_queue")]), complete, 2100),
        ("fio", &io(&[cfi("do_io"), inlined(), cfi("nbd_queue"), guess, leaf("nbd_aio_pwrite")]), complete, 700),
        ("fio", &on_thread(&[cfi("io_workqueue"), leaf("memcpy")]), thread, 300),
        ("fio", &on_thread(&[vec![cfi("io_workqueue")], send()].concat()), thread, 1200),
        ("fio", &[cfi("thread_main"), cfi("do_io"), leaf("fill_pattern")], cut, 260),
        ("fio", &[fallback, leaf("[unknown 0x7f0012345678]")], wrong, 90),
        ("nbdkit", &reply(&[vec![cfi("send_simple_reply")], send()].concat()), thread, 2900),
        ("nbdkit", &reply(&[leaf("skip_over_write_buffer")]), thread, 1500),
        ("nbdkit", &reply(&[leaf("null_pread")]), thread, 800),
        ("nbdkit", &from_start(&[cfi("start_serving"), leaf("poll")]), complete, 50),
        ("kworker/0:1", &[kernel("ret_from_fork"), kernel("kthread"), kernel("worker_thread")], worker, 120),
    ])
}

/// The same workload, built without frame pointers, as a frame-pointer profiler sees it.
pub(crate) fn frame_pointers() -> Folded {
    let fp = |name| frame(name, "fio", Origin::FramePointer);
    let wrong = StopReason::Broken(BrokenReason::RaNotExec);
    folded(&[
        ("fio", &[fp("[unknown 0x7ffd00]"), leaf("nbd_queue")], wrong, 4200),
        ("fio", &[leaf("memcpy")], StopReason::Broken(BrokenReason::Misaligned), 1100),
        ("nbdkit", &[leaf("send"), kernel("entry_SYSCALL_64"), kernel("do_syscall_64")], wrong, 5100),
        ("nbdkit", &[fp("[nbdkit+0x9f0]"), leaf("poll")], StopReason::Truncated(TruncatedReason::NoModule), 400),
        ("nbdkit", &[fp("_start"), fp("main"), leaf("poll")], StopReason::Complete(Root::ZeroFp), 40),
    ])
}
