use super::{Analysis, Options, analyse};
use crate::Error;
use crate::accuracy::{Agreement, DisputedFunction, Relation};
use crate::folded::{Folded, Origin};
use crate::modules::FileModules;
use crate::profile::{Grouping, Profile, ProfileSample, Profiles};
use crate::spread::Spread;
use crate::strategy::{Strategy, StrategyError};
use crate::test_support::{THREE_FRAMES, TestDir, dwarf_sample, end, executable, identity, meta, symbols};
use fpprof_recording::model::{
    CaptureMode, Comm, CpuCounters, End, Fork, FpEnd, FpFrame, LossCause, Mmap, NO_PROCESS, Sample, Sideband, StackEnd,
    StackEndSource, Uncounted,
};
use fpprof_recording::{Recording, RecordingWriter};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::num::NonZeroUsize;
use std::path::PathBuf;

mod detail;
mod gone;

/// Start of the stack of every sample.
const SP: u64 = 0x7ffd_0000_1000;

/// The program above, its symbols, and its address.
struct Program {
    _dir: TestDir,
    path: PathBuf,
    svma: BTreeMap<String, u64>,
    text: (u64, u64, u64),
}

impl Program {
    fn new() -> Self {
        Self::linked(&[])
    }

    fn linked(more: &[&str]) -> Self {
        let dir = TestDir::new();
        let args = [&["-nostdlib", "-static", "-Wl,--build-id=sha1"], more].concat();
        let path = dir.compile("program", "a.s", THREE_FRAMES, &args);
        let svma: BTreeMap<String, u64> = symbols(&path).into_iter().map(|(name, (svma, _))| (name, svma)).collect();
        let image = crate::modules::ElfFile::new(crate::modules::Resolver::open(&FileModules::new(), &path).unwrap());
        let image = image.unwrap().image().clone();
        let text = image.segments.iter().find(|segment| segment.executable).unwrap();
        let text = (text.svma & !0xfff, 0x1000, text.file_offset & !0xfff);
        Self { _dir: dir, path, svma, text }
    }

    fn sideband(&self, pid: u32, comm: &str) -> [Sideband; 2] {
        let (start, len, offset) = self.text;
        let mapping = executable(pid, start, len, offset, &self.path, identity(&self.path, true));
        let comm = Comm { time_ns: 1_000, pid, tid: pid, comm: comm.into(), exec: true, start_ticks: 1 };
        [Sideband::Comm(comm), Sideband::Mmap(mapping)]
    }

    /// A sample in `leaf`, called by `middle`, called by `_start`.
    fn sample(&self, pid: u32, n: u64) -> Sample {
        let words = [self.svma["after_leaf"], 1, 2, 3, self.svma["after_middle"], 0];
        let stack_end = Some(StackEnd { address: SP + 48, source: StackEndSource::Mapping });
        Sample { stack_end, ..dwarf_sample(pid, n, self.svma["leaf"], SP, &words) }
    }

    /// The same as a frame-pointer chain: without `middle`, since `leaf` has no frame yet.
    fn chain(&self) -> Vec<FpFrame> {
        let frame = |(name, frame_address): (&str, u64)| FpFrame { address: self.svma[name], frame_address };
        [("leaf", 0), ("after_middle", SP + 24)].map(frame).to_vec()
    }
}

/// The event of a kernel thread that exists when recording starts.
fn kernel_thread(pid: u32) -> Sideband {
    Sideband::Comm(Comm { time_ns: 1, pid, tid: pid, comm: b"kworker".to_vec(), exec: false, start_ticks: 1 })
}

/// A recording of these events and samples; a block is written after every `block` samples.
fn record(mode: CaptureMode, events: &[Sideband], samples: &[Sample], block: usize, end: bool) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), &meta(mode)).unwrap();
    for event in events {
        writer.sideband(event).unwrap();
    }
    for samples in samples.chunks(block) {
        for sample in samples {
            writer.sample(sample, None).unwrap();
        }
        writer.flush().unwrap();
    }
    if end {
        let n = samples.len() as u64;
        let cpu = CpuCounters { cpu: 0, fired: n + 5, recorded: n, skipped: 5, ..CpuCounters::default() };
        writer.finish(&self::end(vec![cpu])).unwrap();
    }
    writer.into_inner()
}

