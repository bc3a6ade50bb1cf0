//! libunwind.

use crate::chunk::read_u64;
use crate::image::Image;
use crate::modules::Modules;
use crate::sessions::Sessions;
use crate::sys::libunwind::{AddressSpace, Cursor, Step, Table, Target};
use crate::{Error, ExternalUnwinder, Request};
use fpprof_unwind::{BrokenReason, Frame, FrameFlags, FrameSource, Root, Stack, StopReason, TruncatedReason};
use std::cell::{Cell, OnceCell};

/// The most reads per sample. The largest search table and the longest CFI program need some thousands. An endless
/// DWARF expression reads each of its operations anew, so this limit ends it.
const MAX_READS: u32 = 1 << 20;

/// `UNW_EBADFRAME`, negated: the library reached the same frame again.
const EBADFRAME: i32 = -7;

/// libunwind's remote unwinder, as used by perf in Debian 12.
///
/// It finds rows only through the search table of `.eh_frame_hdr`. It has no rows for files without that table or with
/// `.debug_frame` alone (distributions build it without `.debug_frame` for x86-64). A file is opened when a stack first
/// reaches it, and stays open while its [`Request::modules_id`] is among the sixteen last used.
///
/// # How results map to stop reasons
///
/// | the last step | reason |
/// |---|---|
/// | found no row, and there is no module | `no_module` (the library is not told which memory is executable) |
/// | found no row, and the module's file can't be used | `module_unavailable`, `build_id_mismatch`, `abi32` |
/// | found no row | `no_cfi` |
/// | read more than 2²⁰ words, for example of an endless expression | `budget` |
/// | ended: the return address or rbp is undefined | `complete(undefined_ra)` |
/// | returned the address 0, from which the library would continue | `ra_not_exec` |
/// | failed after a word was not in the chunk | see [`ReadFault`](fpprof_unwind::ReadFault); `red_zone` if it is in the red zone below the stack pointer |
/// | failed because it reached the same frame again | `loop` |
/// | failed otherwise | `bad_cfi` |
///
/// Where there is no row the library guesses: for a PLT stub or a jump to nowhere, that the return address is at the
/// stack pointer ([`FrameSource::Heuristic`]); otherwise, that there is a frame pointer ([`FrameSource::FramePointer`],
/// flag `fp_fallback`), after which its stack pointer is wrong (`x86_64/Gstep.c` adds 16 to that of the callee).
///
/// The CFA of a frame is the stack pointer of the next; the last frame has none.
///
/// # Sources
/// libunwind 1.6.2, `src/x86_64/Gstep.c`, `src/dwarf/Gparser.c`, `src/dwarf/Gfind_proc_info-lsb.c`.
#[derive(Debug)]
pub struct Libunwind {
    spaces: Sessions<Space>,
}

/// State kept for one list of modules.
#[derive(Debug)]
struct Space {
    modules: Modules,
    images: Vec<OnceCell<Result<Image, TruncatedReason>>>,
    space: AddressSpace,
}

impl Libunwind {
    /// Creates an unwinder without any modules. Each thread needs its own.
    #[must_use]
    pub const fn new() -> Self {
        Self { spaces: Sessions::new() }
    }
}

impl Default for Libunwind {
    fn default() -> Self {
        Self::new()
    }
}

impl ExternalUnwinder for Libunwind {
    fn name(&self) -> &'static str {
        "libunwind"
    }

    fn unwind(&mut self, request: &Request<'_>, out: &mut Stack) -> Result<(), Error> {
        out.frames.clear();
        let space = self.spaces.get_or_make(request.modules_id, || Space::new(request))?;
        let sample =
            Sample { space, request, fault: Cell::new(None), has_no_row: Cell::new(false), reads: Cell::new(0) };
        let walked = space.space.walk(&sample, |cursor| sample.walk(cursor, &mut out.frames));
        out.stop = walked.map_err(|code| Error::Refused { library: "libunwind", code })?;
        Ok(())
    }
}

impl Space {
    fn new(request: &Request<'_>) -> Result<Self, Error> {
        let modules = Modules::new(request.modules);
        let images = (0..modules.len()).map(|_| OnceCell::new()).collect();
        let space = AddressSpace::create().ok_or(Error::NoAddressSpace { library: "libunwind" })?;
        Ok(Self { modules, images, space })
    }

