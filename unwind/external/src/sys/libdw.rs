//! Sessions of libdwfl, and the walk over one sample.

use super::libdw_ffi as ffi;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::{FromRawFd as _, IntoRawFd as _};
use std::ptr::{self, NonNull};

/// The thread ID of every sample; there is no such process.
const ID: c_int = 1;

/// Callbacks of the library during a walk. Called while [`Session::walk`] is running; [`Self::read`] also while
/// [`Self::frame`] is. A panic in one of them aborts the process.
pub(crate) trait Walk {
    /// The sampled registers in DWARF order, the instruction pointer last.
    fn registers(&self) -> &[u64; 17];
    /// The word at an AVMA.
    fn read(&self, address: u64) -> Option<u64>;
    /// A frame, leaf first. `false` ends the walk.
    fn frame(&self, frame: &Frame<'_>) -> bool;
}

/// How [`Session::walk`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// [`Walk::frame`] returned false.
    Asked,
    /// The library found the caller's address to be undefined. It also reports this if the address could not be read.
    Undefined,
    /// The library failed, with this error number.
    Failed(i32),
}

/// What call frame information says about an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Row {
    /// No module of the session contains it.
    NoModule,
    /// The module has no row for it.
    None,
    /// There is a row.
    Found {
        /// The return address is undefined: the outermost frame.
        is_root: bool,
        /// The caller was interrupted instead of calling.
        is_signal_frame: bool,
    },
}

/// The modules of one address space.
#[derive(Debug)]
pub(crate) struct Session {
    dwfl: NonNull<ffi::Dwfl>,
    is_attached: Cell<bool>,
    running: Box<Running>,
}

/// The running walk: a pointer to a `&dyn Walk`, or null.
#[derive(Debug)]
struct Running(Cell<*const c_void>);

/// A frame of the running walk.
#[derive(Debug)]
pub(crate) struct Frame<'a>(&'a NonNull<ffi::DwflFrame>);

static CALLBACKS: ffi::DwflCallbacks =
    ffi::DwflCallbacks { find_elf, find_debuginfo, section_address: None, debuginfo_path: ptr::null_mut() };

static THREAD_CALLBACKS: ffi::DwflThreadCallbacks = ffi::DwflThreadCallbacks {
    next_thread,
    get_thread: Some(get_thread),
    memory_read: Some(memory_read),
    set_initial_registers,
    detach: None,
    thread_detach: None,
};

impl Session {
    /// Creates an empty session; `None` if out of memory.
    pub(crate) fn begin() -> Option<Self> {
        // SAFETY: the callbacks are static.
        let dwfl = unsafe { ffi::dwfl_begin(&raw const CALLBACKS) };
        let running = Box::new(Running(Cell::new(ptr::null())));
        Some(Self { dwfl: NonNull::new(dwfl)?, is_attached: Cell::new(false), running })
    }

    /// Adds the ELF file of a module; `name` must be used once. May be called while a walk is running.
    ///
    /// # Errors
    /// The library's error number.
    pub(crate) fn report(&self, name: &CStr, file: File, bias: u64) -> Result<(), i32> {
        let dwfl = self.dwfl.as_ptr();
        let fd = file.into_raw_fd();
        // SAFETY: `dwfl` lives until we are dropped.
        unsafe { ffi::dwfl_report_begin_add(dwfl) };
        // SAFETY: as above; both names are copied; on success the library owns the descriptor, which we gave up.
        let module = unsafe { ffi::dwfl_report_elf(dwfl, name.as_ptr(), name.as_ptr(), fd, bias, true) };
        let error = if module.is_null() {
            // SAFETY: the library left the descriptor to us when it failed, and nobody else has it.
            drop(unsafe { File::from_raw_fd(fd) });
            Err(last_error())
        } else {
            Ok(())
        };
        // SAFETY: as above; without a callback for removed modules, of which there are none.
        unsafe { ffi::dwfl_report_end(dwfl, None, ptr::null_mut()) };
        error
    }

