//! Batches give the stacks of single samples.

use std::sync::Arc;

use fpprof_unwind::{Chunk, Fallback, Job, Regs, SharedRules, Stack, Stacks, Unwinder};

use crate::build::{BIAS, Cfi, JIT, Process, R10, RA, RBP, RBX, RSP, STACK, bytes, cfa, regs};

/// A deterministic pseudo-random generator.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Functions of every kind of rule.
fn process() -> Process {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x100, &[cfa::def_cfa_offset(16)])
        .fde(0x1100, 0x100, &[cfa::def_cfa_offset(24), cfa::saved(RBP, 16)])
        .fde(0x1200, 0x100, &[cfa::def_cfa(RBP, 16), cfa::saved(RBP, 16)])
        .fde(0x1300, 0x100, &[cfa::def_cfa_expression(&[0x77, 16])])
        .fde(0x1400, 0x100, &[cfa::def_cfa(RBX, 16), cfa::saved(RBX, 16)])
        .fde(0x1500, 0x100, &[cfa::def_cfa(R10, 16)])
        .fde(0x1600, 0x100, &[cfa::undefined(RA)])
        .fde(0x1700, 0x100, &[cfa::def_cfa(RSP, 8), cfa::saved(RBX, 8)]);
    Process::new(cfi.module())
}

/// Samples of random stacks, most of whose words are return addresses or addresses of the stack.
fn samples(n: usize) -> Vec<(Regs, Vec<u8>)> {
    let mut numbers = Numbers(7);
    let word = |numbers: &mut Numbers| match numbers.next(16) {
        0 if numbers.next(8) == 0 => numbers.next(1 << 40),
        1 if numbers.next(8) == 0 => JIT + numbers.next(0x2000),
        2..4 => STACK + 8 * numbers.next(64),
        6 => BIAS + 0x1000 + numbers.next(0x900),
        _ => BIAS + 0x1001 + numbers.next(0x1ff),
    };
    (0..n)
        .map(|_| {
            let n_words = numbers.next(64);
            let words: Vec<u64> = (0..n_words).map(|_| word(&mut numbers)).collect();
            let mut regs = regs(0x1000 + numbers.next(0x900), STACK, STACK + 8 * numbers.next(16));
            regs.set(u16::from(RBX), STACK + 8 * numbers.next(16));
            regs.set(u16::from(R10), STACK + 8 * numbers.next(16));
            (regs, bytes(&words))
        })
        .collect()
}

fn chunk(bytes: &[u8]) -> Chunk<'_> {
    Chunk { start: STACK, bytes, stack_end: Some(STACK + 512), holes: &[(100, 4)] }
}

/// Check that batches of any size give the stacks of single samples, in order, with one unwinder or several, with and
/// without guesses.
#[test]
fn batches_equal_single_samples() {
    let samples = samples(2000);
    for (fallback, is_leaf_guessed) in [(Fallback::None, false), (Fallback::Jit, false), (Fallback::FramePointer, true)]
    {
        let mut process = process();
        (process.options.fallback, process.options.is_leaf_guessed) = (fallback, is_leaf_guessed);
        let expected: Vec<Stack> = samples.iter().map(|(regs, bytes)| process.unwind(regs, &chunk(bytes))).collect();
        assert!(expected.iter().any(|stack| stack.frames.len() > 10));
        let classes = ["complete", "truncated", "broken"];
        assert!(classes.iter().all(|class| expected.iter().any(|stack| stack.stop.class() == *class)));
        let jobs: Vec<_> =
            samples.iter().map(|(regs, bytes)| Job { space: &process.space, regs, memory: chunk(bytes) }).collect();
        let mut warm = Unwinder::new(process.options);
        let mut stacks = Stacks::default();
        for size in [1, 2, 15, 16, 17, 33, 500, 2000] {
            let mut cold = Unwinder::new(process.options);
            let mut n = 0;
            for batch in jobs.chunks(size) {
                let unwinder = if size % 2 == 0 { &mut cold } else { &mut warm };
                unwinder.unwind_batch(&process.modules, batch, &mut stacks);
                assert_eq!(stacks.len(), batch.len());
                for stack in stacks.iter() {
                    assert_eq!(stack.to_stack(), expected[n], "sample {n} of batches of {size}");
                    n += 1;
                }
            }
            assert_eq!(n, expected.len());
        }
        warm.unwind_batch(&process.modules, &jobs[..0], &mut stacks);
        assert!(stacks.is_empty() && stacks.get(0).is_none());
    }
}

/// Check that threads that share rules get the stacks of single samples, whichever thread compiled a rule, also while
/// the table grows.
#[test]
fn threads_that_share_rules_give_the_same() {
    let samples = samples(4000);
    let process = process();
    let expected: Vec<Stack> = samples.iter().map(|(regs, bytes)| process.unwind(regs, &chunk(bytes))).collect();
    let rules = Arc::new(SharedRules::default());
    let unwind = |is_backwards: bool| {
        let mut unwinder = Unwinder::with_rules(process.options, Arc::clone(&rules));
        let mut stacks = Stacks::default();
        let n_batches = samples.len().div_ceil(64);
        for number in 0..n_batches {
            let number = if is_backwards { n_batches - 1 - number } else { number };
            let batch = samples.chunks(64).nth(number).expect("there is such a batch");
            let jobs: Vec<_> =
                batch.iter().map(|(regs, bytes)| Job { space: &process.space, regs, memory: chunk(bytes) }).collect();
            unwinder.unwind_batch(&process.modules, &jobs, &mut stacks);
            for (index, stack) in stacks.iter().enumerate() {
                assert_eq!(stack.to_stack(), expected[number * 64 + index]);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = [false, true, false].map(|is_backwards| scope.spawn(move || unwind(is_backwards)));
        threads.into_iter().for_each(|thread| thread.join().expect("stacks are the same"));
    });
}

/// Check that a walk with all registers gives the same frames as a walk by rules.
#[test]
fn the_full_walk_equals_the_walk_by_rules() {
    let process = process();
    let mut n_compared = 0;
    for (mut regs, bytes) in samples(3000) {
        let by_rules = process.unwind(&regs, &chunk(&bytes));
        // Without fp, a walk uses all registers. It fails only at a frame that needs fp and whose callees have not
        // saved it.
        regs.clear(6);
        let without = process.unwind(&regs, &chunk(&bytes));
        if without.stop == by_rules.stop && without.frames.len() == by_rules.frames.len() {
            assert_eq!(without, by_rules);
            n_compared += 1;
        } else {
            assert_eq!(without.stop.name(), "bad_cfi");
            let n = without.frames.len() - 1;
            assert_eq!(without.frames[..n], by_rules.frames[..n]);
        }
    }
    assert!(n_compared > 1000, "{n_compared}");
}
