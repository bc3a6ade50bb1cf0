//! Steps all threads of a process, one at a time.
//!
//! Threads take turns in the order of their ids. A thread in a system call is skipped until it returns, so that a lock
//! that another thread holds is released in time. Without threads the order is the program's own, and two runs on the
//! same input give the same figures.

use super::breakpoints::Breakpoints;
use super::code::Code;
use super::maps::Maps;
use super::pace::{Choice, Counts, LeapSchedule, Pace};
use super::samples::{MAX_STACK_BYTES, Samples};
use super::thread::{Thread, UnderWay};
use super::tracee::{Memory, Registers, Report, Trap, is_caught, run_on, step, wait};
use anyhow::Context as _;
use fpprof_analysis::oracle::{Checker, Flow, History, Tally};
use fpprof_analysis::signal_name;
use fpprof_analysis::strategy::Strategy;
use fpprof_collector::{StopFlag, walk_copied_stack};
use fpprof_recording::model::{Sample, StackEnd, StackEndSource};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::{Bound, Range};
use std::path::Path;
use std::time::{Duration, Instant};

/// Instructions that a thread runs before the next one takes its turn.
const QUANTUM: u32 = 5000;
/// Bytes copied above the outermost known frame of a stack, which a walk that goes wrong would read.
const ABOVE_BYTES: u64 = 64 << 10;
/// Maximum size of a vDSO in bytes; it usually has some 8 KiB.
const MAX_VDSO_BYTES: u64 = 1 << 20;

/// A thread that makes no transfer for so long may wait for another one in a loop.
const LONGEST_RUN: Duration = Duration::from_millis(20);
/// Most threads stop again within microseconds; one that does not is looked at less often.
const SHORT_RUN: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_millis(1);

/// System calls that change what is mapped: mmap, mprotect, munmap, brk, mremap, shmat, shmdt, `remap_file_pages`,
/// `pkey_mprotect`.
///
/// # Sources
/// The kernel's `arch/x86/entry/syscalls/syscall_64.tbl`.
const MAPPING_CALLS: [u64; 9] = [9, 10, 11, 12, 25, 30, 67, 216, 329];

/// Why stepping paused.
#[derive(Debug)]
pub(super) enum Pause {
    /// Executable mappings changed: the checker must be rebuilt.
    Mappings,
    /// The program has ended; how, in words.
    Ended(String),
}

/// How long the breakpoints are removed, for a process that runs in the same memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lifted {
    /// Until all of these threads have returned from `vfork`.
    By(BTreeSet<Pid>),
    /// Permanently: the other process may run forever.
    ForGood,
}

/// A stepped process.
pub(super) struct Stepper {
    pub(super) pid: Pid,
    /// Threads by id, since others start and end while one is waited for.
    pub(super) threads: BTreeMap<Pid, Thread>,
    /// The thread that ran last.
    last_stepped: Pid,
    pace: Pace,
    pub(super) schedule: LeapSchedule,
    pub(super) counts: Counts,
    pub(super) history: History,
    pub(super) maps: Maps,
    /// The program's initial stack pointer; its arguments are above.
    start_stack: u64,
    pub(super) breakpoints: Breakpoints,
    /// Whether the breakpoints are removed.
    pub(super) lifted: Option<Lifted>,
    /// Whether a system call may have changed mappings.
    pub(super) is_dirty: bool,
    /// Whether executable mappings changed since the checker was built.
    is_checker_stale: bool,
    code: Code,
    /// Where code was executable, and its protection, when the mappings were read.
    protections: Vec<(Range<u64>, u32)>,
    sample: Sample,
    /// The recording of the checked samples, if requested.
    samples: Option<Samples>,
    /// New processes whose stop was reported before their parent's event.
    strays: Vec<Pid>,
    start: Instant,
    pub(super) stop: &'static StopFlag,
    pub(super) ended: Option<String>,
}

