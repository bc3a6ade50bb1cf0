//! fpprof's unwinder, used as in `fpprof report`: batches, one unwinder per thread, one table with all rules.

use super::name::{Engine, MAX_DEPTH, Pass};
use crate::load::{Input, One};
use anyhow::anyhow;
use fpprof_analysis::modules::ModuleTable;
use fpprof_unwind::{Chunk, Job, Options, Regs, SharedRules, Stacks, StopReason, Unwinder};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Samples and bytes of a batch, the same as in the replay.
const BATCH_SAMPLES: usize = 256;
const BATCH_BYTES: usize = 1 << 20;
/// Samples that a thread takes at a time.
const PART_SAMPLES: usize = 256;

#[derive(Debug)]
pub(crate) struct Ours<'a> {
    modules: ModuleTable<'a>,
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    unwinder: Unwinder,
    stacks: Stacks,
}

impl<'a> Ours<'a> {
    pub(crate) fn new(input: &'a Input, n_threads: usize) -> Self {
        let options = Options { max_depth: MAX_DEPTH, ..Options::default() };
        let rules = Arc::new(SharedRules::default());
        let unwinder = || Unwinder::with_rules(options, Arc::clone(&rules));
        let thread = |_| Thread { unwinder: unwinder(), stacks: Stacks::default() };
        Self { modules: input.modules(), threads: (0..n_threads).map(thread).collect() }
    }
}

impl Engine for Ours<'_> {
    fn pass(&mut self, input: &Input, out: &mut Pass) -> anyhow::Result<()> {
        let modules = &self.modules;
        let empty = Pass { hashes: out.hashes.as_ref().map(|_| Vec::new()), ..Pass::default() };
        let done: Vec<Pass> = match self.threads.as_mut_slice() {
            [one] => vec![one.part(modules, &input.samples, empty)],
            threads => on_threads(threads, modules, input, &empty)?,
        };
        for part in done {
            out.frames = out.frames.saturating_add(part.frames);
            out.complete = out.complete.saturating_add(part.complete);
            if let (Some(all), Some(hashes)) = (&mut out.hashes, part.hashes) {
                all.extend(hashes);
                out.addresses.extend(part.addresses);
            }
        }
        Ok(())
    }
}

/// Unwinds all samples on several threads, each pinned to a CPU of its own if there are enough; returns the results of
/// all parts in the order of the samples.
fn on_threads(
    threads: &mut [Thread],
    modules: &ModuleTable<'_>,
    input: &Input,
    empty: &Pass,
) -> anyhow::Result<Vec<Pass>> {
    let parts: Vec<&[One]> = input.samples.chunks(PART_SAMPLES).collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(parts.len())));
    let work = |thread: &mut Thread| {
        while let Some((index, part)) = take(&next, &parts) {
            let pass = thread.part(modules, part, empty.clone());
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, pass));
        }
    };
    std::thread::scope(|scope| {
        let spawn = |(cpu, thread)| {
            scope.spawn(move || {
                stay_on(cpu);
                work(thread);
            })
        };
        let running: Vec<_> = threads.iter_mut().enumerate().map(spawn).collect();
        running.into_iter().try_for_each(|thread| thread.join().map_err(|_panic| anyhow!("a thread panicked")))
    })?;
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|&(index, _)| index);
    Ok(done.into_iter().map(|(_, pass)| pass).collect())
}

fn take<'p>(next: &AtomicUsize, parts: &[&'p [One]]) -> Option<(usize, &'p [One])> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    Some((index, *parts.get(index)?))
}

/// Pins this thread to one CPU: during a pass of a few milliseconds a scheduler may leave two threads on the same one.
fn stay_on(cpu: usize) {
    let mut cpus = CpuSet::new();
    // If there is no such CPU, the thread is not pinned.
    if cpus.set(cpu).is_ok() {
        let _ = sched_setaffinity(Pid::from_raw(0), &cpus);
    }
}

impl Thread {
    fn part(&mut self, modules: &ModuleTable<'_>, samples: &[One], mut out: Pass) -> Pass {
        let mut regs: Vec<Regs> = Vec::with_capacity(BATCH_SAMPLES);
        let mut rest = samples;
        while !rest.is_empty() {
            let mut n_bytes = 0_usize;
            let n = rest
                .iter()
                .take(BATCH_SAMPLES)
                .take_while(|one| {
                    let is_first = n_bytes == 0;
                    n_bytes = n_bytes.saturating_add(one.stack.len());
                    is_first || n_bytes <= BATCH_BYTES
                })
                .count()
                .max(1);
            let (batch, later) = rest.split_at(n);
            rest = later;
            regs.clear();
            regs.extend(batch.iter().map(|one| Regs::x86_64(&one.regs)));
            let job = |(one, regs)| job(one, regs);
            let jobs: Vec<Job<'_, Chunk<'_>>> = batch.iter().zip(&regs).map(job).collect();
            self.unwinder.unwind_batch(modules, &jobs, &mut self.stacks);
            for stack in self.stacks.iter() {
                out.add(stack.frames.iter().map(|frame| frame.address), matches!(stack.stop, StopReason::Complete(_)));
            }
        }
        out
    }
}

fn job<'a>(one: &'a One, regs: &'a Regs) -> Job<'a, Chunk<'a>> {
    Job { space: &one.space.space, regs, memory: one.chunk() }
}
