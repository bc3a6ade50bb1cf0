//! Many samples at once, so that they wait for memory together.

use alloc::sync::Arc;

use super::lane::{Lane, Step};
use super::single::{Unwinder, walk_start};
use crate::cache::Table;
use crate::memory::Memory;
use crate::regs::Regs;
use crate::rule::Rule;
use crate::space::{Modules, Space};
use crate::stack::Stack;
use crate::stacks::Stacks;

/// Walks that take turns. Of 8, 12, 16 and 24 the first two are a tenth slower, the last no faster.
const N_LANES: usize = 16;

/// One sample of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a, Y> {
    /// The address space it was taken in.
    pub space: &'a Space,
    /// The sampled registers.
    pub regs: &'a Regs,
    /// The memory it may read.
    pub memory: Y,
    /// Which thread it was taken in, by any number of the caller's: stacks of one thread share their outer frames.
    pub thread: u64,
}

/// A walk and its job.
#[derive(Debug)]
struct Running<'j, 'a, Y> {
    lane: Lane,
    job: &'j Job<'a, Y>,
    index: usize,
}

impl Unwinder {
    /// Unwinds many samples. Each gives what [`Unwinder::unwind`] gives, in the order of the jobs.
    pub fn unwind_batch<M: Modules + ?Sized, Y: Memory>(&mut self, modules: &M, jobs: &[Job<'_, Y>], out: &mut Stacks) {
        out.reset(jobs.len());
        let Some(first) = jobs.first() else { return };
        touch(jobs);
        let rules = Arc::clone(&self.rules);
        let mut lanes: [_; N_LANES] =
            core::array::from_fn(|_| Running { lane: self.lanes.pop().unwrap_or_default(), job: first, index: 0 });
        let (mut next, mut n_running) = (0, 0);
        for running in &mut lanes {
            if !self.admit(modules, jobs, &mut next, running, out) {
                break;
            }
            n_running += 1;
        }
        while n_running > 0 {
            let table = rules.table();
            let mut at = 0;
            while let Some(running) = lanes.get_mut(at).filter(|_| at < n_running) {
                match self.step(table, modules, running) {
                    Step::Caller => {
                        at += 1;
                        continue;
                    }
                    Step::Stop(stop) => out.set(running.index, &running.lane.frames, stop),
                    Step::NeedsFull => self.set_full(modules, running.job, running.index, out),
                }
                if self.admit(modules, jobs, &mut next, running, out) {
                    at += 1;
                } else {
                    n_running -= 1;
                    lanes.swap(at, n_running);
                }
            }
        }
        self.lanes.extend(lanes.into_iter().map(|running| running.lane));
    }

    /// Goes to the caller. What that reads was asked for a round ago; the rule is in the second-level cache.
    #[inline]
    fn step<M: Modules + ?Sized, Y: Memory>(
        &mut self,
        table: &Table,
        modules: &M,
        running: &mut Running<'_, '_, Y>,
    ) -> Step {
        let Running { lane, job, .. } = running;
        match lane.arrive(&job.memory) {
            Step::Caller => {}
            end => return end,
        }
        let lookup = lane.lookup();
        let rule = match table.find(job.space.id(), lookup) {
            Rule::EMPTY => self.resolve(modules, job.space, lookup),
            rule => rule,
        };
        lane.leave(rule, &self.options, &job.memory)
    }

    /// Gives a lane the next job; false when there is none left.
    fn admit<'j, 'a, M: Modules + ?Sized, Y: Memory>(
        &mut self,
        modules: &M,
        jobs: &'j [Job<'a, Y>],
        next: &mut usize,
        running: &mut Running<'j, 'a, Y>,
        out: &mut Stacks,
    ) -> bool {
        while let Some(job) = jobs.get(*next) {
            let index = *next;
            if index.is_multiple_of(N_LANES) {
                touch(jobs.get(index + N_LANES..).unwrap_or(&[]));
            }
            *next += 1;
            if let Some(start) = walk_start(job.regs) {
                running.lane.start(start);
                (running.job, running.index) = (job, index);
                return true;
            }
            self.set_full(modules, job, index, out);
        }
        false
    }

    #[cold]
    fn set_full<M: Modules + ?Sized, Y: Memory>(
        &mut self,
        modules: &M,
        job: &Job<'_, Y>,
        index: usize,
        out: &mut Stacks,
    ) {
        let mut stack = Stack { frames: core::mem::take(&mut self.lane.frames), ..Stack::default() };
        self.unwind_full(modules, job.space, job.regs, &job.memory, &mut stack);
        out.set(index, &stack.frames, stack.stop);
        self.lane.frames = stack.frames;
    }
}

/// Hints that the first of these jobs come next. All at once, since what takes longest is to find their pages, and the
/// processor finds several at a time.
fn touch<Y: Memory>(jobs: &[Job<'_, Y>]) {
    const PAGE_BYTES: u64 = 4096;
    for job in jobs.iter().take(N_LANES) {
        if let Some(sp) = job.regs.sp() {
            for ahead in [0, 64, 128, PAGE_BYTES] {
                job.memory.prefetch(sp.wrapping_add(ahead));
            }
        }
    }
}
