//! Links libbpf, libelf and zlib statically. `libbpf-rs` and `libbpf-cargo` only emit `-lbpf -lelf -lz`; a crate that
//! uses them depends on this one, whose build script compiles those libraries and adds them to the linker's search
//! path.
#![no_std]
#![forbid(unsafe_code)]

/// The directory with libbpf's headers for BPF programs, for `clang -I`: `#include <bpf/bpf_helpers.h>`.
pub const INCLUDE: &str = env!("FPPROF_LIBBPF_INCLUDE");