    fn image(&self, address: u64) -> Result<&Image, TruncatedReason> {
        let index = self.modules.find(address).ok_or(TruncatedReason::NoModule)?;
        let image = self.images.get(index).ok_or(TruncatedReason::NoModule)?;
        image.get_or_init(|| Image::open(&self.modules, index)).as_ref().map_err(|reason| *reason)
    }
}

/// One walk.
struct Sample<'a> {
    space: &'a Space,
    request: &'a Request<'a>,
    /// The first failed read of this step.
    fault: Cell<Option<StopReason>>,
    /// The library found no row during this step.
    has_no_row: Cell<bool>,
    reads: Cell<u32>,
}

impl Sample<'_> {
    /// Steps the cursor to the end of the stack. libunwind does not report how it found a frame: without a row, it took the
    /// return address from the top of the stack if sp moved by one word, and from the frame pointer otherwise.
    fn walk(&self, mut cursor: Cursor<'_>, frames: &mut Vec<Frame>) -> StopReason {
        let [.., ip] = *self.request.regs;
        let mut next = Frame {
            address: ip,
            cfa: 0,
            source: FrameSource::Registers,
            flags: FrameFlags { is_instruction: true, ..FrameFlags::default() },
        };
        let mut stack_pointer = cursor.stack_pointer();
        while frames.len() < usize::try_from(self.request.max_depth).unwrap_or(usize::MAX) {
            let frame = next;
            frames.push(frame);
            self.fault.set(None);
            self.has_no_row.set(false);
            let step = cursor.step();
            let address = match (step, cursor.address()) {
                (Step::Frame, Some(0)) => return self.at_zero(&frame),
                (Step::Frame, Some(address)) => address,
                _ => return self.reason(step, &frame),
            };
            let below = std::mem::replace(&mut stack_pointer, cursor.stack_pointer());
            if address == frame.address && stack_pointer == below {
                return StopReason::Broken(BrokenReason::Loop);
            }
            if let Some(last) = frames.last_mut() {
                last.cfa = stack_pointer.unwrap_or(0);
            }
            let source = match (self.has_no_row.get(), below.zip(stack_pointer)) {
                (false, _) => FrameSource::Cfi,
                (true, Some((below, above))) if above == below.wrapping_add(8) => FrameSource::Heuristic,
                (true, _) => FrameSource::FramePointer,
            };
            let flags = FrameFlags {
                is_instruction: cursor.was_interrupted(),
                fp_fallback: source == FrameSource::FramePointer,
                ..FrameFlags::default()
            };
            next = Frame { address, cfa: 0, source, flags };
        }
        StopReason::Truncated(TruncatedReason::MaxDepth)
    }

    /// Why the frame's return address is 0: it was read as 0, or guessed because there was no row.
    fn at_zero(&self, last: &Frame) -> StopReason {
        if self.has_no_row.get() { self.reason(Step::End, last) } else { StopReason::Broken(BrokenReason::RaNotExec) }
    }

    /// Why there is no step beyond the last frame.
    fn reason(&self, step: Step, last: &Frame) -> StopReason {
        if self.reads.get() >= MAX_READS {
            return StopReason::Truncated(TruncatedReason::Budget);
        }
        if self.has_no_row.get() {
            let reason = self.space.image(last.lookup()).err().unwrap_or(TruncatedReason::NoCfi);
            return StopReason::Truncated(reason);
        }
        match (step, self.fault.get()) {
            (Step::End, _) => StopReason::Complete(Root::UndefinedRa),
            (_, Some(fault)) => fault,
            (Step::Failed(EBADFRAME), None) => StopReason::Broken(BrokenReason::Loop),
            (Step::Failed(_) | Step::Frame, None) => StopReason::Broken(BrokenReason::BadCfi),
        }
    }
}

impl Target for Sample<'_> {
    fn register(&self, number: usize) -> Option<u64> {
        self.request.regs.get(number).copied()
    }

    fn read(&self, address: u64) -> Option<u64> {
        let reads = self.reads.get() + 1;
        if reads > MAX_READS {
            return None;
        }
        self.reads.set(reads);
        let reason = match read_u64(&self.request.memory(), self.request.regs[7], address) {
            Ok(word) => return Some(word),
            Err(reason) => reason,
        };
        match self.space.image(address) {
            Ok(image) => image.read_u64(address),
            Err(_not_a_module) => {
                self.fault.set(self.fault.get().or(Some(reason)));
                None
            }
        }
    }

    fn table(&self, address: u64) -> Option<Table> {
        self.space.image(address).ok()?.table()
    }

    fn no_row(&self, _address: u64) {
        self.has_no_row.set(true);
    }
}
