//! The part of `libunwind-x86_64.h`, `libunwind-common.h` and `libunwind-dynamic.h` that is used, as declared in
//! libunwind 1.6.2 (MIT licence), and `dwarf_search_unwind_table`, which perf uses too: it is exported, but declared in
//! no public header (`include/dwarf.h` of the source).

use std::ffi::{c_char, c_int, c_void};
use std::marker::{PhantomData, PhantomPinned};

/// The target of `unw_addr_space_t`.
#[repr(C)]
pub(super) struct AddressSpace {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// `unw_cursor_t`: `UNW_TDEP_CURSOR_LEN` words.
#[repr(C)]
pub(super) struct Cursor(pub(super) [u64; 127]);

/// `unw_accessors_t`.
#[repr(C)]
pub(super) struct Accessors {
    pub(super) find_proc_info: unsafe extern "C" fn(*mut AddressSpace, u64, *mut ProcInfo, c_int, *mut c_void) -> c_int,
    pub(super) put_unwind_info: unsafe extern "C" fn(*mut AddressSpace, *mut ProcInfo, *mut c_void),
    pub(super) get_dyn_info_list_addr: unsafe extern "C" fn(*mut AddressSpace, *mut u64, *mut c_void) -> c_int,
    pub(super) access_mem: unsafe extern "C" fn(*mut AddressSpace, u64, *mut u64, c_int, *mut c_void) -> c_int,
    pub(super) access_reg: unsafe extern "C" fn(*mut AddressSpace, c_int, *mut u64, c_int, *mut c_void) -> c_int,
    pub(super) access_fpreg: unsafe extern "C" fn(*mut AddressSpace, c_int, *mut c_void, c_int, *mut c_void) -> c_int,
    pub(super) resume: unsafe extern "C" fn(*mut AddressSpace, *mut Cursor, *mut c_void) -> c_int,
    pub(super) get_proc_name:
        Option<unsafe extern "C" fn(*mut AddressSpace, u64, *mut c_char, usize, *mut u64, *mut c_void) -> c_int>,
}

/// `unw_proc_info_t`, which is only passed on.
#[repr(C)]
pub(super) struct ProcInfo {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// `unw_dyn_info_t` with the variant `rti` of its union, which is as large as the others.
#[repr(C)]
pub(super) struct DynInfo {
    pub(super) next: *mut Self,
    pub(super) prev: *mut Self,
    pub(super) start_ip: u64,
    pub(super) end_ip: u64,
    pub(super) gp: u64,
    pub(super) format: i32,
    pub(super) pad: i32,
    pub(super) load_offset: u64,
    /// `unw_dyn_remote_table_info_t`.
    pub(super) name_ptr: u64,
    pub(super) segbase: u64,
    pub(super) table_len: u64,
    pub(super) table_data: u64,
}

const _: () = assert!(size_of::<Accessors>() == 64);
const _: () = assert!(size_of::<DynInfo>() == 88);

/// `UNW_INFO_FORMAT_REMOTE_TABLE`.
pub(super) const INFO_FORMAT_REMOTE_TABLE: i32 = 2;
/// `UNW_X86_64_RSP`, `UNW_X86_64_RIP`.
pub(super) const REG_SP: c_int = 7;
pub(super) const REG_IP: c_int = 16;
/// `UNW_CACHE_GLOBAL`: one cache for the address space.
pub(super) const CACHE_GLOBAL: c_int = 1;
/// Negated `unw_error_t`.
pub(super) const EINVAL: c_int = -8;
pub(super) const ENOINFO: c_int = -10;

// The libraries to link are named by the build script.
unsafe extern "C" {
    #[link_name = "_Ux86_64_create_addr_space"]
    pub(super) fn create_addr_space(accessors: *mut Accessors, byte_order: c_int) -> *mut AddressSpace;
    #[link_name = "_Ux86_64_destroy_addr_space"]
    pub(super) fn destroy_addr_space(space: *mut AddressSpace);
    #[link_name = "_Ux86_64_set_caching_policy"]
    pub(super) fn set_caching_policy(space: *mut AddressSpace, policy: c_int) -> c_int;
    #[link_name = "_Ux86_64_init_remote"]
    pub(super) fn init_remote(cursor: *mut Cursor, space: *mut AddressSpace, arg: *mut c_void) -> c_int;
    #[link_name = "_Ux86_64_step"]
    pub(super) fn step(cursor: *mut Cursor) -> c_int;
    #[link_name = "_Ux86_64_get_reg"]
    pub(super) fn get_reg(cursor: *mut Cursor, register: c_int, value: *mut u64) -> c_int;
    #[link_name = "_Ux86_64_is_signal_frame"]
    pub(super) fn is_signal_frame(cursor: *mut Cursor) -> c_int;
    #[link_name = "_Ux86_64_dwarf_search_unwind_table"]
    pub(super) fn dwarf_search_unwind_table(
        space: *mut AddressSpace,
        ip: u64,
        table: *mut DynInfo,
        info: *mut ProcInfo,
        need_unwind_info: c_int,
        arg: *mut c_void,
    ) -> c_int;
}
