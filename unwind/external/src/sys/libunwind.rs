//! Address spaces of libunwind, and the cursor over one sample.

use super::libunwind_ffi as ffi;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};

/// Callbacks of the library during a walk.
pub(crate) trait Target {
    /// The sampled register with this DWARF number.
    fn register(&self, number: usize) -> Option<u64>;
    /// The word at an AVMA, in the stack or in a module's file.
    fn read(&self, address: u64) -> Option<u64>;
    /// The search table of the module at an AVMA.
    fn table(&self, address: u64) -> Option<Table>;
    /// The library found no row for an AVMA.
    fn no_row(&self, address: u64);
}

/// The binary search table of an `.eh_frame_hdr`, readable through [`Target::read`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    /// AVMA of the module's first byte.
    pub(crate) start: u64,
    /// First AVMA above the module.
    pub(crate) end: u64,
    /// AVMA of `.eh_frame_hdr`, which the entries are relative to.
    pub(crate) base: u64,
    /// AVMA of the first entry.
    pub(crate) entries: u64,
    /// Number of entries of eight bytes.
    pub(crate) count: u64,
}

/// The result of [`Cursor::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Moved to the caller.
    Frame,
    /// There is no caller.
    End,
    /// The library failed, with this error number (negated, as in its header).
    Failed(i32),
}

/// The rows of one address space, cached by the library.
pub(crate) struct AddressSpace {
    space: NonNull<ffi::AddressSpace>,
    /// Boxed, since the library may keep a pointer to it.
    _accessors: Box<ffi::Accessors>,
}

impl fmt::Debug for AddressSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AddressSpace").field(&self.space).finish()
    }
}

/// The frame a walk has reached.
pub(crate) struct Cursor<'a>(&'a mut ffi::Cursor);

impl AddressSpace {
    /// Creates an empty address space; `None` if out of memory.
    pub(crate) fn create() -> Option<Self> {
        let mut accessors = Box::new(ffi::Accessors {
            find_proc_info,
            put_unwind_info,
            get_dyn_info_list_addr,
            access_mem,
            access_reg,
            access_fpreg,
            resume,
            get_proc_name: None,
        });
        // SAFETY: the accessors live as long as the space; byte order 0 is that of the host.
        let space = unsafe { ffi::create_addr_space(&raw mut *accessors, 0) };
        let space = Self { space: NonNull::new(space)?, _accessors: accessors };
        // SAFETY: the space was just made. Failing would only leave the cache off.
        unsafe { ffi::set_caching_policy(space.space.as_ptr(), ffi::CACHE_GLOBAL) };
        Some(space)
    }

    /// Places a cursor on the sampled frame and lets `walk` move it.
    ///
    /// # Errors
    /// The library's error number.
    pub(crate) fn walk<R>(&self, target: &dyn Target, walk: impl FnOnce(Cursor<'_>) -> R) -> Result<R, i32> {
        let arg = ptr::from_ref::<&dyn Target>(&target).cast_mut().cast();
        let mut cursor = ffi::Cursor([0; 127]);
        // SAFETY: the space is alive; `arg` and the cursor outlive `walk`. The callbacks use `arg` as shared only.
        let result = unsafe { ffi::init_remote(&raw mut cursor, self.space.as_ptr(), arg) };
        if result < 0 { Err(result) } else { Ok(walk(Cursor(&mut cursor))) }
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        // SAFETY: created by us, destroyed once; no walk is running, for a walk borrows us.
        unsafe { ffi::destroy_addr_space(self.space.as_ptr()) };
    }
}

impl Cursor<'_> {
    /// Moves to the caller.
    pub(crate) fn step(&mut self) -> Step {
        // SAFETY: initialised by `AddressSpace::walk`, which is still running.
        match unsafe { ffi::step(self.0) } {
            0 => Step::End,
            1.. => Step::Frame,
            error => Step::Failed(error),
        }
    }

    /// The AVMA of the frame.
    pub(crate) fn address(&mut self) -> Option<u64> {
        self.register(ffi::REG_IP)
    }

    /// The frame's stack pointer.
    pub(crate) fn stack_pointer(&mut self) -> Option<u64> {
        self.register(ffi::REG_SP)
    }

