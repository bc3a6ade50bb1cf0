//! The walk with all registers: every architecture, every rule, and the options' guesses.

use super::caller::{FrameRegs, Unwound};
use super::code::{Code, NO_CFI, NOT_KNOWN_TO_BE_CODE, find_code};
use super::fallback::guess_leaf;
use super::options::Options;
use super::outermost::{self, Above};
use super::resolve::{has_call_before, is_after_call};
use super::row_cache::RowCache;
use crate::arch::Spec;
use crate::cfi::{RegisterRule, Scratch};
use crate::memory::Memory;
use crate::regs::Regs;
use crate::space::{Modules, Space};
use crate::stack::{BrokenReason, Frame, FrameFlags, FrameSource, Root, Stack, StopReason, TruncatedReason};

/// The inputs and caches of a walk.
pub(super) struct FullWalk<'a, M: ?Sized, Y> {
    pub(super) options: &'a Options,
    pub(super) scratch: &'a mut Scratch,
    pub(super) rows: &'a mut RowCache,
    pub(super) modules: &'a M,
    pub(super) space: &'a Space,
    pub(super) memory: &'a Y,
}

/// The frame a walk has reached.
struct Position {
    regs: FrameRegs,
    source: FrameSource,
    flags: FrameFlags,
}

impl<M: Modules + ?Sized, Y: Memory> FullWalk<'_, M, Y> {
    /// Walks from the sampled registers into `out`, which must be empty.
    pub(super) fn run(mut self, regs: &Regs, out: &mut Stack) {
        let flags = FrameFlags { is_instruction: true, ..FrameFlags::default() };
        let mut position = Position { regs: FrameRegs::new(*regs), source: FrameSource::Registers, flags };
        let mut budget = self.options.max_expression_steps;
        let mut cycle = Cycle::default();
        loop {
            match self.step(&position, &mut budget, out) {
                Ok(caller) => position = caller,
                Err(stop) => {
                    out.stop = stop;
                    return;
                }
            }
            if cycle.is_closed_by(&position.regs.regs) {
                out.stop = StopReason::Broken(BrokenReason::Loop);
                return;
            }
        }
    }

    /// Adds the frame at `position` and returns its caller.
    fn step(&mut self, position: &Position, budget: &mut u32, out: &mut Stack) -> Result<Position, StopReason> {
        let spec = position.regs.regs.arch().spec();
        let address = position.regs.get(spec.ip)?;
        let mut frame = Frame { address, cfa: 0, source: position.source, flags: position.flags };
        let code = find_code(self.modules, self.space, position.regs.regs.arch(), frame.lookup());
        let is_nowhere = code.is_err_and(|stop| stop == StopReason::Broken(BrokenReason::RaNotExec));
        let is_bad_jump = is_nowhere && position.flags.is_instruction && position.source != FrameSource::Registers;
        let code = match code {
            // A sampled or interrupted instruction is not a return address: execution itself went astray, not the walk.
            Err(_) if is_nowhere && position.flags.is_instruction => Err(NOT_KNOWN_TO_BE_CODE),
            Err(stop) if is_nowhere => return Err(stop),
            code => code,
        };
        if out.frames.len() as u64 >= u64::from(self.options.max_depth) {
            return Err(StopReason::Truncated(TruncatedReason::MaxDepth));
        }
        let result = match code {
            Ok(code) if self.is_new_thread(&code, position) => Err(StopReason::Complete(Root::ThreadStart)),
            Ok(code) => {
                let memory = self.memory;
                let space = self.space;
                self.rows.find(self.modules, &code, self.scratch).and_then(|row| {
                    let is_instruction = position.flags.is_instruction;
                    let mask = self.options.mask(spec);
                    let mut unwound =
                        Unwound { spec, mask, frame: &position.regs, code, row, memory, budget, is_instruction };
                    follow_row(&mut unwound, self.modules, space, &mut frame)
                })
            }
            Err(stop) if is_bad_jump => self.caller_after_bad_jump(spec, position, &mut frame).ok_or(stop),
            Err(stop) => Err(stop),
        };
        let result = match (result, code) {
            (Err(NO_CFI), Ok(code)) => match self.caller_in_system_call(&code, position, &mut frame) {
                Some(caller) => Ok(caller),
                None => self.above(&code, position, &mut frame),
            },
            (result, _) => result,
        };
        let result = match result {
            Err(stop) if self.options.may_guess(stop) => self.guess(position, &mut frame).ok_or(stop),
            result => result,
        };
        out.frames.push(frame);
        result
    }

    /// The caller of a frame without call frame information, if its position in the stack identifies it.
    fn above(&self, code: &Code<'_>, position: &Position, frame: &mut Frame) -> Result<Position, StopReason> {
        let sp = position.regs.get(code.module.arch().spec().sp).map_err(|_| NO_CFI)?;
        match outermost::above(self.modules, self.space, code, self.memory, sp).ok_or(NO_CFI)? {
            Above::Nothing(root) => Err(StopReason::Complete(root)),
            Above::Entry { return_address, sp } => {
                let arch = code.module.arch();
                let mut regs = Regs::new(arch);
                regs.set(arch.spec().ip, return_address);
                regs.set(arch.spec().sp, sp);
                frame.cfa = sp;
                let flags = FrameFlags::default();
                Ok(Position { regs: FrameRegs::new(regs), source: FrameSource::Heuristic, flags })
            }
        }
    }

    /// The caller of an interrupted frame whose instruction is not in any code: a bad call went there, and its return
    /// address is at the stack pointer.
    fn caller_after_bad_jump(&self, spec: &'static Spec, position: &Position, frame: &mut Frame) -> Option<Position> {
        let is_call_left = |address| is_after_call(self.modules, self.space, spec, address);
        self.caller_of_leaf(spec, position, frame, is_call_left)
    }

    /// The caller of a frame after a system call that has no unwind information: glibc ends the FDE of `clone` and
    /// `clone3` before the system call, since no row would be right for the new thread. The code has pushed nothing, so
    /// the return address is at the stack pointer.
    ///
    /// # Sources
    /// glibc `sysdeps/unix/sysv/linux/x86_64/clone3.S`, "End FDE now".
    fn caller_in_system_call(&self, code: &Code<'_>, position: &Position, frame: &mut Frame) -> Option<Position> {
        if !position.flags.is_instruction || !code.follows_system_call(self.modules) {
            return None;
        }
        let spec = code.module.arch().spec();
        let is_call_left = |address| has_call_before(self.modules, self.space, spec, address) == Some(true);
        self.caller_of_leaf(spec, position, frame, is_call_left)
    }

    /// Whether this is a thread that `clone` has just created and that has not run an instruction yet: the system call
    /// returns zero to it. Its stack is empty, and the rows, which glibc has here on aarch64, are those of the creating
    /// thread.
    ///
    /// The creating thread gets the thread ID. During its call the register holds an error number on x86-64 and i386;
    /// on aarch64 it holds the first argument, flags or a pointer, neither of which is zero for a new thread.
    fn is_new_thread(&self, code: &Code<'_>, position: &Position) -> bool {
        /// The register with the result of a system call: number 0 on x86-64, i386 and aarch64.
        const RESULT: u16 = 0;
        position.flags.is_instruction
            && position.regs.regs.get(RESULT) == Some(0)
            && code.follows_system_call(self.modules)
            && code.goes_on_to_start_thread(self.modules)
    }

    /// The caller of a frame whose return address is still where the call put it, if `is_call_left` accepts that
    /// address.
    fn caller_of_leaf(
        &self,
        spec: &'static Spec,
        position: &Position,
        frame: &mut Frame,
        is_call_left: impl Fn(u64) -> bool,
    ) -> Option<Position> {
        let guess = guess_leaf(spec, self.options.mask(spec), self.space, &position.regs, self.memory)?;
        guess.caller.regs.ip().filter(|&address| is_call_left(address))?;
        frame.cfa = guess.cfa;
        Some(Position { regs: guess.caller, source: guess.source, flags: guess.flags })
    }

    fn guess(&self, position: &Position, frame: &mut Frame) -> Option<Position> {
        let guess = self.options.guess(self.modules, self.space, frame, &position.regs, self.memory)?;
        frame.cfa = guess.cfa;
        Some(Position { regs: guess.caller, source: guess.source, flags: guess.flags })
    }
}

