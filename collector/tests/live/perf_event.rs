//! The collector without BPF.

use crate::support::{
    Ended, assert_balanced, assert_most, build, cpu_time, directory, hex_numbers, refuse, run, take, take_some,
    take_until, take_with,
};
use fpprof_collector::{CollectorKind, Error, Request, StopFlag, Target};
use fpprof_recording::model::{CaptureMode, Collector, FpFrame, LossCause, Sample, Sampling, Sideband, StackEndSource};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

fn without_bpf(request: Request) -> Request {
    Request { collector: CollectorKind::PerfEvent, ..request }
}

/// Check that the chain of a program with frame pointers is, in both modes that have one, the one the program itself
/// sees, and that its frames are located in the copied stack.
#[test]
fn chain_is_what_the_program_sees() {
    let directory = directory();
    let program = build("chain", &["-O0", "-fno-omit-frame-pointer"], directory.path());
    for mode in [CaptureMode::Fp, CaptureMode::Both { stack_bytes: 65_528, every: 1 }] {
        let file = directory.path().join("truth");
        let taken = take(&without_bpf(run(&program, &["200", file.to_str().expect("a path")], mode)));
        assert_eq!((taken.meta.collector, taken.meta.mode), (Collector::PerfEvent, mode));
        let truth: Vec<FpFrame> = hex_numbers(&file)
            .as_chunks::<2>()
            .0
            .iter()
            .map(|&[address, frame]| FpFrame {
                address,
                frame_address: if mode == CaptureMode::Fp { 0 } else { frame },
            })
            .collect();
        assert_eq!(truth.len(), 42);
        let in_leaf: Vec<_> = taken.samples.iter().filter(|sample| sample.user_fp.get(1) == truth.first()).collect();
        assert_most(in_leaf.len(), taken.samples.len(), "samples in the leaf");
        for sample in in_leaf {
            assert_eq!(sample.user_fp.get(1..=truth.len()), Some(truth.as_slice()), "{mode:?}");
            assert_eq!(sample.user_regs.is_some(), mode != CaptureMode::Fp);
        }
    }
}

fn depth(sample: &Sample) -> Option<u64> {
    sample.stack_end?.address.checked_sub(sample.user_regs?.sp())
}

/// Check that stacks are copied up to the limit or to their end, which is recorded: the first thread's where the kernel
/// put the arguments, another thread's where its mapping ends; nothing beyond the end is kept.
#[test]
fn stacks_are_copied_to_their_end() {
    let directory = directory();
    let program = build("pattern", &[], directory.path());
    let taken = take(&without_bpf(run(&program, &["400"], CaptureMode::Dwarf { stack_bytes: 65_528 })));
    let deep: Vec<_> = taken.samples.iter().filter(|sample| depth(sample) > Some(131_072)).collect();
    assert_most(deep.len(), taken.samples.len(), "samples above the pattern");
    // The whole record is less than 64 KiB. While the program fills its stack, the kernel's copy ends at the first page
    // that is not present yet.
    let is_full = |sample: &Sample| (65_000..=65_528).contains(&sample.stack.len());
    let ends_at_page = |sample: &Sample| {
        let sp = sample.user_regs.map_or(0, |regs| regs.sp());
        sample.stack.is_empty() || (sp + sample.stack.len() as u64).is_multiple_of(4096)
    };
    let full = deep.iter().filter(|sample| is_full(sample)).count();
    assert_most(full, deep.len(), "stacks copied up to the limit");
    assert!(deep.iter().all(|sample| is_full(sample) || sample.stack.len() < 65_000 && ends_at_page(sample)));
    assert!(deep.iter().all(|sample| sample.stack_end.is_some_and(|end| end.source == StackEndSource::StartStack)));

    let program = build("stacks", &[], directory.path());
    let file = directory.path().join("ends");
    let request = run(&program, &["400", file.to_str().expect("a path")], CaptureMode::Dwarf { stack_bytes: 65_528 });
    let taken = take(&without_bpf(request));
    let truth = hex_numbers(&file);
    let (thread_block, mapping_end) = (truth[0], truth[3]);
    assert!(thread_block < mapping_end, "{truth:x?}");
    let threads: Vec<_> = taken.samples.iter().filter(|sample| sample.tid != sample.pid).collect();
    let right = threads.iter().filter(|sample| {
        let end = sample.stack_end.filter(|end| end.source == StackEndSource::Mapping);
        // Older kernels merge the mapping with that of the C library's data after it.
        end.is_some_and(|end| end.address == mapping_end) && depth(sample) == Some(sample.stack.len() as u64)
    });
    assert_most(right.count(), threads.len(), "samples of the thread that reach the end of its stack");
}