    /// Looks up the row of an instruction as the library would: in `.eh_frame` first, then in `.debug_frame`.
    pub(crate) fn row(&self, address: u64) -> Row {
        // SAFETY: `dwfl` lives until we are dropped; modules live as long as it.
        let module = unsafe { ffi::dwfl_addrmodule(self.dwfl.as_ptr(), address) };
        if module.is_null() {
            return Row::NoModule;
        }
        let mut bias = 0;
        // SAFETY: the module was just given; `bias` is ours.
        let eh_frame = unsafe { ffi::dwfl_module_eh_cfi(module, &raw mut bias) };
        if let Some(row) = row_in(eh_frame, address.wrapping_sub(bias)) {
            return row;
        }
        // SAFETY: as above.
        let debug_frame = unsafe { ffi::dwfl_module_dwarf_cfi(module, &raw mut bias) };
        row_in(debug_frame, address.wrapping_sub(bias)).unwrap_or(Row::None)
    }

    /// Lets the library take the architecture from the modules reported so far, without which it cannot walk.
    ///
    /// # Errors
    /// The library's error number, for example when no module was reported.
    pub(crate) fn attach(&self) -> Result<(), i32> {
        if self.is_attached.get() {
            return Ok(());
        }
        let running = ptr::from_ref::<Running>(&self.running).cast_mut().cast();
        // SAFETY: the callbacks are static; `running` is on the heap and lives longer than `dwfl`. The callbacks use it
        // as shared only.
        let is_attached = unsafe {
            ffi::dwfl_attach_state(self.dwfl.as_ptr(), ptr::null_mut(), ID, &raw const THREAD_CALLBACKS, running)
        };
        self.is_attached.set(is_attached);
        if is_attached { Ok(()) } else { Err(last_error()) }
    }

