//! Many samples at once, so that they wait for memory together.

use super::lane::{Lane, Step};
use super::single::{Unwinder, walk_start};
use crate::memory::Memory;
use crate::regs::Regs;
use crate::space::{Modules, Space};
use crate::stack::Stack;
use crate::stacks::Stacks;

/// Walks that take turns. Measured with 8, 16 and 24: fewer wait for memory, more fall out of the first-level cache.
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

/// A walk and the number of its job.
#[derive(Debug, Default)]
pub(super) struct BatchLane {
    lane: Lane,
    job: usize,
}

impl Unwinder {
    /// Unwinds many samples. Each gives what [`Unwinder::unwind`] gives, in the order of the jobs.
    pub fn unwind_batch<M: Modules + ?Sized, Y: Memory>(&mut self, modules: &M, jobs: &[Job<'_, Y>], out: &mut Stacks) {
        out.reset(jobs.len());
        let mut lanes = core::mem::take(&mut self.lanes);
        lanes.resize_with(N_LANES, BatchLane::default);
        let mut next = 0;
        let mut n_active = 0;
        for lane in &mut lanes {
            if !self.admit(modules, jobs, &mut next, lane, out) {
                break;
            }
            n_active += 1;
        }
        while n_active > 0 {
            let mut index = 0;
            while let Some(BatchLane { lane, job }) = lanes.get_mut(index).filter(|_| index < n_active) {
                index += 1;
                let Some(sample) = jobs.get(*job) else { continue };
                let mut end = lane.arrive(&sample.memory);
                if end == Step::Caller {
                    let rule = self.rule(modules, sample.space, lane.lookup());
                    end = lane.leave(rule, &self.options, &sample.memory);
                }
                if end == Step::Caller {
                    continue;
                }
                match end {
                    Step::Stop(stop) => out.set(*job, &lane.frames, stop),
                    _ => self.set_full(modules, sample, *job, out),
                }
                if let Some(ended) = lanes.get_mut(index - 1)
                    && !self.admit(modules, jobs, &mut next, ended, out)
                {
                    n_active -= 1;
                    index -= 1;
                    lanes.swap(index, n_active);
                }
            }
        }
        self.lanes = lanes;
    }

    /// Gives a lane the next job; false when there is none left.
    fn admit<M: Modules + ?Sized, Y: Memory>(
        &mut self,
        modules: &M,
        jobs: &[Job<'_, Y>],
        next: &mut usize,
        lane: &mut BatchLane,
        out: &mut Stacks,
    ) -> bool {
        while let Some(job) = jobs.get(*next) {
            let index = *next;
            *next += 1;
            if let Some(start) = walk_start(job.regs) {
                lane.lane.start(start);
                lane.job = index;
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
