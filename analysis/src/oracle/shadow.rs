//! The shadow stack of a thread: its callers, derived from calls and stack pointers alone.
//!
//! ```text
//! call                     push (return address, its slot)
//! any instruction          drop entries below the stack pointer: return, longjmp, exception, pop
//! pop of a return address  it is in a register: keep it until a jump, or until its slot is overwritten
//! signal handler entered   push the interrupted instruction, then (restorer, its slot)
//! stack pointer elsewhere  another stack: suspend this one, begin or resume the other
//! ```
//!
//! Another stack is one that the stack pointer is set to outside the range this one has used: stacks of coroutines may
//! share a mapping. If the beginning of a stack was not seen (Go moves stacks), its frames are unknown.
//!
//! A tail call is a jump, and leaves no trace here or on the stack. A return without a matching call counts as a jump.
//! Frame pointers, call frame information and symbols are not used.

use std::ops::Range;

/// The most suspended stacks kept; in programs with more coroutines the oldest ones are unknown when they resume.
const MAX_PARKED: usize = 4096;
/// The most frames kept, over all stacks of a thread. Infinite recursion reaches the end of its stack before.
const MAX_ENTRIES: usize = 4 << 20;
/// A stack resumes this close to where it was left: a context switch saves its stack pointer with or without the
/// return address and saved registers.
const RESUME_BYTES: u64 = 128;
/// A stack extends at most this far above the first stack pointer seen in it: its first function pops its return
/// address and its arguments.
const ABOVE_FIRST_BYTES: u64 = 64;
/// A signal frame on the same stack begins at most this far below the interrupted stack pointer: the red zone, the
/// registers, and the extended state with its 8 KiB of tiles.
///
/// # Sources
/// `get_sigframe` in the kernel's `arch/x86/kernel/signal.c`; AMX state in Intel SDM vol. 1, §13.
const MAX_SIGNAL_FRAME_BYTES: u64 = 32 << 10;
/// Offset of the interrupted stack pointer in a signal frame; the instruction pointer follows it.
///
/// # Sources
/// `struct rt_sigframe` in the kernel's `arch/x86/include/asm/sigframe.h`: restorer (8), `ucontext` (40 bytes before
/// its registers), `struct sigcontext`: r8–r15, di, si, bp, bx, dx, ax, cx, then sp and ip.
pub const SIGNAL_FRAME_SP: u64 = 8 + 40 + 15 * 8;

/// A true frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrueFrame {
    /// The current instruction, an interrupted one, or a return address. AVMA.
    pub address: u64,
    /// The caller's stack pointer after the return; `None` for the outermost frame.
    pub cfa: Option<u64>,
}

/// Why the true stack of an instruction is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unknown {
    /// The stack pointer was set to another stack, but the jump to the code that runs there is still to come.
    BetweenStacks,
    /// A return address on the stack is not the one that the call pushed: the frame will not return to its caller.
    ReturnAddressOverwritten,
    /// A signal handler has changed the registers that it will return to.
    InterruptedRegistersChanged,
    /// More frames than the limit.
    TooDeep,
    /// The beginning of the stack was not seen: it was first entered in the middle of its calls.
    BeginningNotSeen,
    /// The stack pointer was set to a caller's frame, as `longjmp` does, but the jump there is still to come.
    BetweenFrames,
}

impl Unknown {
    /// The name used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BetweenStacks => "between_stacks",
            Self::ReturnAddressOverwritten => "return_address_overwritten",
            Self::InterruptedRegistersChanged => "interrupted_registers_changed",
            Self::TooDeep => "too_deep",
            Self::BeginningNotSeen => "beginning_not_seen",
            Self::BetweenFrames => "between_frames",
        }
    }
}

/// The meaning of a change of the stack pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// The same stack; this many frames were left.
    Within(usize),
    /// A switch to another stack.
    ToOtherStack,
}

#[derive(Debug, Clone, Copy)]
enum Entry {
    Call {
        return_address: u64,
        slot: u64,
        /// It was popped by something other than a return: `vfork` keeps it in a register, and pushes it again.
        is_popped: bool,
    },
    /// A handler runs: `ip` and `sp` are those of the interrupted code.
    Signal { ip: u64, sp: u64, frame: u64 },
}

