//! Our unwinder, as `fpprof report` uses it: batches, one unwinder for each thread.

use super::name::{Engine, MAX_DEPTH, Pass};
use crate::load::{Input, One};
use anyhow::anyhow;
use fpprof_analysis::modules::ModuleTable;
use fpprof_unwind::{Chunk, Job, Options, Regs, Stacks, StopReason, Unwinder};

/// Samples and bytes of a batch, as the replay has them.
const BATCH_SAMPLES: usize = 64;
const BATCH_BYTES: usize = 1 << 20;

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
        let thread = || Thread { unwinder: Unwinder::new(options), stacks: Stacks::default() };
        Self { modules: input.modules(), threads: (0..n_threads).map(|_| thread()).collect() }
    }
}

impl Engine for Ours<'_> {
    fn pass(&mut self, input: &Input, out: &mut Pass) -> anyhow::Result<()> {
        let modules = &self.modules;
        let per_thread = input.samples.len().div_ceil(self.threads.len()).max(1);
        let parts = input.samples.chunks(per_thread);
        let empty = Pass { hashes: out.hashes.as_ref().map(|_| Vec::new()), ..Pass::default() };
        let done: Vec<Pass> = match self.threads.as_mut_slice() {
            [one] => vec![one.part(modules, &input.samples, empty)],
            threads => std::thread::scope(|scope| {
                let work = threads.iter_mut().zip(parts).map(|(thread, part)| {
                    let empty = empty.clone();
                    scope.spawn(move || thread.part(modules, part, empty))
                });
                let running: Vec<_> = work.collect();
                running
                    .into_iter()
                    .map(|thread| thread.join().map_err(|_panic| anyhow!("a thread panicked")))
                    .collect::<anyhow::Result<_>>()
            })?,
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
                    n_bytes = n_bytes.saturating_add(one.sample.stack.len());
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
    Job { space: &one.space.space, regs, memory: one.chunk(), thread: one.sample.tid.into() }
}