fn run_with(file: &[u8], strategies: &[&str], n_threads: usize) -> Result<Analysis, Error> {
    let mut recording = Recording::open(Cursor::new(file.to_vec()))?;
    let files = FileModules::new();
    let strategies = strategies.iter().map(|name| name.parse().unwrap()).collect();
    let n_threads = NonZeroUsize::new(n_threads).unwrap();
    let profiles = Profiles::OfEach(Grouping::Each);
    analyse(&mut recording, &Options { strategies, n_threads, profiles, ..Options::new(&files) })
}

fn run(file: &[u8], strategies: &[&str]) -> Analysis {
    run_with(file, strategies, 2).unwrap()
}

/// Folded stacks as text: `comm;root;…;leaf stop samples`.
fn text(folded: &Folded) -> Vec<String> {
    let line = |stack: &crate::folded::FoldedStack| {
        let names = stack.frames.iter().map(|&frame| folded.frames[frame as usize].name.clone());
        let frames: Vec<String> = std::iter::once(stack.comm.clone()).chain(names).collect();
        format!("{} {} {}", frames.join(";"), stack.stop.name(), stack.samples)
    };
    folded.stacks.iter().map(line).collect()
}

/// Check the whole pipeline: samples of a real program give its functions by call frame information, root first,
/// complete.
#[test]
fn samples_become_named_stacks() {
    let program = Program::new();
    let samples: Vec<Sample> = (0..10).map(|n| program.sample(1, n)).collect();
    let file = record(CaptureMode::Dwarf { stack_bytes: 4096 }, &program.sideband(1, "prog"), &samples, 4, true);
    let analysis = run(&file, &[]);
    assert_eq!(analysis.default_strategy, "dwarf");
    let folded = &analysis.folded["dwarf"];
    assert_eq!(text(folded), ["prog;_start;middle;leaf _start 10"]);
    let origins: Vec<Origin> = folded.frames.iter().map(|frame| frame.origin).collect();
    assert_eq!(origins, [Origin::Cfi, Origin::Cfi, Origin::Leaf]);
    assert!(folded.frames.iter().all(|frame| frame.module == "program"));

    let summary = &analysis.summary;
    assert_eq!((summary.fired, summary.recorded, summary.skipped, summary.unaccounted), (15, 10, 5, 0));
    assert_eq!(summary.warnings, Vec::<String>::new());
    let quality = &summary.strategies["dwarf"];
    assert_eq!((quality.samples, quality.complete, quality.frames), (10, 10, 30));
    assert_eq!(quality.roots, BTreeMap::from([("_start".to_string(), 10)]));
    let process = &summary.processes[0];
    assert_eq!((process.pid, process.comm.as_str(), process.samples), (1, "prog", 10));
    assert_eq!(&process.strategies["dwarf"], quality);
    let hot: Vec<(&str, u64, u64)> =
        summary.hottest.iter().map(|hot| (hot.name.as_str(), hot.self_samples, hot.total_samples)).collect();
    assert_eq!(hot, [("leaf", 10, 10), ("_start", 0, 10), ("middle", 0, 10)]);
    assert_eq!(summary.volume.stack_bytes, 480);
}

/// Check that what a recording could not count is reported, and is in the summary that gates check.
#[test]
fn uncounted_samples_are_reported() {
    let program = Program::new();
    let mut writer = RecordingWriter::new(Vec::new(), &meta(CaptureMode::Dwarf { stack_bytes: 64 })).unwrap();
    program.sideband(1, "prog").iter().for_each(|event| writer.sideband(event).unwrap());
    writer.sample(&program.sample(1, 0), None).unwrap();
    let cpu = CpuCounters { cpu: 0, fired: 1, recorded: 1, ..CpuCounters::default() };
    let uncounted = Uncounted { ticks: 41, counter_share_percent: Some(73) };
    writer.finish(&End { uncounted, ..end(vec![cpu]) }).unwrap();
    let summary = run(&writer.into_inner(), &["dwarf"]).summary;
    assert_eq!(summary.ticks_missing, 41);
    let warns = |words: &str| summary.warnings.iter().any(|warning| warning.contains(words));
    assert!(warns("about 41 ticks came late") && warns("on for 73 % of the time"), "{:?}", summary.warnings);
}