/// Check that forks, threads and execs are followed and recorded, and nothing else is sampled.
#[test]
fn process_tree_is_followed() {
    let directory = directory();
    let program = build("tree", &[], directory.path());
    let file = directory.path().join("truth");
    let taken = take(&without_bpf(run(&program, &["100", file.to_str().expect("a path")], CaptureMode::Fp)));
    let text = std::fs::read_to_string(&file).expect("the program wrote its file");
    let numbers: Vec<u32> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    let [parent, first, thread, second] = numbers[..] else { panic!("four numbers: {text}") };
    let sampled: BTreeSet<_> = taken.samples.iter().map(|sample| (sample.pid, sample.tid)).collect();
    assert_eq!(sampled, BTreeSet::from([(parent, parent), (first, first), (first, thread), (second, second)]));
    let is_exec = |event: &Sideband| matches!(event, Sideband::Comm(c) if c.pid == second && c.exec);
    let is_mapping =
        |event: &Sideband| matches!(event, Sideband::Mmap(m) if m.pid == second && m.path.ends_with(b"/tree"));
    let exec = taken.sideband.iter().position(is_exec).expect("the exec is told of");
    // It inherits one mapping from its parent by fork, which no event repeats.
    assert!(taken.sideband.iter().position(is_mapping).is_some_and(|mapping| exec < mapping));
}

/// Check that a running process is attached to with all its threads.
#[test]
fn running_threads_are_attached_to() {
    let directory = directory();
    let program = build("tree", &[], directory.path());
    let file = directory.path().join("truth");
    let mut child = Ended(Command::new(&program).arg("3000").arg(&file).spawn().expect("the program runs"));
    let numbers = loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let numbers: Vec<u32> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        if numbers.len() == 4 && text.ends_with('\n') {
            break numbers;
        }
        std::thread::yield_now();
    };
    let (first, thread) = (numbers[1], numbers[2]);
    let taken = take_some(&without_bpf(Request::new(Target::Pids(vec![first]))));
    let sampled: BTreeSet<_> = taken.samples.iter().map(|sample| (sample.pid, sample.tid)).collect();
    assert_eq!(sampled, BTreeSet::from([(first, first), (first, thread)]));
    let is_mapped =
        |event: &Sideband| matches!(event, Sideband::Mmap(m) if m.synthesized && m.path.ends_with(b"/tree"));
    assert!(taken.sideband.iter().any(is_mapped));
    assert!(child.wait().expect("its end").success());
}

/// Check that what a small ring loses while nobody reads is counted, in the samples and in the end record, and that the
/// balance agrees with the kernel's own count.
#[test]
fn losses_are_counted() {
    let directory = directory();
    let program = build("pattern", &[], directory.path());
    let request = Request {
        sampling: Sampling::FrequencyHz(2000),
        ring_bytes: Some(262_144),
        ..run(&program, &["1000"], CaptureMode::Dwarf { stack_bytes: 65_528 })
    };
    let taken = take_with(&without_bpf(request), &StopFlag::new().expect("a flag"), &mut |progress| {
        if progress.samples > 0 && progress.lost < 50 {
            // Cause losses: nobody reads meanwhile.
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert_balanced(&taken.outcome);
    let lost: u64 = taken.outcome.end.cpus.iter().filter_map(|cpu| cpu.lost.get(&LossCause::RingFull)).sum();
    assert!(lost >= 50, "only {lost} samples lost");
    for cpu in &taken.outcome.end.cpus {
        let last = taken.samples.iter().rfind(|sample| sample.cpu == cpu.cpu);
        let (fired, lost_before) = last.map_or((0, 0), |sample| (sample.cpu_fired, sample.cpu_lost));
        let ring_full = cpu.lost.get(&LossCause::RingFull).copied().unwrap_or(0);
        assert!(lost_before <= ring_full && fired <= cpu.fired, "{cpu:?}");
        assert_eq!(fired, cpu.recorded + lost_before, "every tick before the last sample is spoken for");
    }
}

/// Check that the whole machine is sampled except for this process, and nothing idle.
#[test]
fn whole_system() {
    let directory = directory();
    let program = build("burn", &[], directory.path());
    let child = Ended(Command::new(&program).arg("60000").spawn().expect("the program runs"));
    let enough = cpu_time(child.id()) + Duration::from_millis(200);
    let taken = take_until(&without_bpf(Request::new(Target::System)), |_| cpu_time(child.id()) >= enough);
    assert!(taken.samples.iter().any(|sample| sample.pid == child.id()));
    assert!(taken.samples.iter().all(|sample| sample.tid != 0 && sample.pid != std::process::id()));
    let in_kernel: Vec<_> = taken.samples.iter().filter(|sample| sample.in_kernel).collect();
    assert!(in_kernel.iter().all(|sample| !sample.kernel.is_empty()), "kernel stacks are there when asked for");
    assert!(taken.meta.not_counted.is_empty(), "nothing is hidden from root");
}

/// Check that sizes the kernel cannot copy, and rings too small for two samples, are refused with the valid sizes.
#[test]
fn impossible_sizes_are_refused() {
    let request = |stack_bytes, ring_bytes| {
        let base = Request::new(Target::Command { argv: vec!["true".into()] });
        without_bpf(Request { mode: CaptureMode::Dwarf { stack_bytes }, ring_bytes, ..base })
    };
    for stack_bytes in [0, 100, 65_536] {
        let refused = refuse(&request(stack_bytes, None));
        assert!(matches!(refused, Error::PerfEventStackBytes { max: 65_528, .. }), "{refused}");
    }
    let small = refuse(&request(65_528, Some(4096)));
    assert!(matches!(small, Error::RingTooSmall { asked: 4096, needed: 262_144 }), "{small}");
    let gone = refuse(&without_bpf(Request::new(Target::Pids(vec![99_999_999]))));
    assert!(matches!(gone, Error::NoSuchProcess(99_999_999)), "{gone}");
}