impl Entry {
    /// The entry is dropped when the stack pointer is above this.
    fn limit(self) -> u64 {
        match self {
            Self::Call { slot, is_popped, .. } => slot.saturating_add(if is_popped { 8 } else { 0 }),
            // The handler has returned and the restorer runs, with the stack pointer one word above the frame.
            Self::Signal { frame, .. } => frame.saturating_add(8),
        }
    }
}

/// What precedes the first entry of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    /// Nothing.
    Root,
    /// The stack that the thread was on before.
    Previous,
    /// Not known yet: nothing was called here, and it was not jumped into.
    Undecided,
    /// Frames that were not seen.
    Unseen,
}

/// The state of a stack when it is jumped into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstWord {
    /// The word at the stack pointer: a return address, or 0 if there is none.
    pub return_address: u64,
    /// The word follows a call: the stack is not new, as those of `makecontext`, but was moved here.
    pub is_after_call: bool,
}

#[derive(Debug, Clone)]
struct Segment {
    base: Base,
    entries: Vec<Entry>,
    /// The last stack pointer in it.
    sp: u64,
    /// The first stack pointer in it, above which it has no frames.
    first_sp: u64,
}

impl Segment {
    const fn new(base: Base, sp: u64) -> Self {
        Self { base, entries: Vec::new(), sp, first_sp: sp }
    }

    /// Whether the stack pointer is in the range the stack uses.
    const fn contains(&self, sp: u64) -> bool {
        sp >= self.sp.saturating_sub(RESUME_BYTES) && sp <= self.first_sp.saturating_add(ABOVE_FIRST_BYTES)
    }

    /// Whether a function continued here from the previous stack, and may return there without notice.
    fn is_excursion(&self) -> bool {
        matches!(self.base, Base::Previous | Base::Undecided)
            && !matches!(self.entries.first(), Some(Entry::Signal { .. }))
    }
}

/// The shadow stack of one thread.
#[derive(Debug, Clone)]
pub struct ShadowStack {
    /// The current stack is last.
    segments: Vec<Segment>,
    parked: Vec<Segment>,
    n_entries: usize,
    is_too_deep: bool,
    /// The stack was switched, and nothing was called, returned or jumped to since.
    is_settling: bool,
    /// Frames were left without a return, and nothing was called, returned or jumped to since.
    is_leaving: bool,
}

impl ShadowStack {
    /// A thread that begins with this stack pointer and without a caller.
    #[must_use]
    pub fn new(sp: u64) -> Self {
        Self {
            segments: vec![Segment::new(Base::Root, sp)],
            parked: Vec::new(),
            n_entries: 0,
            is_too_deep: false,
            is_settling: false,
            is_leaving: false,
        }
    }

    /// Records a call that stored its return address in `slot`.
    pub fn called(&mut self, return_address: u64, slot: u64) {
        if self.is_undecided() {
            // The function that switched stacks continues, and calls from the new one.
            self.decide(slot, Base::Previous);
        }
        if self.has_popped() && self.innermost_slot() == Some(slot) {
            self.pop();
        }
        self.push(Entry::Call { return_address, slot, is_popped: false });
        self.is_settling = false;
        self.is_leaving = false;
        if let Some(top) = self.segments.last_mut() {
            top.sp = slot;
        }
    }

    /// Records the entry of a handler with stack pointer `frame`, whose return address is `restorer`.
    pub fn interrupted(&mut self, ip: u64, sp: u64, frame: u64, restorer: u64) {
        let is_same_stack = sp.checked_sub(frame).is_some_and(|below| below <= MAX_SIGNAL_FRAME_BYTES);
        if !is_same_stack {
            self.segments.push(Segment::new(Base::Previous, frame));
        }
        self.push(Entry::Signal { ip, sp, frame });
        self.push(Entry::Call { return_address: restorer, slot: frame, is_popped: false });
        if let Some(top) = self.segments.last_mut() {
            top.sp = frame;
        }
    }