/// Recovers the caller by the row that covers the frame, and sets the frame's CFA.
fn follow_row<M: Modules + ?Sized, Y: Memory>(
    unwound: &mut Unwound<'_, '_, Y>,
    modules: &M,
    space: &Space,
    frame: &mut Frame,
) -> Result<Position, StopReason> {
    if unwound.row.is_outermost() {
        return Err(StopReason::Complete(unwound.row.root));
    }
    let cfa = unwound.cfa()?;
    let sp = unwound.spec.sp;
    let is_signal_frame = unwound.row.is_signal_frame;
    let has_own_sp = unwound.row.state.rule(sp) != RegisterRule::Unspecified;
    // GHC's entry into Haskell code has an unusual CFA, equal to sp: the row locates registers, sp included, relative
    // to it. `__longjmp` describes the stack it is going to, from its `jmp_buf`, which is not this frame's.
    let is_from_sp = has_own_sp && cfa == unwound.frame.get(sp)?;
    let mut grows = is_signal_frame || is_above(unwound, space, cfa)? || has_popped(unwound, modules, space, cfa)?;
    if !grows && !is_from_sp {
        return Err(StopReason::Broken(BrokenReason::CfaNotIncreasing));
    }
    frame.cfa = cfa;
    let return_address = unwound.return_address(cfa)?;
    let regs = unwound.caller(cfa, return_address)?;
    if has_own_sp && let Ok(above) = regs.get(sp) {
        grows |= above > unwound.frame.get(sp)?;
        frame.cfa = above;
    }
    if !grows {
        frame.cfa = 0;
        return Err(StopReason::Broken(BrokenReason::CfaNotIncreasing));
    }
    let flags = FrameFlags { is_instruction: is_signal_frame, ..FrameFlags::default() };
    Ok(Position { regs, source: FrameSource::Cfi, flags })
}

