//! One thread: its registers before the current instruction, and the effect of each instruction on its shadow stack.

use super::breakpoints::Breakpoints;
use super::maps::Maps;
use super::pace::Counts;
use super::tracee::{self, Memory, Registers};
use anyhow::Context as _;
use fpprof_analysis::oracle::{FirstWord, Flow, MAX_INSTRUCTION_BYTES, Moved, ShadowStack, ends_in_call};
use fpprof_collector::{MapsEntry, stop_thread};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// A larger change of the stack pointer may be a switch to another stack. Frames larger than this stay in their
/// mapping.
const FAR_BYTES: u64 = 4096;
/// Number of the system call `rt_sigreturn`.
///
/// # Sources
/// The kernel's `arch/x86/entry/syscalls/syscall_64.tbl`.
const RT_SIGRETURN: u64 = 15;
/// The length of `syscall`: to restart an interrupted call, the kernel moves the instruction pointer back by this.
const SYSCALL_BYTES: u64 = 2;

/// A thread that has not stopped after so long is sent another signal.
const LONGEST_STOP: Duration = Duration::from_millis(100);
const NOP: u8 = 0x90;
/// The most `nop`s skipped after a call: Go's compiler inserts them there, and execution resumes after them when a
/// panic is recovered.
const MAX_NOPS: usize = 3;

/// A stepped thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) tid: Pid,
    pub(super) shadow: ShadowStack,
    /// The registers before the current instruction.
    pub(super) before: Registers,
    /// The signal to deliver with the next step.
    pub(super) signal: Option<i32>,
    /// The step in progress; `None` while the thread is stopped.
    pub(super) under_way: Option<UnderWay>,
    /// Whether the current instruction repeats and was already counted.
    pub(super) is_repeating: bool,
    /// Whether `before` was changed but not yet written to the thread.
    pub(super) is_moved: bool,
    /// Whether it runs and has entered a system call.
    pub(super) is_in_kernel: bool,
    /// When it was sent a SIGSTOP that has not arrived yet, so that others can run.
    pub(super) stop_requested: Option<Instant>,
}

/// A step in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnderWay {
    pub(super) flow: Flow,
    /// Whether a signal was delivered with it.
    pub(super) has_signal: bool,
    /// Whether the thread runs to its next transfer or system call, instead of a single step.
    pub(super) is_running: bool,
}

impl Thread {
    /// Creates a thread that is stopped before its first instruction.
    pub(super) fn new(tid: Pid, regs: Registers) -> Self {
        let shadow = ShadowStack::new(regs.sp());
        Self {
            tid,
            shadow,
            before: regs,
            signal: None,
            under_way: None,
            is_repeating: false,
            is_moved: false,
            is_in_kernel: false,
            stop_requested: None,
        }
    }