    /// Whether the last step left a signal frame.
    pub(crate) fn was_interrupted(&mut self) -> bool {
        // SAFETY: as in `step`.
        unsafe { ffi::is_signal_frame(self.0) > 0 }
    }

    fn register(&mut self, number: c_int) -> Option<u64> {
        let mut value = 0;
        // SAFETY: as in `step`.
        let result = unsafe { ffi::get_reg(self.0, number, &raw mut value) };
        (result >= 0).then_some(value)
    }
}

/// Recovers the target from a callback's argument.
///
/// # Safety
///
/// `arg` is the pointer given to the library by [`AddressSpace::walk`], and `'a` ends before the callback returns.
unsafe fn target<'a>(arg: *mut c_void) -> &'a dyn Target {
    // SAFETY: by the contract, a `&dyn Target` on the stack of `AddressSpace::walk`.
    unsafe { *arg.cast::<&dyn Target>() }
}

unsafe extern "C" fn find_proc_info(
    space: *mut ffi::AddressSpace,
    ip: u64,
    info: *mut ffi::ProcInfo,
    need_unwind_info: c_int,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: `arg` is what `AddressSpace::walk` gave.
    let target = unsafe { target(arg) };
    // The library asserts that the address is inside the table's range.
    let result = match target.table(ip).filter(|table| (table.start..table.end).contains(&ip)) {
        Some(table) => {
            let mut table = ffi::DynInfo {
                next: ptr::null_mut(),
                prev: ptr::null_mut(),
                start_ip: table.start,
                end_ip: table.end,
                gp: 0,
                format: ffi::INFO_FORMAT_REMOTE_TABLE,
                pad: 0,
                load_offset: 0,
                name_ptr: 0,
                segbase: table.base,
                // In words; an entry is one word.
                table_len: table.count,
                table_data: table.entries,
            };
            // SAFETY: all from the library's own call but the table, which it reads and does not keep.
            unsafe { ffi::dwarf_search_unwind_table(space, ip, &raw mut table, info, need_unwind_info, arg) }
        }
        None => ffi::ENOINFO,
    };
    if result == ffi::ENOINFO {
        target.no_row(ip);
    }
    result
}

/// Nothing to release: the library frees what its table search allocates.
unsafe extern "C" fn put_unwind_info(_space: *mut ffi::AddressSpace, _info: *mut ffi::ProcInfo, _arg: *mut c_void) {}

/// There is no list of dynamically generated code.
unsafe extern "C" fn get_dyn_info_list_addr(
    _space: *mut ffi::AddressSpace,
    _list: *mut u64,
    _arg: *mut c_void,
) -> c_int {
    ffi::ENOINFO
}

unsafe extern "C" fn access_mem(
    _space: *mut ffi::AddressSpace,
    address: u64,
    value: *mut u64,
    is_write: c_int,
    arg: *mut c_void,
) -> c_int {
    if is_write != 0 {
        return ffi::EINVAL;
    }
    // SAFETY: `arg` is what `AddressSpace::walk` gave.
    match unsafe { target(arg) }.read(address) {
        Some(word) => {
            // SAFETY: a place of the library's for one word.
            unsafe { *value = word };
            0
        }
        None => ffi::EINVAL,
    }
}

unsafe extern "C" fn access_reg(
    _space: *mut ffi::AddressSpace,
    number: c_int,
    value: *mut u64,
    is_write: c_int,
    arg: *mut c_void,
) -> c_int {
    if is_write != 0 {
        return ffi::EINVAL;
    }
    // SAFETY: `arg` is what `AddressSpace::walk` gave.
    let target = unsafe { target(arg) };
    match usize::try_from(number).ok().and_then(|number| target.register(number)) {
        Some(register) => {
            // SAFETY: a place of the library's for one word.
            unsafe { *value = register };
            0
        }
        None => ffi::EINVAL,
    }
}

/// Samples hold no vector registers.
unsafe extern "C" fn access_fpreg(
    _space: *mut ffi::AddressSpace,
    _number: c_int,
    _value: *mut c_void,
    _is_write: c_int,
    _arg: *mut c_void,
) -> c_int {
    ffi::EINVAL
}

/// A recorded program cannot be resumed.
unsafe extern "C" fn resume(_space: *mut ffi::AddressSpace, _cursor: *mut ffi::Cursor, _arg: *mut c_void) -> c_int {
    ffi::EINVAL
}
