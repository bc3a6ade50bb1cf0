//! Leaps: runs at full speed from one control transfer to the next.
//!
//! Each single step costs a debug exception, which is expensive in virtual machines. A breakpoint costs a fourth of
//! that, and code has some ten instructions per transfer. Between two windows of stepped instructions the shadow stack
//! is therefore maintained at transfers only: a breakpoint stops the thread before a transfer, which is then emulated
//! by writing its registers, without another stop.

use super::stepper::{Lifted, Stepper, changes_mappings};
use super::thread::UnderWay;
use super::tracee::{self, Registers, run_on};
use fpprof_analysis::oracle::{Flow, Transfer, predict_transfer};
use fpprof_collector::share_memory;
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;
use std::collections::BTreeSet;

/// The length of the instruction `syscall`.
const SYSCALL_BYTES: u64 = 2;

impl Stepper {
    /// Runs a thread to its next transfer and emulates that, or single-steps where it cannot run. Returns `false` if
    /// the thread is not stopped before its next instruction afterwards.
    pub(super) fn run_to_transfer(&mut self, tid: Pid) -> anyhow::Result<bool> {
        let Self { threads, maps, breakpoints, .. } = self;
        let Some(thread) = threads.get(&tid) else { return Ok(false) };
        let ip = thread.before.ip();
        // What comes after a system call that is repeated must not be emulated, nor signals be missed.
        let can_run = thread.signal.is_none() && !thread.before.will_restart() && self.lifted.is_none();
        let is_code = |address| maps.find(address).is_some_and(super::maps::is_lasting_code);
        if !can_run || !breakpoints.follow(ip, is_code)? {
            return self.single_step(tid);
        }
        if breakpoints.has(ip) {
            return if self.emulate_transfer(tid) { Ok(true) } else { self.single_step(tid) };
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(false) };
        thread.write_back()?;
        thread.under_way = Some(UnderWay { flow: Flow::Other, has_signal: false, is_running: true });
        run_on(tid)?;
        let mut is_slow = false;
        loop {
            let has_others = self.next_stopped().is_some();
            let is_in_kernel = self.threads.get(&tid).is_some_and(|thread| thread.is_in_kernel);
            let came = if is_in_kernel && has_others { self.wait(false)? } else { self.wait_briefly()? };
            let is_interrupted = self.stop.signal().is_some();
            let Some(thread) = self.threads.get_mut(&tid).filter(|_| self.ended.is_none()) else { return Ok(false) };
            if thread.under_way.is_none() {
                // After it ran for so long, it is the others' turn.
                return Ok(!is_slow);
            }
            if is_interrupted || (!came && has_others && is_in_kernel) {
                return Ok(false);
            }
            if !came && has_others {
                is_slow = true;
                thread.request_stop(self.pid)?;
            }
        }
    }

    /// Single-steps without checking the stack; counts as a transfer if the instruction is one.
    fn single_step(&mut self, tid: Pid) -> anyhow::Result<bool> {
        let before = self.counts.calls.saturating_add(self.counts.returns);
        let goes_on = self.step(tid, None)?;
        if self.counts.calls.saturating_add(self.counts.returns) != before {
            self.schedule.count_transfer();
        }
        Ok(goes_on)
    }

    /// Emulates the transfer at which a thread has stopped; `false` if that is not possible.
    fn emulate_transfer(&mut self, tid: Pid) -> bool {
        let Self { threads, maps, breakpoints, counts, .. } = self;
        let Some(thread) = threads.get_mut(&tid) else { return false };
        let before = thread.before;
        let bytes = breakpoints.bytes(before.ip());
        let word = |address| breakpoints.memory.read_u64(address);
        let predicted = predict_transfer(&bytes, before.ip(), |n| before.by_number(n), word);
        let mut after = before;
        let flow = match predicted {
            Some(Transfer::Call { target, return_address }) => {
                let Some(slot) = before.sp().checked_sub(8) else { return false };
                if !tracee::write_u64(tid, slot, return_address) {
                    return false;
                }
                after.go(target, slot);
                if target == return_address { Flow::ReadIp } else { Flow::Call { return_address } }
            }
            Some(Transfer::Jump { target }) => {
                after.go(target, before.sp());
                Flow::Jump
            }
            Some(Transfer::Return { target, n_bytes }) => {
                let Some(sp) = before.sp().checked_add(n_bytes) else { return false };
                after.go(target, sp);
                Flow::Return
            }
            None => return false,
        };
        thread.under_way = Some(UnderWay { flow, has_signal: false, is_running: true });
        thread.stepped(after, breakpoints, maps, counts);
        // The registers are written back only when the thread is resumed.
        thread.is_moved = true;
        counts.transfers = counts.transfers.saturating_add(1);
        self.schedule.count_transfer();
        true
    }

