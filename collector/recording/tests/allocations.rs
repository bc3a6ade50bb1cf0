//! Writing a sample allocates nothing once the writer has seen similar ones.

use fpprof_recording::model::{
    Abi, Arch, CaptureMode, CfiEnd, CfiFrame, Collector, FoundBy, FpEnd, FpFrame, Host, Meta, Sample, StackEnd,
    StackEndSource, Target, UserRegs,
};
use fpprof_recording::{MappingRanges, RecordingWriter};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `alloc` above, so from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn meta() -> Meta {
    Meta {
        tool_version: "0.1.0".into(),
        start_ns: 0,
        start_unix_ns: 0,
        host: Host { cpus_online: 1, ..Host::default() },
        collector: Collector::Ebpf,
        events: Vec::new(),
        mode: CaptureMode::Both { stack_bytes: 65_536, every: 1 },
        kernel_stacks: true,
        scrubbed: true,
        target: Target::System,
        not_counted: Vec::new(),
        aggregated_ns: None,
    }
}

/// Samples of `n_threads` threads whose stacks differ from one sample to the next.
fn samples(n_threads: u32) -> Vec<Sample> {
    let sample = |number: u64, thread: u32| {
        let sp = 0x7f00_0000_0000 + u64::from(thread) * 0x10_0000 + 0x8000 - number % 7 * 256;
        let mut values = [number; 17];
        values[7] = sp;
        Sample {
            time_ns: number * 1_000_000,
            pid: 10,
            tid: 10 + thread,
            weight: 1,
            cpu_fired: number,
            user_regs: Some(UserRegs::new(Arch::X86_64, Abi::Bits64, &values)),
            user_fp: vec![FpFrame { address: number, frame_address: sp }; 5],
            fp_end: FpEnd::Zero,
            cfi_frames: (0..6)
                .map(|frame| CfiFrame {
                    address: number % 13 + frame,
                    cfa: sp + 64 * (frame + 1),
                    is_instruction: frame == 0,
                    found_by: FoundBy::Row,
                })
                .collect(),
            cfi_end: Some(CfiEnd::UndefinedRa),
            kernel: vec![number % 11; 8],
            stack: (0..1_000 + number % 7 * 32).flat_map(|at| (sp + at * number % 800).to_le_bytes()).collect(),
            stack_end: Some(StackEnd { address: sp + 9_000, source: StackEndSource::Mapping }),
            ..Sample::default()
        }
    };
    (0..200).map(|number| sample(number, u32::try_from(number).unwrap_or(0) % n_threads)).collect()
}

/// Check that neither a sample nor a flush allocates after two seconds of similar ones. It is the only test of this
/// program, so that no other one allocates meanwhile.
#[test]
fn no_allocation_after_warm_up() {
    let samples = samples(8);
    let ranges: MappingRanges = [(0x5555_0000_0000, 0x5555_0100_0000)].into_iter().collect();
    let mut writer = RecordingWriter::new(std::io::sink(), &meta()).unwrap();
    let mut second = || {
        for sample in &samples {
            writer.sample(sample, Some(&ranges)).unwrap();
        }
        writer.flush().unwrap();
    };
    second();
    second();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    second();
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
}
