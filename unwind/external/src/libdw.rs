//! elfutils' libdw.

use crate::chunk::read_u64;
use crate::modules::Modules;
use crate::sessions::Sessions;
use crate::sys::libdw::{self as sys, Ended, Row, Session};
use crate::{Error, ExternalUnwinder, Request};
use fpprof_unwind::{BrokenReason, Frame, FrameFlags, FrameSource, Root, Stack, StopReason, TruncatedReason};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::ffi::CString;

/// The most rows cached for one address space; when there are more, all are dropped.
const MAX_ROWS: usize = 1 << 18;

/// DWARF number of the stack pointer (x86-64 psABI fig. 3.36).
const RSP: u32 = 7;

/// Callee-saved registers other than rbp (x86-64 psABI §3.2.1): rbx, r12 to r15.
const CALLEE_SAVED: [u32; 5] = [3, 12, 13, 14, 15];

/// elfutils' libdwfl, the unwinder of `eu-stack` and of newer perf.
///
/// A file is opened when a stack first reaches it, and only the file itself is used: neither separate debug files nor
/// debuginfod. Files stay open while their [`Request::modules_id`] is among the sixteen last used.
///
/// # How results map to stop reasons
///
/// libdwfl reports a return address that could not be read just like one that is undefined, and if there is no row it
/// silently follows the frame pointer. Therefore its reads and rows are examined as well:
///
/// | at the last frame | reason |
/// |---|---|
/// | no module | `no_module` (the library is not told which memory is executable) |
/// | the module's file can't be used | `module_unavailable`, `build_id_mismatch`, `abi32` |
/// | the module has no row | `no_cfi` |
/// | the row says that the return address is undefined | `complete(undefined_ra)` |
/// | a word that was needed is not in the chunk | see [`ReadFault`](fpprof_unwind::ReadFault); `red_zone` if it is in the red zone below the stack pointer |
/// | the return address is 0, which the library treats as undefined | `ra_not_exec` |
/// | the row could not be evaluated | `bad_cfi` |
/// | the next frame would be the same one | `loop` |
///
/// A frame found by the library's own frame-pointer walk has [`FrameSource::FramePointer`] and the flag `fp_fallback`.
///
/// The CFA of a frame is the stack pointer of the next; the last frame has none.
///
/// # Sources
/// elfutils 0.188, `libdwfl/frame_unwind.c`, `libdwfl/dwfl_frame.c`, `backends/x86_64_unwind.c`.
#[derive(Debug)]
pub struct Libdw {
    spaces: Sessions<Space>,
}

/// State kept for one list of modules.
#[derive(Debug)]
struct Space {
    modules: Modules,
    reports: RefCell<Vec<Report>>,
    rows: RefCell<FxHashMap<u64, Row>>,
    session: Session,
}

/// Whether a module was reported to the library.
#[derive(Debug, Clone, Copy)]
enum Report {
    NotYet,
    Done,
    Refused(TruncatedReason),
}

impl Libdw {
    /// Creates an unwinder without any modules. Each thread needs its own.
    #[must_use]
    pub const fn new() -> Self {
        Self { spaces: Sessions::new() }
    }
}

impl Default for Libdw {
    fn default() -> Self {
        Self::new()
    }
}

impl ExternalUnwinder for Libdw {
    fn name(&self) -> &'static str {
        "elfutils"
    }

    fn unwind(&mut self, request: &Request<'_>, out: &mut Stack) -> Result<(), Error> {
        out.frames.clear();
        let space = self.spaces.get_or_make(request.modules_id, || Space::new(request))?;
        let sample = Sample::new(space, request, std::mem::take(&mut out.frames));
        let stop = sample.run();
        out.frames = sample.frames.into_inner();
        out.stop = stop?;
        Ok(())
    }
}

impl Space {
    fn new(request: &Request<'_>) -> Result<Self, Error> {
        let modules = Modules::new(request.modules);
        let reports = RefCell::new(vec![Report::NotYet; modules.len()]);
        let session = Session::begin().ok_or(Error::NoAddressSpace { library: "libdw" })?;
        Ok(Self { modules, reports, rows: RefCell::default(), session })
    }