/// Check that a chain of one address without registers, as perf may record it, is truncated: no return address was
/// wrong.
#[test]
fn chains_of_one_address_are_not_broken() {
    let program = Program::new();
    let chain = program.chain().into_iter().take(1).collect();
    let lone =
        Sample { user_fp: chain, fp_end: FpEnd::Unknown, user_regs: None, stack: vec![], ..program.sample(1, 10) };
    let analysis = run(&record(CaptureMode::Fp, &program.sideband(1, "prog"), &[lone], 1, true), &["fp"]);
    assert_eq!(text(&analysis.folded["fp"]), ["prog;leaf chunk_empty 1"]);
}

/// Check that each strategy over the same samples has its own result: frame pointers skip the caller of a leaf and flag
/// it, a smaller chunk is truncated at its end.
#[test]
fn strategies_differ_over_the_same_samples() {
    let program = Program::new();
    let sample = |n| Sample { user_fp: program.chain(), fp_end: FpEnd::Zero, ..program.sample(1, n) };
    let samples: Vec<Sample> = (0..6).map(sample).collect();
    let file = record(CaptureMode::Both { stack_bytes: 64, every: 1 }, &program.sideband(1, "prog"), &samples, 4, true);
    let analysis = run(&file, &["fp", "dwarf", "dwarf@40", "dwarf@39", "dwarf@1"]);
    assert_eq!(text(&analysis.folded["fp"]), ["prog;_start;leaf _start 6"]);
    assert_eq!(text(&analysis.folded["dwarf"]), ["prog;_start;middle;leaf _start 6"]);
    assert_eq!(text(&analysis.folded["dwarf@40"]), ["prog;_start;middle;leaf _start 6"]);
    assert_eq!(text(&analysis.folded["dwarf@39"]), ["prog;middle;leaf chunk_end 6"]);
    assert_eq!(text(&analysis.folded["dwarf@1"]), ["prog;leaf chunk_end 6"]);
    let summary = &analysis.summary;
    assert_eq!(summary.strategies["fp"].leaf_skip_suspects, 6);
    assert_eq!(summary.strategies["dwarf"].leaf_skip_suspects, 0);
    assert_eq!(summary.strategies["dwarf@39"].truncated, BTreeMap::from([("chunk_end".to_string(), 6)]));
    let relations: Vec<_> = summary
        .agreements
        .iter()
        .filter(|agreement| agreement.reference == "dwarf")
        .map(|agreement| (agreement.other.as_str(), agreement.relations.clone(), agreement.functions.clone()))
        .collect();
    let all = |relation, after: &[&str]| {
        let relations = BTreeMap::from([(relation, 6)]);
        let function = |name: &&str| DisputedFunction {
            name: name.to_string(),
            module: "program".to_string(),
            samples: 6,
            relations: relations.clone(),
        };
        (relations.clone(), after.iter().map(function).collect::<Vec<_>>())
    };
    for (other, found, functions) in &relations {
        let expected = match *other {
            "fp" => all(Relation::LeafCallerMissing, &["leaf"]),
            "dwarf@40" => all(Relation::Same, &[]),
            "dwarf@39" => all(Relation::Prefix, &["middle"]),
            _ => all(Relation::Prefix, &["leaf"]),
        };
        assert_eq!((found, functions), (&expected.0, &expected.1), "{other}");
    }
    assert_eq!((relations.len(), summary.agreements.len()), (4, 10));
    let same = |reference: &str, other: &str| {
        let of = |pair: &&Agreement| pair.reference == reference && pair.other == other;
        let pair = summary.agreements.iter().find(of).unwrap();
        (pair.same, pair.both_complete, pair.both_complete_same)
    };
    assert_eq!(
        (same("dwarf", "dwarf@40"), same("dwarf", "fp"), same("dwarf", "dwarf@1")),
        ((6, 6, 6), (0, 6, 0), (0, 0, 0))
    );
    // The return address of `leaf` is at sp, that of `middle` 32 bytes above it.
    let spread = |value| Some(Spread { min: value, p50: value, p90: value, p99: value, max: value });
    let of = |name: &str| (summary.strategies[name].frames_per_stack, summary.strategies[name].needed_bytes);
    assert_eq!((of("dwarf"), of("fp")), ((spread(3), spread(40)), (spread(2), spread(40))));
    assert_eq!((of("dwarf@39"), of("dwarf@1")), ((spread(2), None), (spread(1), None)));
    for quality in summary.strategies.values() {
        let ends = quality.complete + quality.truncated.values().sum::<u64>() + quality.broken.values().sum::<u64>();
        assert_eq!((quality.samples, ends), (6, 6));
    }
}