    /// Records the return of a handler to what it interrupted, and returns the interrupted stack pointer. `None` if no
    /// handler was entered.
    pub fn resumed(&mut self, sp: u64) -> Option<u64> {
        let has_signal = |segment: &Segment| segment.entries.iter().any(|entry| matches!(entry, Entry::Signal { .. }));
        let index = self.segments.iter().rposition(has_signal)?;
        let mut interrupted_sp = None;
        self.segments.truncate(index.saturating_add(1));
        if let Some(segment) = self.segments.last_mut() {
            while let Some(entry) = segment.entries.pop() {
                if let Entry::Signal { sp, .. } = entry {
                    interrupted_sp = Some(sp);
                    break;
                }
            }
            if segment.entries.is_empty() && index > 0 && segment.base == Base::Previous {
                self.segments.pop();
            }
        }
        self.recount();
        self.left_below(sp);
        self.is_leaving = false;
        interrupted_sp
    }

    /// Records a change of the stack pointer within the same stack; returns the number of frames that were left. `word`
    /// reads this stack.
    #[inline]
    pub fn moved(&mut self, sp: u64, word: impl FnOnce(u64) -> Option<u64>) -> usize {
        let is_alone = self.segments.len() == 1;
        let Some(top) = self.segments.last_mut() else { return 0 };
        if sp > top.first_sp && !is_alone && self.drop_excursions(sp) {
            return self.left_below(sp);
        }
        let Some(top) = self.segments.last_mut() else { return 0 };
        top.sp = sp;
        match top.entries.last_mut() {
            Some(Entry::Call { slot, is_popped: is_popped @ false, .. }) if slot.checked_add(8) == Some(sp) => {
                *is_popped = true;
                1
            }
            Some(Entry::Call { slot, return_address, is_popped: is_popped @ true }) if sp <= *slot => {
                *is_popped = false;
                // The return address is on the stack again, or the function has discarded it.
                if word(*slot) != Some(*return_address) {
                    self.pop();
                }
                0
            }
            Some(entry) if sp > entry.limit() => {
                self.is_leaving = true;
                self.left_below(sp)
            }
            _ => 0,
        }
    }

    /// Records a change of the stack pointer by so much that it may be in another stack. `vma` returns the bounds of
    /// the mapping that contains an address.
    pub fn moved_far(&mut self, sp: u64, vma: impl Fn(u64) -> Option<Range<u64>>) -> Moved {
        let moved = self.change_stack(sp, vma);
        self.is_settling |= moved == Moved::ToOtherStack;
        moved
    }

    /// Records that the stack pointer was set to a value other than its old one plus an offset, however near: if it is
    /// outside the used range of this stack, it is another one.
    pub fn was_set(&mut self, sp: u64) -> Moved {
        let is_here = self.segments.last().is_some_and(|top| top.contains(sp));
        if (is_here && !self.parked.iter().any(|segment| segment.contains(sp))) || self.drop_excursions(sp) {
            return Moved::Within(self.set(sp));
        }
        self.is_settling = true;
        if !self.resume_parked(sp) && !self.resume_suspended(sp, |segment| segment.contains(sp)) {
            self.segments.push(Segment::new(Base::Undecided, sp));
        }
        Moved::ToOtherStack
    }

    fn change_stack(&mut self, sp: u64, vma: impl Fn(u64) -> Option<Range<u64>>) -> Moved {
        if self.resume_parked(sp) {
            return Moved::ToOtherStack;
        }
        let here = vma(sp);
        let is_here = |segment: &Segment| here.as_ref().is_some_and(|range| range.contains(&segment.sp));
        let is_left_here = self.segments.iter().rev().skip(1).any(|segment| is_near(segment, sp));
        if !is_left_here && self.segments.last().is_some_and(is_here) {
            return Moved::Within(self.set(sp));
        }
        if !self.resume_suspended(sp, is_here) {
            self.segments.push(Segment::new(Base::Undecided, sp));
        }
        Moved::ToOtherStack
    }