    /// Reports the module at an address to the library if necessary, or returns why that is not possible.
    fn require(&self, address: u64) -> Result<(), TruncatedReason> {
        let index = self.modules.find(address).ok_or(TruncatedReason::NoModule)?;
        self.require_module(index)
    }

    fn require_module(&self, index: usize) -> Result<(), TruncatedReason> {
        let report = self.reports.borrow().get(index).copied();
        let refusal = match report {
            Some(Report::Done) => return Ok(()),
            Some(Report::Refused(reason)) => return Err(reason),
            Some(Report::NotYet) | None => self.report(index),
        };
        if let Some(report) = self.reports.borrow_mut().get_mut(index) {
            *report = refusal.map_or_else(Report::Refused, |()| Report::Done);
        }
        refusal
    }

    fn report(&self, index: usize) -> Result<(), TruncatedReason> {
        let unavailable = TruncatedReason::ModuleUnavailable;
        let elf = self.modules.open(index)?;
        let module = self.modules.get(index).ok_or(TruncatedReason::NoModule)?;
        let name = CString::new(format!("module {index}")).map_err(|_has_nul| unavailable)?;
        self.session.report(&name, elf.file, module.bias).map_err(|_refused| unavailable)
    }

    /// Sets the library's architecture: that of the leaf's module, or else of the first that can be opened.
    fn attach(&self, leaf: Result<(), TruncatedReason>) -> Result<(), Error> {
        if leaf.is_ok() || (0..self.modules.len()).any(|index| self.require_module(index).is_ok()) {
            self.session.attach().map_err(|code| Error::Refused { library: "libdw", code })?;
        }
        Ok(())
    }

    /// The row at an address, whose module must have been reported.
    fn row(&self, address: u64) -> Row {
        if let Some(row) = self.rows.borrow().get(&address) {
            return *row;
        }
        let row = self.session.row(address);
        let mut rows = self.rows.borrow_mut();
        if rows.len() >= MAX_ROWS {
            rows.clear();
        }
        // A module reported later would change the answer.
        if row != Row::NoModule {
            rows.insert(address, row);
        }
        row
    }
}

/// One walk.
struct Sample<'a> {
    space: &'a Space,
    request: &'a Request<'a>,
    frames: RefCell<Vec<Frame>>,
    previous: Cell<Option<Previous>>,
    /// The first failed read since the last frame.
    fault: Cell<Option<StopReason>>,
    /// The first failed read before the last frame: a register was lost that may be needed later.
    earlier_fault: Cell<Option<StopReason>>,
    /// The last word read since the last frame: the return address, since its register is recovered last.
    last_read: Cell<Option<u64>>,
    /// Why we ended the walk.
    stop: Cell<Option<StopReason>>,
}

/// State of the previous (callee) frame.
#[derive(Debug, Clone, Copy)]
struct Previous {
    stack_pointer: Option<u64>,
    has_callee_saved: bool,
}

impl<'a> Sample<'a> {
    const fn new(space: &'a Space, request: &'a Request<'a>, frames: Vec<Frame>) -> Self {
        Self {
            space,
            request,
            frames: RefCell::new(frames),
            previous: Cell::new(None),
            fault: Cell::new(None),
            earlier_fault: Cell::new(None),
            last_read: Cell::new(None),
            stop: Cell::new(None),
        }
    }

    fn run(&self) -> Result<StopReason, Error> {
        if self.request.max_depth == 0 {
            return Ok(StopReason::Truncated(TruncatedReason::MaxDepth));
        }
        let [.., ip] = *self.request.regs;
        let leaf = self.space.require(ip);
        self.space.attach(leaf)?;
        let ended = self.space.session.walk(self);
        if self.frames.borrow().is_empty() {
            // No module can be used, so there is no architecture: the leaf is all we have.
            if leaf.is_ok() {
                let code = if let Ended::Failed(code) = ended { code } else { 0 };
                return Err(Error::Refused { library: "libdw", code });
            }
            let flags = FrameFlags { is_instruction: true, ..FrameFlags::default() };
            self.frames.borrow_mut().push(Frame { address: ip, cfa: 0, source: FrameSource::Registers, flags });
        }
        Ok(self.stop.get().unwrap_or_else(|| self.reason(ended)))
    }