    /// Walks one sample. Call [`Self::attach`] first.
    pub(crate) fn walk(&self, walk: &dyn Walk) -> Ended {
        self.running.0.set(ptr::from_ref(&walk).cast());
        let running = ptr::from_ref::<Running>(&self.running).cast_mut().cast();
        // SAFETY: reading the error also clears it.
        unsafe { ffi::dwfl_errno() };
        // SAFETY: `dwfl` lives until we are dropped; `running` points to a walk for as long as this call takes.
        let result = unsafe { ffi::dwfl_getthread_frames(self.dwfl.as_ptr(), ID, frame, running) };
        self.running.0.set(ptr::null());
        match result {
            0 => Ended::Undefined,
            ffi::DWARF_CB_ABORT => Ended::Asked,
            _ => Ended::Failed(last_error()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: begun by us, ended once; no walk is running, for a walk borrows us.
        unsafe { ffi::dwfl_end(self.dwfl.as_ptr()) };
    }
}

impl Frame<'_> {
    /// The AVMA of the frame.
    pub(crate) fn address(&self) -> Option<u64> {
        let mut address = 0;
        // SAFETY: the frame lives during the callback that we are borrowed from.
        unsafe { ffi::dwfl_frame_pc(self.0.as_ptr(), &raw mut address, ptr::null_mut()) }.then_some(address)
    }

    /// Whether the frame is the leaf, a signal frame, or one that a signal interrupted. Unwinds the frame to find out.
    pub(crate) fn is_activation(&self) -> bool {
        let (mut address, mut is_activation) = (0, false);
        // SAFETY: as above.
        unsafe { ffi::dwfl_frame_pc(self.0.as_ptr(), &raw mut address, &raw mut is_activation) };
        is_activation
    }

    /// A register by DWARF number; `None` if the library lost it.
    pub(crate) fn register(&self, number: u32) -> Option<u64> {
        let mut value = 0;
        // SAFETY: as above.
        let result = unsafe { ffi::dwfl_frame_reg(self.0.as_ptr(), number, &raw mut value) };
        (result == 0).then_some(value)
    }
}

fn row_in(cfi: *mut ffi::DwarfCfi, address: u64) -> Option<Row> {
    if cfi.is_null() {
        return None;
    }
    let mut frame = ptr::null_mut();
    // SAFETY: the CFI lives as long as its module.
    if unsafe { ffi::dwarf_cfi_addrframe(cfi, address, &raw mut frame) } != 0 {
        return None;
    }
    let mut is_signal_frame = false;
    // SAFETY: the frame was just given; null pointers ask for nothing.
    let column = unsafe { ffi::dwarf_frame_info(frame, ptr::null_mut(), ptr::null_mut(), &raw mut is_signal_frame) };
    let mut memory = [ffi::DwarfOp { atom: 0, number: 0, number2: 0, offset: 0 }; 3];
    let (mut operations, mut count) = (ptr::null_mut(), 0);
    // SAFETY: the frame is alive; the library writes at most three operations to `memory`.
    let result =
        unsafe { ffi::dwarf_frame_register(frame, column, memory.as_mut_ptr(), &raw mut operations, &raw mut count) };
    let is_root = result == 0 && count == 0 && operations == memory.as_mut_ptr();
    // SAFETY: malloc'ed for us by `dwarf_cfi_addrframe`.
    unsafe { libc::free(frame.cast()) };
    Some(Row::Found { is_root, is_signal_frame })
}

fn last_error() -> i32 {
    // SAFETY: reads and clears a thread-local number.
    unsafe { ffi::dwfl_errno() }
}

/// Recovers the walk from a callback's argument.
///
/// # Safety
///
/// `running` is the pointer given to the library by [`Session::attach`] or [`Session::walk`], and `'a` ends before the
/// callback returns.
unsafe fn running_walk<'a>(running: *const c_void) -> Option<&'a dyn Walk> {
    // SAFETY: by the contract, a `Running` that outlives the session.
    let running = unsafe { &*running.cast::<Running>() };
    // SAFETY: either null, or the `&dyn Walk` that `Session::walk` holds while the library runs.
    unsafe { running.0.get().cast::<&dyn Walk>().as_ref() }.copied()
}

/// Never finds anything: files are passed when a module is reported.
unsafe extern "C" fn find_elf(
    _module: *mut ffi::DwflModule,
    _userdata: *mut *mut c_void,
    _name: *const c_char,
    _base: u64,
    _file_name: *mut *mut c_char,
    _elf: *mut *mut ffi::Elf,
) -> c_int {
    -1
}

/// Never finds anything, so that debuginfod is not queried and only the module's own file is used.
unsafe extern "C" fn find_debuginfo(
    _module: *mut ffi::DwflModule,
    _userdata: *mut *mut c_void,
    _name: *const c_char,
    _base: u64,
    _file_name: *const c_char,
    _debuglink: *const c_char,
    _crc: u32,
    _found: *mut *mut c_char,
) -> c_int {
    -1
}

/// No threads to iterate over: the only one is accessed by its ID.
unsafe extern "C" fn next_thread(_dwfl: *mut ffi::Dwfl, _arg: *mut c_void, _thread_arg: *mut *mut c_void) -> c_int {
    0
}

unsafe extern "C" fn get_thread(
    _dwfl: *mut ffi::Dwfl,
    _tid: c_int,
    arg: *mut c_void,
    thread_arg: *mut *mut c_void,
) -> bool {
    // SAFETY: a place of the library's for the pointer we want back in `set_initial_registers`.
    unsafe { *thread_arg = arg };
    true
}

unsafe extern "C" fn memory_read(_dwfl: *mut ffi::Dwfl, address: u64, result: *mut u64, arg: *mut c_void) -> bool {
    // SAFETY: `arg` is what we attached.
    let walk = unsafe { running_walk(arg) };
    match walk.and_then(|walk| walk.read(address)) {
        Some(word) => {
            // SAFETY: a place of the library's for one word.
            unsafe { *result = word };
            true
        }
        None => false,
    }
}

unsafe extern "C" fn set_initial_registers(thread: *mut ffi::DwflThread, thread_arg: *mut c_void) -> bool {
    // SAFETY: `thread_arg` is what `get_thread` put there.
    let Some(walk) = (unsafe { running_walk(thread_arg) }) else { return false };
    let registers = walk.registers();
    let [general @ .., ip] = registers;
    let count = u32::try_from(registers.len()).unwrap_or(0);
    debug_assert_eq!(general.len(), 16);
    // SAFETY: the thread is the library's; `registers` holds `count` words. The backend for x86-64 knows seventeen
    // registers, the last of which is the instruction pointer.
    let is_set = unsafe { ffi::dwfl_thread_state_registers(thread, 0, count, registers.as_ptr()) };
    // SAFETY: as above.
    unsafe { ffi::dwfl_thread_state_register_pc(thread, *ip) };
    is_set
}

unsafe extern "C" fn frame(frame: *mut ffi::DwflFrame, arg: *mut c_void) -> c_int {
    // SAFETY: `arg` is what `Session::walk` gave.
    let walk = unsafe { running_walk(arg) };
    match (walk, NonNull::new(frame)) {
        (Some(walk), Some(frame)) if walk.frame(&Frame(&frame)) => ffi::DWARF_CB_OK,
        _ => ffi::DWARF_CB_ABORT,
    }
}