/// Check that stacks end by `shed` where the recorder has copied less than asked for, unless a strategy uses less; and that they
/// do not count where the chunk sizes are judged.
#[test]
fn stacks_that_were_cut_short_need_no_larger_chunk() {
    let program = Program::new();
    let cut = |n| {
        let mut sample = Sample { shed_from: Some(64), ..program.sample(1, n) };
        sample.stack.truncate(32);
        sample
    };
    let whole = (6..9).map(|n| program.sample(1, n));
    let samples: Vec<Sample> = (0..6).map(cut).chain(whole).collect();
    let file = record(CaptureMode::Dwarf { stack_bytes: 64 }, &program.sideband(1, "prog"), &samples, 4, true);
    let analysis = run(&file, &["dwarf", "dwarf@32", "dwarf@33"]);
    let truncated = |strategy: &str| analysis.summary.strategies[strategy].truncated.clone();
    let by = |reason: &str, n| (reason.to_owned(), n);
    assert_eq!(truncated("dwarf"), BTreeMap::from([by("shed", 6)]));
    assert_eq!(truncated("dwarf@32"), BTreeMap::from([by("chunk_end", 9)]));
    assert_eq!(truncated("dwarf@33"), BTreeMap::from([by("chunk_end", 3), by("shed", 6)]));
    let (sizes, _) = analysis.chunk_sizes.unwrap();
    assert_eq!((sizes.samples, sizes.to_copy, sizes.smallest_for(1.0)), (3, 9, Some(40)));
}

/// Check that where some stacks only are copied, strategies that need the copy have these samples only, and frame pointers
/// all; and that shares are those of the samples that the strategies have.
#[test]
fn some_stacks_are_copied() {
    let program = Program::new();
    let sample = |n| Sample { user_fp: program.chain(), fp_end: FpEnd::Zero, ..program.sample(1, n) };
    let chain_only = |n| Sample { user_regs: None, stack: Vec::new(), stack_end: None, ..sample(n) };
    let idle = Sample { pid: 99, tid: 99, in_kernel: true, kernel: vec![1 << 63], ..chain_only(8) };
    let idle = Sample { user_fp: Vec::new(), fp_end: FpEnd::Unknown, ..idle };
    let samples: Vec<Sample> =
        (0..8).map(|n| if n % 4 == 0 { sample(n) } else { chain_only(n) }).chain([idle]).collect();
    let [named, mapped] = program.sideband(1, "prog");
    let events = [named, mapped, kernel_thread(99)];
    let file = record(CaptureMode::Both { stack_bytes: 64, every: 4 }, &events, &samples, 3, true);
    let analysis = run(&file, &[]);
    assert_eq!(analysis.default_strategy, "fp");
    let idle = "kworker;[kernel+0x8000000000000000] kernel_thread 1";
    assert_eq!(text(&analysis.folded["fp"]), [idle, "prog;_start;leaf _start 8"]);
    assert_eq!(text(&analysis.folded["dwarf"]), ["prog;_start;middle;leaf _start 2"]);
    let summary = &analysis.summary;
    let of = |name: &str| (summary.strategies[name].samples, summary.strategies[name].complete);
    assert_eq!((of("fp"), of("dwarf"), summary.filtered.is_none()), ((9, 9), (2, 2), true));
    assert_eq!((summary.agreements[0].samples, summary.agreements[0].both_complete), (2, 2));
    let copied = run(&file, &["dwarf"]).summary;
    assert_eq!((copied.filtered.map(|filtered| filtered.samples), copied.hottest[0].self_samples), (Some(2), 2));
}

