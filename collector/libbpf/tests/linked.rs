//! Checks what is linked, from inside a process.

use std::ffi::CStr;
use std::fs;
use std::ptr;

/// Check that libbpf and its dependencies are in the program itself: libbpf opens an object, which needs libelf, and
/// none of the shared libraries is mapped.
#[test]
fn the_libraries_are_built_in() {
    let object = fs::read("/proc/self/exe").expect("reading this program");
    // SAFETY: the function has no arguments.
    let version = unsafe { libbpf_sys::libbpf_version_string() };
    // SAFETY: the string is a constant of the library.
    let version = unsafe { CStr::from_ptr(version) };
    // SAFETY: `object` is valid for the call, and libbpf keeps no pointer to it if it fails.
    let opened = unsafe { libbpf_sys::bpf_object__open_mem(object.as_ptr().cast(), object.len() as u64, ptr::null()) };
    assert_eq!(version.to_str(), Ok("v1.7"));
    assert!(opened.is_null(), "this program is no BPF object");

    let maps = fs::read_to_string("/proc/self/maps").expect("reading the mappings of this process");
    for library in ["libbpf", "libelf", "libz."] {
        assert!(!maps.lines().any(|line| line.contains(&format!("/{library}"))), "{library} is mapped:\n{maps}");
    }
}
