//! Copied stacks.

use crate::support::{assert_most, build, directory, hex_numbers, run, take};
use fpprof_collector::Request;
use fpprof_recording::model::{
    CaptureMode, ChunkHole, LossCause, MAX_REGISTERS, Sample, Sampling, StackEnd, StackEndSource,
};

const KEY: u64 = 0x5aa5_0000_1234_0000;

fn raw(request: Request) -> Request {
    Request { keep_raw_stacks: true, ..request }
}

/// Words of the chunk from the stack pointer up, with their addresses.
fn words(sample: &Sample) -> impl Iterator<Item = (u64, u64)> + '_ {
    let sp = sample.user_regs.map_or(0, |regs| regs.sp());
    let words = sample.stack_from_sp().as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    (0..).zip(words).map(move |(i, word)| (sp + 8 * i, word))
}

fn n_marked(sample: &Sample) -> usize {
    words(sample).filter(|&(address, word)| word == address ^ KEY).count()
}

/// The holes of a chunk, except one at its start: the stack pointer may just have moved to a page that is not present
/// yet.
fn holes(sample: &Sample) -> Vec<ChunkHole> {
    sample.stack_holes.iter().copied().filter(|hole| hole.offset > 0).collect()
}

/// Check that a stack of more than 128 KiB is copied completely and unchanged, and not beyond its end.
#[test]
fn large_stacks_are_copied_exactly() {
    let directory = directory();
    let program = build("pattern", &[], directory.path());
    let taken = take(&raw(run(&program, &["150"], CaptureMode::Dwarf { stack_bytes: 1 << 20 })));
    let whole = taken.samples.iter().filter(|sample| n_marked(sample) == 16_384);
    let whole: Vec<_> = whole.collect();
    assert_most(whole.len(), taken.samples.len(), "samples with all of the pattern");
    for sample in whole {
        let end = sample.stack_end.expect("the end is known");
        assert_eq!(end.source, StackEndSource::StartStack);
        let sp = sample.user_regs.expect("registers").sp();
        assert_eq!(sample.stack_from_sp().len() as u64, end.address - sp);
        assert_eq!(holes(sample), []);
    }
}

/// Check that a smaller limit cuts the copy there, and that the true end is still recorded.
#[test]
fn the_limit_is_kept() {
    let directory = directory();
    let program = build("pattern", &[], directory.path());
    for stack_bytes in [1, 4096, 65_528, 100_001] {
        let taken = take(&raw(run(&program, &["60"], CaptureMode::Dwarf { stack_bytes })));
        let long = |sample: &&Sample| {
            let end = sample.stack_end.map_or(0, |end| end.address);
            end.saturating_sub(sample.user_regs.map_or(0, |regs| regs.sp())) > 131_072
        };
        let long: Vec<_> = taken.samples.iter().filter(long).collect();
        assert_most(long.len(), taken.samples.len(), "samples above the pattern");
        // A stack that the kernel is just growing may have no page yet.
        let is_growing = |sample: &Sample| sample.in_kernel && sample.stack.is_empty();
        let is_cut = |sample: &&Sample| sample.stack_from_sp().len() as u64 == u64::from(stack_bytes);
        assert!(long.iter().all(|sample| is_cut(sample) || is_growing(sample)));
    }
}

/// Check that pages that were never touched are holes: as many as there are, zero, on page boundaries, and what is
/// on both sides of them is there.
#[test]
fn untouched_pages_are_holes() {
    let directory = directory();
    let program = build("holes", &[], directory.path());
    let taken = take(&raw(run(&program, &["150"], CaptureMode::Dwarf { stack_bytes: 1 << 20 })));
    let with_holes: Vec<_> = taken.samples.iter().filter(|sample| n_marked(sample) == 1024).collect();
    assert_most(with_holes.len(), taken.samples.len(), "samples with the marks of both sides");
    for sample in with_holes {
        let [hole] = holes(sample)[..] else { panic!("one hole expected: {:?}", sample.stack_holes) };
        assert_eq!((sample.stack_start() + u64::from(hole.offset)) % 4096, 0);
        assert_eq!(hole.len % 4096, 0);
        assert!((62..=64).contains(&(hole.len / 4096)), "{hole:?}");
        let hole = &sample.stack[hole.offset as usize..][..hole.len as usize];
        assert!(hole.iter().all(|&byte| byte == 0));
    }
}

/// Check that a chunk begins a red zone below the stack pointer, with the program's contents, if there is memory, and
/// otherwise at the stack pointer; and that it has the requested number of bytes from there up.
#[test]
fn red_zones_are_copied() {
    let directory = directory();
    let program = build("red_zones", &[], directory.path());
    let truth = directory.path().join("truth");
    let arguments = ["150", truth.to_str().expect("a path")];
    let taken = take(&raw(run(&program, &arguments, CaptureMode::Both { stack_bytes: 1024, every: 1 })));
    for (sp, bytes_below_sp) in hex_numbers(&truth).into_iter().zip([128, 0]) {
        let is_there = |sample: &&Sample| sample.user_regs.is_some_and(|regs| regs.sp() == sp);
        let there: Vec<_> = taken.samples.iter().filter(is_there).collect();
        assert!(there.len() * 3 >= taken.samples.len(), "{} of {} at {sp:x}", there.len(), taken.samples.len());
        for sample in there {
            assert_eq!((sample.bytes_below_sp, sample.stack_holes.len()), (bytes_below_sp, 0));
            let marks = (sample.stack_start()..sp + 1024).step_by(8).flat_map(|address| (address ^ KEY).to_le_bytes());
            assert!(marks.eq(sample.stack.iter().copied()), "{sample:x?}");
        }
    }
}