impl Stepper {
    /// Creates a stepper of a process that is stopped before its first instruction.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn new(
        pid: Pid,
        choice: &Choice,
        history: History,
        samples: Option<Samples>,
        stop: &'static StopFlag,
    ) -> anyhow::Result<Self> {
        let mut stepper = Self {
            pid,
            threads: BTreeMap::new(),
            last_stepped: Pid::from_raw(0),
            pace: Pace::new(choice),
            schedule: LeapSchedule::new(choice),
            counts: Counts { threads: 1, ..Counts::default() },
            history,
            maps: Maps::default(),
            start_stack: 0,
            breakpoints: Breakpoints::new(pid)?,
            lifted: None,
            is_dirty: false,
            is_checker_stale: false,
            code: Code::new(),
            protections: Vec::new(),
            sample: Sample::default(),
            samples,
            strays: Vec::new(),
            start: Instant::now(),
            stop,
            ended: None,
        };
        stepper.begin_image(pid)?;
        // The first checker is built from the current mappings.
        stepper.is_checker_stale = false;
        Ok(stepper)
    }

    /// Steps until executable mappings change or the program ends.
    ///
    /// # Errors
    /// If the process can no longer be read or stepped.
    pub(super) fn run(&mut self, checker: &mut Checker<'_>, tally: &mut Tally) -> anyhow::Result<Pause> {
        loop {
            if self.ended.is_none() && (self.stop.signal().is_some() || self.pace.is_over(self.counts.instructions)) {
                self.end_early()?;
            }
            if let Some(words) = self.ended.take() {
                return Ok(Pause::Ended(words));
            }
            let Some(tid) = self.next_stopped() else {
                self.wait_briefly()?;
                continue;
            };
            self.last_stepped = tid;
            // A quantum, since a thread that spins on a lock would otherwise keep its holder from running.
            for _ in 0..QUANTUM {
                if self.is_dirty {
                    self.reread_maps(tid)?;
                }
                if std::mem::take(&mut self.is_checker_stale) {
                    return Ok(Pause::Mappings);
                }
                let is_over = self.pace.is_over(self.counts.instructions) || self.stop.signal().is_some();
                if is_over {
                    break;
                }
                let goes_on = match self.schedule.is_leaping() {
                    true => self.run_to_transfer(tid)?,
                    false => self.step(tid, Some((&mut *checker, &mut *tally)))?,
                };
                if !goes_on {
                    break;
                }
            }
        }
    }

    /// Starts over with a new image: after an exec there is one thread and no old mapping.
    fn begin_image(&mut self, pid: Pid) -> anyhow::Result<()> {
        self.pid = pid;
        self.breakpoints = Breakpoints::new(pid)?;
        self.lifted = None;
        let regs = Registers::of(pid)?;
        self.start_stack = regs.sp();
        self.threads = BTreeMap::from([(pid, Thread::new(pid, regs))]);
        let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        self.history.named(name.trim_ascii_end(), self.elapsed_ns());
        self.reread_maps(pid)?;
        if let Some(range) = self.maps.vdso() {
            let bytes = range.end.saturating_sub(range.start).min(MAX_VDSO_BYTES);
            let mut vdso = vec![0; usize::try_from(bytes)?];
            let n = self.breakpoints.memory.read(range.start, &mut vdso);
            vdso.truncate(n);
            self.history.add_module(b"[vdso]", vdso);
        }
        Ok(())
    }

    fn reread_maps(&mut self, tid: Pid) -> anyhow::Result<()> {
        self.is_dirty = false;
        self.maps.read(tid)?;
        let is_changed = self.history.update(self.maps.executable(), self.elapsed_ns());
        let protections = self.maps.protections();
        if is_changed || protections != self.protections {
            self.code.clear();
            self.breakpoints.forget();
            self.protections = protections;
        }
        if is_changed {
            self.is_checker_stale = true;
            self.counts.mapping_changes = self.counts.mapping_changes.saturating_add(1);
        }
        Ok(())
    }

    fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Finishes the recording of the checked samples.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn finish_samples(&mut self) -> anyhow::Result<()> {
        self.samples.take().map_or(Ok(()), |samples| samples.finish(&self.history))
    }

    /// Records the sample that was just judged.
    fn record_sample(&mut self, tid: Pid) -> anyhow::Result<()> {
        let elapsed_ns = self.elapsed_ns();
        let Self { samples: Some(samples), sample, threads, maps, history, .. } = self else { return Ok(()) };
        let kept = maps.code_files_and(threads.values().map(|thread| thread.before.sp()));
        let time_ns = history.sampled(elapsed_ns);
        // The recording is one of copied stacks, without walks in the kernel.
        (sample.cfi_end, sample.cfi_frames) = (None, Vec::new());
        samples.add(sample, tid, time_ns, history, &kept)
    }

    /// The next stopped thread after the one that ran last.
    pub(super) fn next_stopped(&self) -> Option<Pid> {
        let later = self.threads.range((Bound::Excluded(self.last_stepped), Bound::Unbounded));
        let mut order = later.chain(self.threads.range(..=self.last_stepped));
        order.find(|(_, thread)| thread.under_way.is_none()).map(|(&tid, _)| tid)
    }

    /// Checks one thread's stack, if `check` is given, and steps the thread. Returns `false` if it is not stopped
    /// before its next instruction afterwards.
    pub(super) fn step(&mut self, tid: Pid, check: Option<(&mut Checker<'_>, &mut Tally)>) -> anyhow::Result<bool> {
        let Self { threads, maps, code, breakpoints, .. } = self;
        let Some(thread) = threads.get_mut(&tid) else { return Ok(false) };
        let ip = thread.before.ip();
        let flow = code.at(ip, breakpoints, || maps.find(ip).is_none_or(super::maps::may_change));
        let signal = thread.signal.take();
        if !thread.is_repeating {
            let n_before = self.counts.instructions;
            self.counts.instructions = n_before.saturating_add(1);
            if let Some((checker, tally)) = check {
                self.schedule.stepped();
                if self.pace.is_checked(n_before) {
                    let Self { threads, sample, maps, start_stack, breakpoints, .. } = self;
                    let Some(thread) = threads.get(&tid) else { return Ok(false) };
                    fill(sample, thread, &breakpoints.memory, maps, *start_stack);
                    if tally.strategies().contains(&Strategy::Cfi) {
                        let checker = RefCell::new(&mut *checker);
                        let rule = |address| checker.borrow_mut().rule(address);
                        walk_copied_stack(sample, rule, |address| checker.borrow().code_before(address));
                    }
                    if checker.check(n_before, sample, &thread.shadow, tally) {
                        self.record_sample(tid)?;
                    }
                }
            }
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(false) };
        if flow == Flow::Syscall {
            self.breakpoints.call_begins(&thread.before);
        }
        thread.write_back()?;
        let will_restart = thread.before.will_restart();
        let flow = if will_restart { Flow::Other } else { flow };
        thread.under_way = Some(UnderWay { flow, has_signal: signal.is_some(), is_running: false });
        // A repeated system call comes before the instruction, and the next step begins at the instruction again.
        let has_breakpoint = self.lifted.is_none() && !will_restart && self.breakpoints.has(ip);
        if has_breakpoint {
            self.breakpoints.remove(ip)?;
        }
        step(tid, signal)?;
        // While its breakpoint is removed, no other thread may run, so this one is waited for even if it blocks.
        let may_block = !has_breakpoint && (flow == Flow::Syscall || signal.is_some() || will_restart);
        let goes_on = self.wait_for(tid, may_block)?;
        if has_breakpoint && self.lifted.is_none() {
            self.breakpoints.put_back(ip);
        }
        // Not if a signal came first: it is delivered with the next step, which begins at the same instruction.
        let has_popped = |thread: &Thread| thread.signal.is_none() && thread.before.ip() != ip;
        match goes_on && flow == Flow::PopFlags && self.threads.get(&tid).is_some_and(has_popped) {
            true => self.forget_step(tid),
            false => Ok(goes_on),
        }
    }

    /// Has the kernel forget that it stepped a thread. After a step that loads the flags it would take the trap flag of
    /// all later steps for the program's own, and leave it to child processes, which are killed by it. The thread runs,
    /// with a signal that stops it before its next instruction.
    ///
    /// # Sources
    /// `enable_single_step` in the kernel's `arch/x86/kernel/step.c`.
    fn forget_step(&mut self, tid: Pid) -> anyhow::Result<bool> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(false) };
        thread.under_way = Some(UnderWay { flow: Flow::Other, has_signal: false, is_running: true });
        thread.request_stop(self.pid)?;
        run_on(tid)?;
        let goes_on = self.wait_for(tid, false)?;
        if let Some(thread) = self.threads.get_mut(&tid) {
            // It has not run the instruction.
            thread.is_repeating = false;
        }
        Ok(goes_on)
    }

    /// Waits until a stepped thread has stopped; but not if that may take long and others can run.
    fn wait_for(&mut self, tid: Pid, may_block: bool) -> anyhow::Result<bool> {
        loop {
            // Asked each time: one that returned from the kernel meanwhile may be what this one waits for.
            let has_others = self.next_stopped().is_some();
            let came = match (may_block, has_others) {
                (true, true) => self.wait(false)?,
                (true, false) => self.wait_briefly()?,
                (false, _) => self.wait(true)?,
            };
            let Some(thread) = self.threads.get(&tid).filter(|_| self.ended.is_none()) else { return Ok(false) };
            if thread.under_way.is_none() {
                return Ok(true);
            }
            if may_block && !came && (has_others || self.stop.signal().is_some()) {
                return Ok(false);
            }
        }
    }

    /// Like [`Self::wait`], for at most [`LONGEST_RUN`].
    pub(super) fn wait_briefly(&mut self) -> anyhow::Result<bool> {
        let began = Instant::now();
        loop {
            if self.wait(false)? {
                return Ok(true);
            }
            match began.elapsed() {
                short if short < SHORT_RUN => std::thread::yield_now(),
                long if long < LONGEST_RUN => std::thread::sleep(PAUSE),
                _ => return Ok(false),
            }
        }
    }

    /// Waits for any thread and handles its report. Returns `false` if there was none.
    pub(super) fn wait(&mut self, is_blocking: bool) -> anyhow::Result<bool> {
        let (tid, report) = match wait(None, is_blocking) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) if error.raw_os_error() == Some(Errno::ECHILD as i32) => {
                self.ended.get_or_insert_with(|| "ended".to_owned());
                return Ok(false);
            }
            Err(error) => return Err(error).context("waiting for the program"),
        };
        match report {
            Report::Stopped(signal) => self.stopped(tid, signal)?,
            Report::Event(event) => self.event(tid, event)?,
            Report::SystemCall => self.at_system_call(tid)?,
            Report::Exited(status) => self.gone(tid, &format!("exited with status {status}")),
            Report::Killed(signal) => self.gone(tid, &format!("killed by {}", signal_name(signal))),
        }
        Ok(true)
    }

    fn stopped(&mut self, tid: Pid, signal: i32) -> anyhow::Result<()> {
        let regs = match Registers::of(tid) {
            Ok(regs) => regs,
            // Killed while it was stopped: its exit is reported next.
            Err(error) if error.downcast_ref::<Errno>() == Some(&Errno::ESRCH) => return Ok(()),
            Err(error) => return Err(error),
        };
        let trap = if signal == Signal::SIGTRAP as i32 { Trap::of(tid) } else { Trap::Sent };
        if trap == Trap::Breakpoint && self.stopped_at_breakpoint(tid, regs) {
            return Ok(());
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            if !self.is_thread(tid) {
                self.strays.push(tid);
                return Ok(());
            }
            // A new thread; its first stop is reported separately.
            self.threads.insert(tid, Thread::new(tid, regs));
            self.counts.threads = self.counts.threads.saturating_add(1);
            return Ok(());
        };
        let before = thread.before;
        let flow = thread.under_way.map(|step| step.flow);
        let is_step = trap == Trap::Step || (trap == Trap::Breakpoint && !is_own_trap(thread.under_way));
        let is_running = thread.under_way.is_some_and(|step| step.is_running) && !thread.is_in_kernel;
        // The signal arrived before the instruction was executed, unless that was a system call which the signal
        // interrupted, or the thread ran on.
        if is_step || is_running || regs.ip() != before.ip() {
            self.is_dirty |= flow == Some(Flow::Syscall) && changes_mappings(before.ax);
            thread.stepped(regs, &self.breakpoints, &mut self.maps, &mut self.counts);
        }
        if is_step && flow == Some(Flow::PushFlags) && regs.ip() != before.ip() {
            forget_trap_flag(&self.breakpoints.memory, regs.sp());
        }
        thread.under_way = None;
        thread.is_in_kernel = false;
        if is_step {
            return self.returned_from_vfork(tid);
        }
        match Signal::try_from(signal) {
            Ok(Signal::SIGSTOP) if thread.stop_requested.take().is_some() => {}
            // A stopped program would never be stepped again.
            Ok(Signal::SIGSTOP | Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU) if !is_caught(tid, signal) => {
                self.counts.stops_ignored = self.counts.stops_ignored.saturating_add(1);
            }
            _ => thread.signal = Some(signal),
        }
        Ok(())
    }

    fn event(&mut self, tid: Pid, event: i32) -> anyhow::Result<()> {
        let is = |kind: ptrace::Event| event == kind as i32;
        if is(ptrace::Event::PTRACE_EVENT_EXEC) {
            self.counts.execs = self.counts.execs.saturating_add(1);
            self.code.clear();
            self.begin_image(tid)?;
            // The system call has not returned yet.
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.under_way = Some(UnderWay { flow: Flow::Other, has_signal: false, is_running: false });
            }
        } else if [
            ptrace::Event::PTRACE_EVENT_FORK,
            ptrace::Event::PTRACE_EVENT_VFORK,
            ptrace::Event::PTRACE_EVENT_CLONE,
        ]
        .into_iter()
        .any(is)
        {
            let message = ptrace::getevent(tid).context("reading the new process's id")?;
            let new = Pid::from_raw(i32::try_from(message).context("the new process's id")?);
            if !self.is_thread(new) {
                self.stop_running()?;
                self.lift_from_child(tid, new, event)?;
                self.detach(new)?;
            }
        }
        step(tid, None)
    }

    /// Whether a task is a thread of the process, and not another process.
    fn is_thread(&self, tid: Pid) -> bool {
        Path::new(&format!("/proc/{}/task/{tid}", self.pid)).exists()
    }

    /// Detaches a new process once it has stopped.
    fn detach(&mut self, pid: Pid) -> anyhow::Result<()> {
        self.counts.processes_not_followed = self.counts.processes_not_followed.saturating_add(1);
        match self.strays.iter().position(|&stray| stray == pid) {
            Some(index) => {
                self.strays.swap_remove(index);
            }
            None => loop {
                match wait(Some(pid), true) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.raw_os_error() == Some(Errno::ECHILD as i32) => return Ok(()),
                    Err(error) => return Err(error).context("waiting for a new process"),
                    Ok(Some((_, Report::Exited(_) | Report::Killed(_)))) => return Ok(()),
                    Ok(_) => break,
                }
            },
        }
        match ptrace::detach(pid, None) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error).context("detaching from a child"),
        }
    }

    fn gone(&mut self, tid: Pid, how: &str) {
        self.threads.remove(&tid);
        if tid != self.pid {
            return;
        }
        self.ended = Some(match self.stop.signal() {
            Some(_) => format!("killed after {} instructions: interrupted", self.counts.instructions),
            None => how.to_owned(),
        });
    }

    /// Ends the program early.
    fn end_early(&mut self) -> anyhow::Result<()> {
        let why = if self.stop.signal().is_some() { "interrupted" } else { "--max-instructions" };
        let n = self.counts.instructions;
        match nix::sys::signal::kill(self.pid, Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error).context("ending the program"),
        }
        self.ended = Some(format!("killed after {n} instructions: {why}"));
        Ok(())
    }
}