/// Check that no function is blamed if frame pointers continue where the reference does not.
#[test]
fn going_on_is_nobodys_fault() {
    let program = Program::new();
    let frame = |(name, frame_address): (&str, u64)| FpFrame { address: program.svma[name], frame_address };
    let chain = [("leaf", 0), ("after_leaf", SP - 8), ("after_middle", SP + 24)].map(frame).to_vec();
    let sample = Sample { user_fp: chain, fp_end: FpEnd::Zero, ..program.sample(1, 0) };
    let file =
        record(CaptureMode::Both { stack_bytes: 64, every: 1 }, &program.sideband(1, "prog"), &[sample], 1, true);
    let agreement = &run(&file, &["dwarf@39", "fp"]).summary.agreements[0];
    assert_eq!(agreement.relations, BTreeMap::from([(Relation::Longer, 1)]));
    assert_eq!((&agreement.functions, &agreement.modules), (&Vec::new(), &Vec::new()));
}

/// Check that `fp` walks the copied bytes of a recording without chains, and that a `fp` recording is judged without
/// registers.
#[test]
fn frame_pointers_are_walked_or_judged_as_the_recording_has_them() {
    let program = Program::new();
    let mut sample = program.sample(1, 0);
    // A frame at SP + 24: a frame pointer of zero, then the return address into `_start`.
    sample.user_regs.as_mut().unwrap().values[6] = SP + 24;
    sample.stack[24..32].fill(0);
    let dwarf = CaptureMode::Dwarf { stack_bytes: 64 };
    let file = record(dwarf, &program.sideband(1, "prog"), &[sample], 1, true);
    assert_eq!(text(&run(&file, &["fp"]).folded["fp"]), ["prog;_start;leaf _start 1"]);

    let chain = Sample { pid: 1, tid: 1, time_ns: 2_000, user_fp: program.chain(), ..Sample::default() };
    let idle = Sample { pid: 99, tid: 99, time_ns: 2_000, in_kernel: true, kernel: vec![1 << 63], ..Sample::default() };
    let [named, mapped] = program.sideband(1, "prog");
    let file = record(CaptureMode::Fp, &[named, mapped, kernel_thread(99)], &[chain, idle], 2, true);
    let analysis = run(&file, &[]);
    assert_eq!(analysis.default_strategy, "fp");
    let expected = ["kworker;[kernel+0x8000000000000000] kernel_thread 1", "prog;_start;leaf _start 1"];
    assert_eq!(text(&analysis.folded["fp"]), expected);
    assert!(analysis.summary.warnings.iter().any(|warning| warning.contains("another kernel")));
}

/// Check that a profile has every sample with its thread and time, in order of time, and its stack leaf first with the
/// program's addresses.
#[test]
fn profiles_keep_threads_and_times() {
    let program = Program::new();
    let cut = |n| Sample { tid: 9, stack: vec![], ..program.sample(1, n) };
    let samples = [program.sample(1, 0), cut(1), program.sample(1, 2)];
    let file = record(CaptureMode::Dwarf { stack_bytes: 64 }, &program.sideband(1, "prog"), &samples, 2, true);
    let profiles = run(&file, &["dwarf@8", "dwarf"]).profiles;
    let strategies: Vec<&str> = profiles.iter().map(|profile| &*profile.strategy).collect();
    assert_eq!(strategies, ["dwarf@8", "dwarf"]);
    let samples = |profile: &Profile| profile.samples.iter().map(|sample| sample.samples).sum::<u64>();
    assert_eq!(samples(&profiles[0]), samples(&profiles[1]));
    let profile = &profiles[1];
    assert_eq!((profile.strategy.as_str(), profile.events.len(), profile.modules.len()), ("dwarf", 1, 1));
    let tid = |sample: &ProfileSample| profile.threads[sample.thread as usize].tid;
    let stack = |sample: &ProfileSample| &profile.stacks[sample.stack as usize];
    let seen =
        profile.samples.iter().map(|sample| (tid(sample), stack(sample).stop.name(), stack(sample).frames.len()));
    assert_eq!(seen.collect::<Vec<_>>(), [(1, "_start", 3), (9, "chunk_empty", 1), (1, "_start", 3)]);
    assert!(profile.samples.is_sorted_by(|a, b| a.time_ns < b.time_ns));
    let frames = stack(&profile.samples[0]).frames.iter().map(|&frame| &profile.frames[frame as usize]);
    let frames: Vec<_> = frames.map(|frame| (frame.functions[0].name.as_str(), frame.address, frame.module)).collect();
    let [leaf, middle, start] = ["leaf", "after_leaf", "after_middle"].map(|name| program.svma[name]);
    assert_eq!(frames, [("leaf", leaf, Some(0)), ("middle", middle - 1, Some(0)), ("_start", start - 1, Some(0))]);
}