    /// Why the library stopped at the last frame.
    fn reason(&self, ended: Ended) -> StopReason {
        let Some(last) = self.frames.borrow().last().copied() else {
            return StopReason::Truncated(TruncatedReason::NoModule);
        };
        if let Err(reason) = self.space.require(last.lookup()) {
            return StopReason::Truncated(reason);
        }
        let fault = self.fault.get().or(self.earlier_fault.get());
        match (self.space.row(last.lookup()), fault, ended) {
            (Row::NoModule, ..) => StopReason::Truncated(TruncatedReason::ModuleUnavailable),
            (Row::None, ..) => StopReason::Truncated(TruncatedReason::NoCfi),
            (Row::Found { is_root: true, .. }, ..) => StopReason::Complete(Root::UndefinedRa),
            (Row::Found { .. }, Some(fault), _) => fault,
            (Row::Found { .. }, None, Ended::Undefined) if self.last_read.get() == Some(0) => {
                StopReason::Broken(BrokenReason::RaNotExec)
            }
            (Row::Found { .. }, None, _) => StopReason::Broken(BrokenReason::BadCfi),
        }
    }

    /// How the library got from the callee `below` to this frame.
    fn source(&self, below: Option<&Frame>, previous: Option<Previous>, has_callee_saved: bool) -> FrameSource {
        let (Some(below), Some(previous)) = (below, previous) else { return FrameSource::Registers };
        // Its frame-pointer walk recovers rbp, rsp and the return address only.
        if previous.has_callee_saved && has_callee_saved {
            return FrameSource::Cfi;
        }
        match self.space.row(below.lookup()) {
            Row::Found { .. } => FrameSource::Cfi,
            Row::None | Row::NoModule => FrameSource::FramePointer,
        }
    }
}

impl sys::Walk for Sample<'_> {
    fn registers(&self) -> &[u64; 17] {
        self.request.regs
    }

    fn read(&self, address: u64) -> Option<u64> {
        match read_u64(&self.request.memory(), self.request.regs[7], address) {
            Ok(word) => {
                self.last_read.set(Some(word));
                Some(word)
            }
            Err(reason) => {
                self.fault.set(self.fault.get().or(Some(reason)));
                None
            }
        }
    }

    fn frame(&self, frame: &sys::Frame<'_>) -> bool {
        let Some(address) = frame.address() else { return false };
        let (depth, below) = {
            let frames = self.frames.borrow();
            (frames.len(), frames.last().copied())
        };
        if depth >= usize::try_from(self.request.max_depth).unwrap_or(usize::MAX) {
            self.stop.set(Some(StopReason::Truncated(TruncatedReason::MaxDepth)));
            return false;
        }
        self.earlier_fault.set(self.earlier_fault.get().or(self.fault.take()));
        self.last_read.set(None);

        let previous = self.previous.get();
        let stack_pointer = frame.register(RSP);
        let has_callee_saved = CALLEE_SAVED.iter().any(|&register| frame.register(register).is_some());
        self.previous.set(Some(Previous { stack_pointer, has_callee_saved }));
        if below.is_some_and(|below| below.address == address)
            && previous.is_some_and(|previous| previous.stack_pointer == stack_pointer)
        {
            self.stop.set(Some(StopReason::Broken(BrokenReason::Loop)));
            return false;
        }
        let source = self.source(below.as_ref(), previous, has_callee_saved);

        // Report both, since only the library knows which of them it will look up. Failures are examined at the end.
        let _missing = self.space.require(address).and(self.space.require(address.wrapping_sub(1)));
        let is_instruction = frame.is_activation()
            && below
                .is_none_or(|below| matches!(self.space.row(below.lookup()), Row::Found { is_signal_frame: true, .. }));
        let flags =
            FrameFlags { is_instruction, fp_fallback: source == FrameSource::FramePointer, ..FrameFlags::default() };
        let mut frames = self.frames.borrow_mut();
        if let Some(below) = frames.last_mut() {
            below.cfa = stack_pointer.unwrap_or(0);
        }
        frames.push(Frame { address, cfa: 0, source, flags });
        true
    }
}