/// Whether a system call with this number may change mappings.
pub(super) fn changes_mappings(number: u64) -> bool {
    MAPPING_CALLS.contains(&number)
}

/// Whether the program itself may have raised a SIGTRAP with this instruction, or while running to a transfer.
fn is_own_trap(step: Option<UnderWay>) -> bool {
    step.is_some_and(|step| step.is_running || matches!(step.flow, Flow::Breakpoint | Flow::Syscall))
}

/// Removes the trap flag of a step from the flags that it pushed: a program that loads them again, as libraries do that ask
/// for a processor's abilities, would keep it, and its children would be killed by it.
fn forget_trap_flag(memory: &Memory, sp: u64) {
    const TRAP_FLAG: u64 = 1 << 8;
    if let Some(flags) = memory.read_u64(sp) {
        // Without it, the program behaves otherwise than alone, but nothing is lost.
        let _ = memory.write(sp, &(flags & !TRAP_FLAG).to_le_bytes());
    }
}

/// Fills in the sample that would be taken before the current instruction.
fn fill(sample: &mut Sample, thread: &Thread, memory: &Memory, maps: &mut Maps, start_stack: u64) {
    let Thread { before: regs, shadow, tid, .. } = thread;
    let sp = regs.sp();
    if maps.find(sp).is_none() {
        // The stack may just have grown. If its mapping is still missing, the sample's stack is empty, and is reported
        // as such.
        let _ = maps.read(*tid);
    }
    let end = maps.find(sp).map(|vma| match sp <= start_stack && vma.range().contains(&start_stack) {
        true => (start_stack, StackEndSource::StartStack),
        false => (vma.end, StackEndSource::Mapping),
    });
    let wanted = shadow.top_slot().unwrap_or(sp).max(sp).saturating_add(ABOVE_BYTES);
    let bytes = end.map_or(sp, |(end, _)| end).min(wanted).saturating_sub(sp).min(u64::from(MAX_STACK_BYTES));
    for below in [regs.user.red_zone_bytes(), 0] {
        sample.bytes_below_sp = below;
        sample.stack.resize(usize::try_from(bytes).unwrap_or(0).saturating_add(usize::from(below)), 0);
        let n = memory.read(sp.wrapping_sub(u64::from(below)), &mut sample.stack);
        sample.stack.truncate(n);
        if n > usize::from(below) {
            break;
        }
    }
    sample.stack_end = end.map(|(address, source)| StackEnd { address, source });
    sample.user_regs = Some(regs.user);
}