    /// Handles a stop at one of our breakpoints; `false` if it is none.
    pub(super) fn stopped_at_breakpoint(&mut self, tid: Pid, mut regs: Registers) -> bool {
        let Self { threads, maps, breakpoints, counts, .. } = self;
        let Some(thread) = threads.get_mut(&tid) else { return false };
        let (Some(step), Some(ip)) = (thread.under_way, regs.ip().checked_sub(1)) else { return false };
        if !breakpoints.has(ip) || (!step.is_running && ip != thread.before.ip()) {
            return false;
        }
        regs.go(ip, regs.sp());
        if step.is_running {
            thread.stepped(regs, breakpoints, maps, counts);
        } else {
            // It was to be stepped over this instruction without a breakpoint, which was put back before it could run.
            thread.under_way = None;
        }
        thread.is_moved = true;
        thread.is_repeating = !step.is_running;
        true
    }

    /// Handles a stop at the entry or exit of a system call of a running thread.
    ///
    /// # Errors
    /// If the thread cannot be read or resumed.
    pub(super) fn at_system_call(&mut self, tid: Pid) -> anyhow::Result<()> {
        let mut regs = match Registers::of(tid) {
            Ok(regs) => regs,
            Err(error) if error.downcast_ref::<Errno>() == Some(&Errno::ESRCH) => return Ok(()),
            Err(error) => return Err(error),
        };
        let Self { threads, maps, breakpoints, counts, .. } = self;
        let Some(thread) = threads.get_mut(&tid) else { return Ok(()) };
        if thread.is_in_kernel {
            thread.is_in_kernel = false;
            self.is_dirty |= changes_mappings(thread.before.ax);
            thread.stepped(regs, breakpoints, maps, counts);
            thread.is_repeating = false;
            return self.returned_from_vfork(tid);
        }
        regs.go(regs.ip().saturating_sub(SYSCALL_BYTES), regs.sp());
        regs.ax = regs.system_call;
        thread.stepped(regs, breakpoints, maps, counts);
        breakpoints.call_begins(&regs);
        thread.under_way = Some(UnderWay { flow: Flow::Syscall, has_signal: false, is_running: true });
        thread.is_in_kernel = true;
        run_on(tid)
    }

    /// Stops the threads that run outside the kernel: without breakpoints they would run past transfers.
    ///
    /// # Errors
    /// If a thread cannot be stopped.
    pub(super) fn stop_running(&mut self) -> anyhow::Result<()> {
        loop {
            let mut is_over = true;
            for thread in self.threads.values_mut() {
                if thread.under_way.is_some_and(|step| step.is_running) && !thread.is_in_kernel {
                    is_over = false;
                    thread.request_stop(self.pid)?;
                }
            }
            if is_over || self.ended.is_some() {
                return Ok(());
            }
            self.wait_briefly()?;
        }
    }

    /// Removes the breakpoints from a new process, which is stopped before its first instruction. Call it when no thread
    /// runs outside the kernel.
    ///
    /// # Errors
    /// If its code cannot be changed.
    pub(super) fn lift_from_child(&mut self, parent: Pid, child: Pid, event: i32) -> anyhow::Result<()> {
        // The event depends on other flags of `clone` than that for the same memory, so this is only a guess. It is needed
        // where the kernel does not tell more, or does not let us open the child's memory.
        let is_likely_same = event != ptrace::Event::PTRACE_EVENT_FORK as i32;
        let is_same = share_memory(parent.as_raw().unsigned_abs(), child.as_raw().unsigned_abs());
        let is_same = match self.lifted {
            Some(_) => is_same || is_likely_same,
            None if is_same => self.breakpoints.lift().map(|()| true)?,
            None => match self.breakpoints.lift_in(child) {
                Err(_) if is_likely_same => self.breakpoints.lift().map(|()| true)?,
                found => found?.unwrap_or(is_likely_same),
            },
        };
        if !is_same {
            return Ok(());
        }
        let is_vfork = event == ptrace::Event::PTRACE_EVENT_VFORK as i32;
        self.lifted = Some(match self.lifted.take() {
            None if is_vfork => Lifted::By(BTreeSet::from([parent])),
            Some(Lifted::By(mut parents)) if is_vfork => {
                parents.insert(parent);
                Lifted::By(parents)
            }
            _ => Lifted::ForGood,
        });
        Ok(())
    }

    /// Puts the breakpoints back when a thread returns from `vfork`.
    ///
    /// # Errors
    /// If the code cannot be changed.
    pub(super) fn returned_from_vfork(&mut self, tid: Pid) -> anyhow::Result<()> {
        if let Some(Lifted::By(parents)) = &mut self.lifted
            && parents.remove(&tid)
            && parents.is_empty()
        {
            self.lifted = None;
            self.breakpoints.place_again()?;
        }
        Ok(())
    }
}