    /// Has the running thread stop soon. Call it until the thread has: a SIGCONT discards the signal.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(super) fn request_stop(&mut self, process: Pid) -> anyhow::Result<()> {
        if self.stop_requested.is_some_and(|at| at.elapsed() < LONGEST_STOP) {
            return Ok(());
        }
        self.stop_requested = Some(Instant::now());
        stop_thread(process.as_raw(), self.tid.as_raw()).with_context(|| format!("stopping thread {}", self.tid))
    }

    /// Writes changed registers to the thread.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(super) fn write_back(&mut self) -> anyhow::Result<()> {
        if std::mem::take(&mut self.is_moved) { self.before.write_place(self.tid) } else { Ok(()) }
    }

    /// Updates the state with the registers after a step.
    pub(super) fn stepped(
        &mut self,
        after: Registers,
        breakpoints: &Breakpoints,
        maps: &mut Maps,
        counts: &mut Counts,
    ) {
        let memory = &breakpoints.memory;
        let before = std::mem::replace(&mut self.before, after);
        let Some(UnderWay { flow, has_signal, .. }) = self.under_way.take() else { return };
        if has_signal && self.entered_handler(before, after, memory, counts) {
            self.is_repeating = false;
            return;
        }
        self.is_repeating = flow == Flow::Other && after.ip() == before.ip() && after.sp() == before.sp();
        match flow {
            // A call that has not pushed its return address was not executed.
            Flow::Call { return_address } if before.sp().checked_sub(8) == Some(after.sp()) => {
                counts.calls = counts.calls.saturating_add(1);
                self.shadow.called(return_address, after.sp());
                return;
            }
            Flow::Syscall if before.ax == RT_SIGRETURN => {
                counts.signal_returns = counts.signal_returns.saturating_add(1);
                if let Some(interrupted_sp) = self.shadow.resumed(after.sp()) {
                    self.called_by_handler(interrupted_sp, memory, counts);
                    return;
                }
            }
            Flow::Return if self.shadow.innermost_slot() != Some(before.sp()) => {
                counts.returns_without_call = counts.returns_without_call.saturating_add(1);
            }
            _ => {}
        }
        self.moved(before, after, flow, memory, maps, counts);
        if matches!(flow, Flow::Return | Flow::Jump) {
            self.shadow.jumped(after.sp(), || first_word(after, breakpoints, maps));
        }
    }

    fn moved(
        &mut self,
        before: Registers,
        after: Registers,
        flow: Flow,
        memory: &Memory,
        maps: &mut Maps,
        counts: &mut Counts,
    ) {
        if before.sp() == after.sp() {
            return;
        }
        let moved = if flow == Flow::SetStackPointer {
            self.shadow.was_set(after.sp())
        } else if before.sp().abs_diff(after.sp()) <= FAR_BYTES {
            Moved::Within(self.shadow.moved(after.sp(), |slot| memory.read_u64(slot)))
        } else {
            if maps.find(after.sp()).is_none() {
                // The stack may just have grown. If it cannot be read, the switch is treated as one to another stack.
                let _ = maps.read(self.tid);
            }
            self.shadow.moved_far(after.sp(), |sp| maps.find(sp).map(MapsEntry::range))
        };
        let Moved::Within(left) = moved else {
            counts.stack_switches = counts.stack_switches.saturating_add(1);
            return;
        };
        let is_return = flow == Flow::Return && left == 1;
        if is_return {
            counts.returns = counts.returns.saturating_add(1);
        } else if left > 0 {
            counts.unwinds = counts.unwinds.saturating_add(1);
        }
    }

    /// Records the call if a handler has pushed one for the code that it interrupted, as Go's does to preempt it.
    fn called_by_handler(&mut self, interrupted_sp: u64, memory: &Memory, counts: &mut Counts) {
        let slot = self.before.sp();
        if slot.checked_add(8) != Some(interrupted_sp) {
            return;
        }
        if let Some(return_address) = memory.read_u64(slot) {
            counts.calls = counts.calls.saturating_add(1);
            self.shadow.called(return_address, slot);
        }
    }

    /// Whether a signal handler was entered instead of the instruction: the stack pointer points at a frame of this
    /// signal.
    fn entered_handler(&mut self, before: Registers, after: Registers, memory: &Memory, counts: &mut Counts) -> bool {
        if after.ip() == before.ip() && after.sp() == before.sp() {
            return false;
        }
        let Some(frame) = tracee::signal_frame(memory, after.sp()) else { return false };
        let restarted = before.ip().checked_sub(SYSCALL_BYTES);
        let is_interrupted = frame.ip == before.ip() || Some(frame.ip) == restarted;
        if !is_interrupted || frame.sp != before.sp() {
            return false;
        }
        counts.signals = counts.signals.saturating_add(1);
        self.shadow.interrupted(frame.ip, frame.sp, after.sp(), frame.restorer);
        true
    }
}

/// The first word of a stack that was switched to by a jump; `None` if the word is no return address, so that nothing
/// returns to it, or if the jump leads into the middle of a function, where the word may be anything.
fn first_word(after: Registers, breakpoints: &Breakpoints, maps: &Maps) -> Option<FirstWord> {
    let return_address = breakpoints.memory.read_u64(after.sp())?;
    let is_code = maps.find(return_address).is_some_and(|vma| vma.is_executable());
    if (return_address != 0 && !is_code) || is_after_call(after.ip(), MAX_NOPS, breakpoints) {
        return None;
    }
    Some(FirstWord { return_address, is_after_call: is_code && is_after_call(return_address, 0, breakpoints) })
}

/// Whether an address follows a call, with at most `n_nops` one-byte `nop`s between them.
fn is_after_call(address: u64, n_nops: usize, breakpoints: &Breakpoints) -> bool {
    let mut before = [0; MAX_INSTRUCTION_BYTES + MAX_NOPS];
    let start = address.saturating_sub(before.len() as u64);
    if breakpoints.memory.read(start, &mut before) != before.len() {
        return false;
    }
    breakpoints.restore(start, &mut before);
    let (mut code, mut address) = (before.as_slice(), address);
    for _ in 0..n_nops {
        let Some(rest) = code.strip_suffix(&[NOP]) else { break };
        (code, address) = (rest, address.saturating_sub(1));
    }
    ends_in_call(code, address)
}