/// Check that one, two and sixteen threads, and blocks of any size, give identical models.
#[test]
fn the_result_does_not_depend_on_threads_or_blocks() {
    let program = Program::new();
    let events: Vec<Sideband> = (1..20).flat_map(|pid| program.sideband(pid, &format!("p{}", pid % 7))).collect();
    let sample = |n: u64| {
        let mut sample = program.sample(u32::try_from(1 + n * 7 % 23).unwrap(), n);
        sample.user_fp = program.chain();
        sample.kernel = (0..n % 3).map(|depth| 0xffff_ffff_8100_0000 + n % 5 * 64 + depth).collect();
        sample.stack.truncate(usize::try_from(n % 7 * 8).unwrap());
        sample
    };
    let samples: Vec<Sample> = (0..2_000).map(sample).collect();
    let mode = CaptureMode::Both { stack_bytes: 64, every: 1 };
    let strategies = ["fp", "dwarf", "dwarf@16"];
    let file = record(mode, &events, &samples, 50, true);
    let mut expected = run_with(&file, &strategies, 1).unwrap();
    assert!(expected.folded["dwarf"].stacks.len() > 100);
    for n_threads in [2, 16] {
        assert_eq!(run_with(&file, &strategies, n_threads).unwrap(), expected);
    }
    let other_blocks = run_with(&record(mode, &events, &samples, 333, true), &strategies, 3).unwrap();
    // Only the size of the file and its time of recording may differ.
    for (profile, other) in expected.profiles.iter_mut().zip(&other_blocks.profiles) {
        profile.recorded = other.recorded.clone();
    }
    expected.summary.file_bytes = other_blocks.summary.file_bytes;
    expected.summary.volume = other_blocks.summary.volume.clone();
    assert_eq!(other_blocks, expected);
}

/// Check that the curve of completeness by chunk size, from one recording, agrees with trying each size.
#[test]
fn the_curve_of_chunk_sizes_is_what_each_size_gives() {
    let program = Program::new();
    let sample = |n: u64| {
        // Every third sample is in `middle`, right after the call.
        let mut sample = program.sample(1, n);
        if n.is_multiple_of(3) {
            let regs = sample.user_regs.as_mut().unwrap();
            regs.values[16] = program.svma["after_leaf"];
            regs.values[7] += 8;
            sample.stack.drain(..8);
        }
        sample
    };
    let samples: Vec<Sample> = (0..9).map(sample).collect();
    let file = record(CaptureMode::Dwarf { stack_bytes: 64 }, &program.sideband(1, "prog"), &samples, 4, true);
    let (sizes, processes) = run(&file, &[]).chunk_sizes.unwrap();
    assert_eq!(sizes.needed_bytes, BTreeMap::from([(32, 3), (40, 6)]));
    assert_eq!((processes.len(), &processes[0].sizes), (1, &sizes));
    for bytes in 1..=48 {
        let name = format!("dwarf@{bytes}");
        let tried = run(&file, &[&name]).summary.strategies[&name].complete;
        assert_eq!(sizes.complete_at(bytes), tried, "{bytes}");
    }
    assert_eq!(
        (sizes.smallest_for(0.3), sizes.smallest_for(0.5), sizes.smallest_for(1.0)),
        (Some(32), Some(40), Some(40))
    );
    assert!((sizes.mean_copied_at(44) - (3.0 * 40.0 + 6.0 * 44.0) / 9.0).abs() < 1e-9);
    let needs = &run(&file, &[]).summary.chunk_sizes;
    assert_eq!((needs.len(), needs[0].comm.as_str(), needs[1].comm.as_str()), (2, "", "prog"));
    let depth = needs[0].depth_bytes.unwrap();
    assert_eq!((depth.min, depth.max, needs[0].without_depth), (40, 48, 0));
    // Nothing is known of chunks larger than the recorded ones.
    let curve = |needs: &crate::summary::ChunkNeeds| {
        needs.curve.iter().map(|at| (at.chunk_bytes, at.complete)).collect::<Vec<_>>()
    };
    assert_eq!(needs.iter().map(curve).collect::<Vec<_>>(), [[(64, 9)], [(64, 9)]]);
    let first = &needs[0].curve[0];
    // The bytes in addition to the chunk are the same at every chunk size.
    let other = first.bytes_per_sample - first.mean_copied_bytes;
    assert!(needs.iter().flat_map(|needs| &needs.curve).all(|point| {
        (point.bytes_per_sample - point.mean_copied_bytes - other).abs() < 1e-9 && point.bytes_per_minute > 0.0
    }));
}

