//! Many samples at once, so that they wait for memory together.

use super::lane::{Lane, Step};
use super::single::{Unwinder, walk_start};
use crate::memory::Memory;
use crate::regs::Regs;
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

/// A walk and the number of its job.
#[derive(Debug, Default)]
pub(super) struct BatchLane {
    lane: Lane,
    job: usize,
    /// What its last step has led to.
    end: Step,
}

impl Unwinder {
    /// Unwinds many samples. Each gives what [`Unwinder::unwind`] gives, in the order of the jobs.
    pub fn unwind_batch<M: Modules + ?Sized, Y: Memory>(&mut self, modules: &M, jobs: &[Job<'_, Y>], out: &mut Stacks) {
        out.reset(jobs.len());
        touch(jobs);
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
            // First all arrive, then all leave: meanwhile the rules are fetched.
            for BatchLane { lane, job, end } in lanes.iter_mut().take(n_active) {
                let Some(sample) = jobs.get(*job) else { continue };
                *end = lane.arrive(&sample.memory);
                self.cache.prefetch(sample.space.id(), lane.lookup());
            }
            let mut index = 0;
            while let Some(BatchLane { lane, job, end }) = lanes.get_mut(index).filter(|_| index < n_active) {
                index += 1;
                let Some(sample) = jobs.get(*job) else { continue };
                if *end == Step::Caller {
                    let rule = self.rule(modules, sample.space, lane.lookup());
                    *end = lane.leave(rule, &self.options, &sample.memory);
                }
                match *end {
                    Step::Caller => continue,
                    Step::Stop(stop) => out.set(*job, &lane.frames, stop),
                    Step::NeedsFull => self.set_full(modules, sample, *job, out),
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
            if index.is_multiple_of(N_LANES) {
                touch(jobs.get(index + N_LANES..).unwrap_or(&[]));
            }
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