/// Check that the ends of the stacks of a thread, of a signal handler and of a context are found, each in its own way.
#[test]
fn ends_of_other_stacks_are_found() {
    let directory = directory();
    let program = build("stacks", &[], directory.path());
    let truth = directory.path().join("truth");
    let arguments = ["100", truth.to_str().expect("a path")];
    let taken = take(&raw(run(&program, &arguments, CaptureMode::Dwarf { stack_bytes: 65_536 })));
    let truth = hex_numbers(&truth);
    let sources = [StackEndSource::ThreadBase, StackEndSource::AltStack, StackEndSource::Mapping];
    for (&address, source) in truth.iter().zip(sources) {
        let end = Some(StackEnd { address, source });
        let on_it: Vec<_> = taken.samples.iter().filter(|sample| sample.stack_end == end).collect();
        assert!(on_it.len() * 5 >= taken.samples.len(), "{} of {} on {end:x?}", on_it.len(), taken.samples.len());
        for sample in on_it {
            let sp = sample.user_regs.expect("registers").sp();
            assert_eq!(sample.stack_from_sp().len() as u64, (address - sp).min(65_536));
        }
    }
}

/// Check that samples in the kernel have the registers the program entered it with.
#[test]
fn registers_at_kernel_entry() {
    let directory = directory();
    let program = build("registers", &[], directory.path());
    let taken = take(&raw(run(&program, &["6000"], CaptureMode::Dwarf { stack_bytes: 4096 })));
    let in_kernel: Vec<_> = taken.samples.iter().filter(|sample| sample.in_kernel).collect();
    // rbx, rbp, r12, r13, r14 in DWARF's order.
    let known = [(3, 0xb0b0_b0b0), (6, 0xbbbb_bbbb), (12, 0x1212_1212), (13, 0x1313_1313), (14, 0x1414_1414)];
    let is_exact = |sample: &&&Sample| {
        let values = sample.user_regs.map_or([0; MAX_REGISTERS], |regs| regs.values);
        known.iter().all(|&(number, value)| values.get(number) == Some(&value))
    };
    assert_most(in_kernel.iter().filter(is_exact).count(), in_kernel.len(), "samples with the known registers");
    assert!(in_kernel.iter().all(|sample| !sample.kernel.is_empty()));
}

/// Check that a thread between two programs is sampled with its kernel stack and without a user stack, none of which is
/// invented; that the old program's stack is attributed to it for as long as it exists; and that no tick is lost.
#[test]
fn programs_that_replace_themselves() {
    let directory = directory();
    let program = build("execs", &[], directory.path());
    // In one of the two, the last frame is in the page in which the next program's arguments begin.
    for moved in [0, 2048] {
        let request = run(&program, &["500", &"x".repeat(moved)], CaptureMode::Both { stack_bytes: 4096, every: 1 });
        sampled_between_programs(&raw(Request { sampling: Sampling::FrequencyHz(4999), ..request }));
    }
}

fn sampled_between_programs(request: &Request) {
    const KNOWN: u64 = 0xeceb_0000;
    let taken = take(request);
    // The kernel throttles the clock for a while if ticks take it long.
    let lost = taken.gaps.iter().filter(|gap| gap.cause != LossCause::Throttled);
    assert_eq!(lost.count(), 0, "{:?}", taken.gaps);
    let (between, others): (Vec<_>, Vec<_>) = taken.samples.iter().partition(|sample| sample.in_exec);
    assert!(between.len() > 20, "{} of {} samples", between.len(), taken.samples.len());
    for sample in between {
        assert!(sample.in_kernel && !sample.kernel.is_empty(), "{sample:?}");
        assert_eq!((sample.user_regs, sample.stack_end), (None, None));
        assert!(sample.user_fp.is_empty() && sample.stack.is_empty(), "{sample:?}");
    }
    let is_leaving = |sample: &&&Sample| sample.user_regs.is_some_and(|regs| regs.values[3] == KNOWN);
    let leaving: Vec<_> = others.iter().filter(is_leaving).collect();
    assert!(leaving.len() > 20, "{} of {} samples", leaving.len(), taken.samples.len());
    let is_foreign = |sample: &&&&Sample| words(sample).next().is_none_or(|(_, word)| word != KNOWN);
    let foreign: Vec<_> = leaving.iter().filter(is_foreign).collect();
    assert!(foreign.is_empty(), "of {} samples with the last program's registers: {foreign:x?}", leaving.len());
}

/// Check that words that point nowhere are not written unless requested, and that what unwinding needs is: the return
/// address of the leaf's caller.
#[test]
fn secrets_are_zeroed() {
    let directory = directory();
    let program = build("pattern", &[], directory.path());
    let taken = take(&run(&program, &["150"], CaptureMode::Dwarf { stack_bytes: 1 << 20 }));
    assert!(taken.meta.scrubbed);
    assert!(taken.samples.iter().all(|sample| n_marked(sample) == 0));
    let long = taken.samples.iter().filter(|sample| sample.stack.len() > 131_072);
    let with_code =
        long.filter(|sample| words(sample).any(|(_, word)| taken.sideband.iter().any(|e| is_code(e, word))));
    assert_most(with_code.count(), taken.samples.len(), "samples that kept a pointer to code");
}

fn is_code(event: &fpprof_recording::model::Sideband, word: u64) -> bool {
    let fpprof_recording::model::Sideband::Mmap(mmap) = event else { return false };
    mmap.prot & 4 != 0 && (mmap.start..mmap.start + mmap.len).contains(&word)
}