/// Check that a recording cut at any byte is balanced, with all its remaining samples unwound.
#[test]
fn cut_recordings_balance() {
    let program = Program::new();
    let sample = |n: u64| {
        // Every third tick was skipped, and after each tenth sample two were lost.
        Sample { cpu: 1, cpu_fired: 1 + n * 3 / 2 + n / 10 * 2, cpu_lost: n / 10 * 2, ..program.sample(1, n) }
    };
    let samples: Vec<Sample> = (0..100).map(sample).collect();
    let mode = CaptureMode::Dwarf { stack_bytes: 64 };
    let file = record(mode, &program.sideband(1, "prog"), &samples, 10, false);
    let mut n_samples = Vec::new();
    for len in (0..=file.len()).step_by(61).chain([file.len()]) {
        let Ok(mut recording) = Recording::open(Cursor::new(file[..len].to_vec())) else { continue };
        let files = FileModules::new();
        let summary = analyse(&mut recording, &Options::new(&files)).unwrap().summary;
        let accounted = summary.recorded + summary.lost.values().sum::<u64>() + summary.skipped + summary.dropped;
        assert_eq!((summary.unaccounted, accounted), (0, summary.fired), "cut at {len}");
        assert!(!summary.ended_in_order);
        assert_eq!(summary.volume.ring_bytes_per_sample, None, "only the end says it");
        let dwarf = &summary.strategies["dwarf"];
        assert_eq!(dwarf.samples, summary.recorded);
        if summary.recorded == 100 {
            assert_eq!(dwarf.complete, 100);
            assert_eq!(summary.lost.get("unattributed"), Some(&18));
            assert_eq!(summary.lost_gaps, 9);
        }
        n_samples.push(summary.recorded);
    }
    assert!(n_samples.is_sorted() && n_samples.contains(&0) && n_samples.contains(&50), "{n_samples:?}");
    assert_eq!(n_samples.last(), Some(&100));
}

/// Check that lost samples are counted by cause, and gaps one by one: those between samples, and the one at the end.
#[test]
fn losses_are_counted_by_cause_and_by_gap() {
    let program = Program::new();
    let sample = |n: u64| {
        let cpu_lost = [0, 0, 3, 3, 4, 4][usize::try_from(n).unwrap()];
        Sample { cpu_fired: n + 1 + cpu_lost, cpu_lost, ..program.sample(1, n) }
    };
    let samples: Vec<Sample> = (0..6).map(sample).collect();
    let mut writer = RecordingWriter::new(Vec::new(), &meta(CaptureMode::Dwarf { stack_bytes: 64 })).unwrap();
    program.sideband(1, "prog").iter().for_each(|event| writer.sideband(event).unwrap());
    samples.iter().for_each(|sample| writer.sample(sample, None).unwrap());
    let lost = BTreeMap::from([(LossCause::RingFull, 4), (LossCause::ExecWindow, 2)]);
    let cpu = CpuCounters { cpu: 0, fired: 13, recorded: 6, lost, dropped: 1, ..CpuCounters::default() };
    writer.finish(&end(vec![cpu])).unwrap();
    let summary = run(&writer.into_inner(), &[]).summary;
    assert_eq!(summary.lost, BTreeMap::from([("ring_full".to_string(), 4), ("exec_window".to_string(), 2)]));
    assert_eq!((summary.fired, summary.recorded, summary.dropped, summary.unaccounted), (13, 6, 1, 0));
    assert_eq!(summary.lost_gaps, 3);
    assert_eq!((summary.ended.as_str(), summary.ended_in_order), ("command exited with status 0", true));
}