    /// Moves the stack pointer within the same stack.
    fn set(&mut self, sp: u64) -> usize {
        let n_left = self.moved(sp, |_| None);
        // This was not a pop.
        self.is_leaving |= n_left > 0;
        n_left
    }

    /// Resumes a stack that was switched away from, and seemed to be abandoned.
    fn resume_parked(&mut self, sp: u64) -> bool {
        let Some(index) = self.parked.iter().rposition(|segment| is_near(segment, sp)) else { return false };
        let mut segment = self.parked.remove(index);
        if segment.entries.first().is_none_or(|outermost| sp > outermost.limit()) {
            // Its memory is used anew.
            self.recount();
            return false;
        }
        if segment.base == Base::Previous {
            // Another stack now precedes it, or none.
            segment.base = Base::Unseen;
        }
        self.park_top();
        self.segments.push(segment);
        self.left_below(sp);
        true
    }

    /// Resumes a stack below the current one: where it was left, or else where `is_here` says.
    fn resume_suspended(&mut self, sp: u64, is_here: impl Fn(&Segment) -> bool) -> bool {
        let suspended = self.segments.get(..self.segments.len().saturating_sub(1)).unwrap_or_default();
        let left = suspended.iter().rposition(|segment| is_near(segment, sp));
        let Some(index) = left.or_else(|| suspended.iter().rposition(is_here)) else { return false };
        while self.segments.len() > index.saturating_add(1) {
            self.park_top();
        }
        self.left_below(sp);
        true
    }

    /// Drops stacks on which a function merely continued, if the stack pointer is back where it came from. `false` if
    /// it is not.
    fn drop_excursions(&mut self, sp: u64) -> bool {
        let mut n_left = 0_usize;
        for pair in self.segments.windows(2).rev() {
            let [before, excursion] = pair else { break };
            if !excursion.is_excursion() || sp <= excursion.first_sp {
                break;
            }
            n_left = n_left.saturating_add(1);
            if before.contains(sp) {
                self.segments.truncate(self.segments.len().saturating_sub(n_left));
                self.recount();
                self.is_settling = false;
                return true;
            }
        }
        false
    }

    /// Records an indirect jump, or a return, with `first` at the stack pointer. On a new stack this enters its first
    /// function, as set up by `makecontext`; elsewhere it may be a tail call, and nothing changes.
    #[inline]
    pub fn jumped(&mut self, sp: u64, first: impl FnOnce() -> Option<FirstWord>) {
        self.is_settling = false;
        self.is_leaving = false;
        if self.has_popped() {
            self.pop();
        }
        if !self.is_undecided() {
            return;
        }
        match first() {
            // Into the middle of a function, as Go resumes a goroutine: its callers were not seen.
            None => self.decide(sp, Base::Unseen),
            Some(first) => {
                self.decide(sp, if first.is_after_call { Base::Unseen } else { Base::Root });
                if first.return_address != 0 {
                    self.push(Entry::Call { return_address: first.return_address, slot: sp, is_popped: false });
                }
            }
        }
    }

    fn is_undecided(&self) -> bool {
        self.segments.last().is_some_and(|top| top.base == Base::Undecided)
    }

    /// Decides what precedes the current stack, which is in use from now on.
    fn decide(&mut self, sp: u64, base: Base) {
        // Earlier users of this memory are gone: Go begins each excursion to a thread's own stack at the same address.
        self.parked.retain(|segment| !segment.contains(sp));
        self.recount();
        if let Some(top) = self.segments.last_mut() {
            top.base = base;
        }
    }

    /// The highest address of the current stack with a known frame.
    #[must_use]
    pub fn top_slot(&self) -> Option<u64> {
        self.segments.last()?.entries.first().map(|entry| entry.limit())
    }

    /// The slot of the innermost return address.
    #[must_use]
    pub fn innermost_slot(&self) -> Option<u64> {
        match self.segments.last()?.entries.last()? {
            Entry::Call { slot, .. } => Some(*slot),
            Entry::Signal { .. } => None,
        }
    }