/// Whether a leaf has popped its return address, which the row still finds in its slot below the stack pointer. OCaml's
/// `caml_c_call` pops it to store it. A call must precede the address, since a wrong row could find anything there.
fn has_popped<M: Modules + ?Sized, Y: Memory>(
    unwound: &mut Unwound<'_, '_, Y>,
    modules: &M,
    space: &Space,
    cfa: u64,
) -> Result<bool, StopReason> {
    let rule = unwound.row.state.rule(unwound.row.return_address_register);
    let is_slot = matches!(rule, RegisterRule::Offset(..0)) && unwound.is_instruction;
    if !is_slot || cfa != unwound.frame.get(unwound.spec.sp)? {
        return Ok(false);
    }
    let return_address = unwound.return_address(cfa)?;
    Ok(has_call_before(modules, space, unwound.spec, return_address) == Some(true))
}

/// Whether a CFA is above the frame, or in another stack.
fn is_above<Y: Memory>(unwound: &Unwound<'_, '_, Y>, space: &Space, cfa: u64) -> Result<bool, StopReason> {
    let sp = unwound.frame.get(unwound.spec.sp)?;
    // A leaf need not touch the stack if its return address is in a register: the link register, or the one into which
    // `vfork` and the end of exception unwinding pop it. glibc before 2.20 jumped to out-of-line code that called
    // `__lll_lock_wait`: the rows there compute the return address, and step over the red zone first.
    let register = unwound.row.return_address_register;
    let below = match unwound.row.state.rule(register) {
        RegisterRule::Register(_) => Some(0),
        RegisterRule::Unspecified | RegisterRule::SameValue if unwound.spec.lr == Some(register) => Some(0),
        RegisterRule::ValExpression(_) => Some(unwound.spec.red_zone_bytes),
        _ => None,
    };
    let is_leaf_without_slot =
        unwound.is_instruction && below.is_some_and(|below| cfa >= sp.saturating_sub(below) && cfa <= sp);
    if cfa > sp || is_leaf_without_slot {
        return Ok(true);
    }
    let is_other_mapping = match (space.find(sp), space.find(cfa)) {
        (Some(one), Some(other)) => one.start != other.start && !other.executable && other.module.is_none(),
        _ => false,
    };
    Ok(is_other_mapping || !unwound.memory.is_same_stack(sp, cfa))
}

/// Detects cycles: compares each position with an earlier one, which is replaced at every power of two.
///
/// # Sources
/// R. P. Brent (1980), "An improved Monte Carlo factorization algorithm", BIT 20, §2.
#[derive(Default)]
struct Cycle {
    tortoise: Option<Regs>,
    n_steps: u32,
    power: u32,
}

impl Cycle {
    fn is_closed_by(&mut self, regs: &Regs) -> bool {
        if self.tortoise.is_some_and(|tortoise| tortoise == *regs) {
            return true;
        }
        if self.n_steps >= self.power {
            self.tortoise = Some(*regs);
            self.power = self.power.saturating_mul(2).max(1);
            self.n_steps = 0;
        }
        self.n_steps = self.n_steps.saturating_add(1);
        false
    }
}