/// Check that a replaced program has a single label that says so, where stacks end, and a warning; and that a missing
/// one is shown as offsets in its file.
#[test]
fn replaced_and_missing_programs_are_named_as_such() {
    let program = Program::new();
    let file =
        |events: &[Sideband]| record(CaptureMode::Dwarf { stack_bytes: 64 }, events, &[program.sample(1, 0)], 1, true);
    let file = file(&program.sideband(1, "prog"));
    let elf = std::fs::read(&program.path).unwrap();
    let id = identity(&program.path, true).build_id.unwrap();
    let at = elf.windows(20).position(|bytes| bytes == id.as_bytes()).unwrap();
    let mut other = elf.clone();
    other[at] ^= 1;
    std::fs::write(&program.path, other).unwrap();
    let analysis = run(&file, &[]);
    let replaced = "prog;[program replaced, or in another mount namespace] build_id_mismatch 1";
    assert_eq!(text(&analysis.folded["dwarf"]), [replaced]);
    assert!(analysis.summary.warnings[0].contains("replaced"), "{:?}", analysis.summary.warnings);

    std::fs::remove_file(&program.path).unwrap();
    let analysis = run(&file, &[]);
    let (start, _, offset) = program.text;
    let place = program.svma["leaf"] - start + offset;
    assert_eq!(text(&analysis.folded["dwarf"]), [format!("prog;[program+{place:#x}] module_unavailable 1")]);
    assert!(analysis.summary.warnings[0].contains("not found"), "{:?}", analysis.summary.warnings);
}

/// Check that a strategy the recording cannot support is refused with the reason.
#[test]
fn unsupported_strategies_are_refused() {
    let refused = |mode, name: &str| {
        let file = record(mode, &[], &[], 1, true);
        match run_with(&file, &[name], 1) {
            Err(Error::Strategy(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(CaptureMode::Fp, "dwarf").contains("needs copied stacks"));
    assert!(refused(CaptureMode::Dwarf { stack_bytes: 4096 }, "dwarf@8K").contains("the 4096 bytes"));
    #[cfg(not(feature = "libdw"))]
    assert!(refused(CaptureMode::Dwarf { stack_bytes: 4096 }, "elfutils").contains("cargo feature `libdw`"));
    let file = record(CaptureMode::Fp, &[], &[], 1, true);
    assert!(matches!(run_with(&file, &["fp", "fp"], 1), Err(Error::StrategyTwice(name)) if name == "fp"));
    assert_eq!("orc".parse::<Strategy>(), Err(StrategyError::Unknown("orc".to_string())));
}

/// Check that libdw and libunwind see the same frames in the same samples.
#[cfg(all(feature = "libdw", feature = "libunwind"))]
#[test]
fn external_unwinders_agree() {
    // libunwind finds no unwind information without `.eh_frame_hdr`.
    let program = Program::linked(&["-Wl,--eh-frame-hdr"]);
    let samples: Vec<Sample> = (0..4).map(|n| program.sample(1, n)).collect();
    let file = record(CaptureMode::Dwarf { stack_bytes: 64 }, &program.sideband(1, "prog"), &samples, 4, true);
    let analysis = run(&file, &["dwarf", "elfutils", "libunwind"]);
    for agreement in &analysis.summary.agreements {
        assert_eq!(agreement.relations, BTreeMap::from([(Relation::Same, 4)]), "{agreement:?}");
    }
    for folded in analysis.folded.values() {
        assert!(text(folded)[0].starts_with("prog;_start;middle;leaf "), "{:?}", text(folded));
    }
}