    /// Writes the current frames, leaf first, to `out`. `word` reads the current stack, as far as it can.
    ///
    /// # Errors
    /// Why they are not known.
    pub fn frames(&self, ip: u64, word: impl Fn(u64) -> Option<u64>, out: &mut Vec<TrueFrame>) -> Result<(), Unknown> {
        out.clear();
        if self.is_too_deep {
            return Err(Unknown::TooDeep);
        }
        if self.is_settling {
            return Err(Unknown::BetweenStacks);
        }
        if self.is_leaving {
            return Err(Unknown::BetweenFrames);
        }
        let mut address = ip;
        for (depth, segment) in self.segments.iter().rev().enumerate() {
            if segment.base == Base::Undecided {
                return Err(Unknown::BetweenStacks);
            }
            for entry in segment.entries.iter().rev() {
                match *entry {
                    Entry::Call { return_address, slot, is_popped } => {
                        // Only the current stack can be read.
                        if depth == 0 && !is_popped && word(slot).is_some_and(|present| present != return_address) {
                            return Err(Unknown::ReturnAddressOverwritten);
                        }
                        out.push(TrueFrame { address, cfa: Some(slot.saturating_add(8)) });
                        address = return_address;
                    }
                    Entry::Signal { ip, sp, frame } => {
                        let at = frame.saturating_add(SIGNAL_FRAME_SP);
                        let is_changed = |at, saved| word(at).is_some_and(|present| present != saved);
                        if depth == 0 && (is_changed(at, sp) || is_changed(at.saturating_add(8), ip)) {
                            return Err(Unknown::InterruptedRegistersChanged);
                        }
                        out.push(TrueFrame { address, cfa: Some(sp) });
                        address = ip;
                    }
                }
            }
            match segment.base {
                Base::Root => break,
                Base::Unseen => return Err(Unknown::BeginningNotSeen),
                Base::Previous | Base::Undecided => {}
            }
        }
        out.push(TrueFrame { address, cfa: None });
        Ok(())
    }

    fn push(&mut self, entry: Entry) {
        if self.n_entries >= MAX_ENTRIES {
            self.is_too_deep = true;
            return;
        }
        if let Some(top) = self.segments.last_mut() {
            top.entries.push(entry);
            self.n_entries = self.n_entries.saturating_add(1);
        }
    }

    /// Whether the innermost return address is in a register.
    fn has_popped(&self) -> bool {
        let top = self.segments.last().and_then(|top| top.entries.last());
        matches!(top, Some(Entry::Call { is_popped: true, .. }))
    }

    /// Drops the innermost frame of the current stack.
    fn pop(&mut self) {
        if self.segments.last_mut().is_some_and(|top| top.entries.pop().is_some()) {
            self.n_entries = self.n_entries.saturating_sub(1);
        }
    }

    /// Drops the frames below a stack pointer in the current stack.
    fn left_below(&mut self, sp: u64) -> usize {
        let Some(top) = self.segments.last_mut() else { return 0 };
        let before = top.entries.len();
        while top.entries.last().is_some_and(|entry| sp > entry.limit()) {
            top.entries.pop();
        }
        top.sp = sp;
        let left = before.saturating_sub(top.entries.len());
        self.n_entries = self.n_entries.saturating_sub(left);
        left
    }

    /// Suspends the current stack. One with a signal handler is dropped, since it was jumped out of and cannot resume.
    fn park_top(&mut self) {
        let Some(top) = self.segments.pop() else { return };
        let is_handler = matches!(top.entries.first(), Some(Entry::Signal { .. }));
        if is_handler || top.entries.is_empty() {
            self.recount();
            return;
        }
        if self.parked.len() >= MAX_PARKED {
            self.parked.remove(0);
            self.recount();
        }
        self.parked.push(top);
    }

    fn recount(&mut self) {
        self.n_entries = self.segments.iter().chain(&self.parked).map(|segment| segment.entries.len()).sum();
    }
}

/// Whether a stack was left near this stack pointer.
const fn is_near(segment: &Segment, sp: u64) -> bool {
    segment.sp.abs_diff(sp) <= RESUME_BYTES
}

#[cfg(test)]
mod tests;
