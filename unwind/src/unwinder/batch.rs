//! Many samples at once.

use super::fast::Unwinder;
use crate::memory::Memory;
use crate::regs::Regs;
use crate::space::{Modules, Space};
use crate::stack::Stack;
use crate::stacks::Stacks;

/// One sample of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a, Y> {
    /// The address space it was taken in.
    pub space: &'a Space,
    /// The sampled registers.
    pub regs: &'a Regs,
    /// The memory it may read.
    pub memory: Y,
}

impl Unwinder {
    /// Unwinds many samples. Each gives what [`Unwinder::unwind`] gives, in the order of the jobs.
    pub fn unwind_batch<M: Modules + ?Sized, Y: Memory>(&mut self, modules: &M, jobs: &[Job<'_, Y>], out: &mut Stacks) {
        out.reset(jobs.len());
        let mut stack = Stack::default();
        for (index, job) in jobs.iter().enumerate() {
            self.unwind(modules, job.space, job.regs, &job.memory, &mut stack);
            out.set(index, &stack.frames, stack.stop);
        }
    }
}
