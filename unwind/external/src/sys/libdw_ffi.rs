//! The part of `elfutils/libdwfl.h` and `elfutils/libdw.h` that is used, as declared in elfutils 0.188.
//!
//! elfutils is free software under LGPL-3.0-or-later or GPL-2.0-or-later; it is linked dynamically.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::marker::{PhantomData, PhantomPinned};

macro_rules! opaque {
    ($($(#[$meta:meta])* $name:ident;)*) => {
        $($(#[$meta])*
        #[repr(C)]
        pub(super) struct $name {
            _data: [u8; 0],
            _marker: PhantomData<(*mut u8, PhantomPinned)>,
        })*
    };
}

opaque! {
    /// A session: the modules of one address space.
    Dwfl;
    /// A module of a session.
    DwflModule;
    /// A thread, alive during one walk.
    DwflThread;
    /// A frame, alive during one callback.
    DwflFrame;
    /// Call frame information of a module.
    DwarfCfi;
    /// A row of it, malloc'ed.
    DwarfFrame;
    /// An `Elf` or `GElf` type that is only passed on.
    Elf;
}

/// `Dwfl_Callbacks`.
#[repr(C)]
pub(super) struct DwflCallbacks {
    pub(super) find_elf: unsafe extern "C" fn(
        *mut DwflModule,
        *mut *mut c_void,
        *const c_char,
        u64,
        *mut *mut c_char,
        *mut *mut Elf,
    ) -> c_int,
    pub(super) find_debuginfo: unsafe extern "C" fn(
        *mut DwflModule,
        *mut *mut c_void,
        *const c_char,
        u64,
        *const c_char,
        *const c_char,
        u32,
        *mut *mut c_char,
    ) -> c_int,
    /// Only called for relocatable files, which are never reported.
    pub(super) section_address: Option<unsafe extern "C" fn()>,
    pub(super) debuginfo_path: *mut *mut c_char,
}

// SAFETY: functions and null pointers; the library only reads them.
unsafe impl Sync for DwflCallbacks {}

/// `Dwfl_Thread_Callbacks`.
#[repr(C)]
pub(super) struct DwflThreadCallbacks {
    pub(super) next_thread: unsafe extern "C" fn(*mut Dwfl, *mut c_void, *mut *mut c_void) -> c_int,
    pub(super) get_thread: Option<unsafe extern "C" fn(*mut Dwfl, c_int, *mut c_void, *mut *mut c_void) -> bool>,
    pub(super) memory_read: Option<unsafe extern "C" fn(*mut Dwfl, u64, *mut u64, *mut c_void) -> bool>,
    pub(super) set_initial_registers: unsafe extern "C" fn(*mut DwflThread, *mut c_void) -> bool,
    pub(super) detach: Option<unsafe extern "C" fn(*mut Dwfl, *mut c_void)>,
    pub(super) thread_detach: Option<unsafe extern "C" fn(*mut DwflThread, *mut c_void)>,
}

/// `Dwarf_Op`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DwarfOp {
    pub(super) atom: u8,
    pub(super) number: u64,
    pub(super) number2: u64,
    pub(super) offset: u64,
}

const _: () = assert!(size_of::<DwarfOp>() == 32);
const _: () = assert!(size_of::<DwflCallbacks>() == 32);
const _: () = assert!(size_of::<DwflThreadCallbacks>() == 48);

/// `DWARF_CB_OK`, `DWARF_CB_ABORT`.
pub(super) const DWARF_CB_OK: c_int = 0;
pub(super) const DWARF_CB_ABORT: c_int = 1;

// The libraries to link are named by the build script.
unsafe extern "C" {
    pub(super) fn dwfl_begin(callbacks: *const DwflCallbacks) -> *mut Dwfl;
    pub(super) fn dwfl_end(dwfl: *mut Dwfl);
    pub(super) fn dwfl_errno() -> c_int;
    pub(super) fn dwfl_report_begin_add(dwfl: *mut Dwfl);
    pub(super) fn dwfl_report_elf(
        dwfl: *mut Dwfl,
        name: *const c_char,
        file_name: *const c_char,
        fd: c_int,
        base: u64,
        add_p_vaddr: bool,
    ) -> *mut DwflModule;
    pub(super) fn dwfl_report_end(dwfl: *mut Dwfl, removed: Option<unsafe extern "C" fn()>, arg: *mut c_void) -> c_int;
    pub(super) fn dwfl_addrmodule(dwfl: *mut Dwfl, address: u64) -> *mut DwflModule;
    pub(super) fn dwfl_module_eh_cfi(module: *mut DwflModule, bias: *mut u64) -> *mut DwarfCfi;
    pub(super) fn dwfl_module_dwarf_cfi(module: *mut DwflModule, bias: *mut u64) -> *mut DwarfCfi;
    pub(super) fn dwfl_attach_state(
        dwfl: *mut Dwfl,
        elf: *mut Elf,
        pid: c_int,
        thread_callbacks: *const DwflThreadCallbacks,
        dwfl_arg: *mut c_void,
    ) -> bool;
    pub(super) fn dwfl_thread_state_registers(
        thread: *mut DwflThread,
        first: c_int,
        count: c_uint,
        registers: *const u64,
    ) -> bool;
    pub(super) fn dwfl_thread_state_register_pc(thread: *mut DwflThread, pc: u64);
    pub(super) fn dwfl_getthread_frames(
        dwfl: *mut Dwfl,
        tid: c_int,
        callback: unsafe extern "C" fn(*mut DwflFrame, *mut c_void) -> c_int,
        arg: *mut c_void,
    ) -> c_int;
    pub(super) fn dwfl_frame_pc(frame: *mut DwflFrame, pc: *mut u64, is_activation: *mut bool) -> bool;
    pub(super) fn dwfl_frame_reg(frame: *mut DwflFrame, register: c_uint, value: *mut u64) -> c_int;
    pub(super) fn dwarf_cfi_addrframe(cfi: *mut DwarfCfi, address: u64, frame: *mut *mut DwarfFrame) -> c_int;
    pub(super) fn dwarf_frame_info(
        frame: *mut DwarfFrame,
        start: *mut u64,
        end: *mut u64,
        is_signal_frame: *mut bool,
    ) -> c_int;
    pub(super) fn dwarf_frame_register(
        frame: *mut DwarfFrame,
        register: c_int,
        memory: *mut DwarfOp,
        operations: *mut *mut DwarfOp,
        count: *mut usize,
    ) -> c_int;
}
