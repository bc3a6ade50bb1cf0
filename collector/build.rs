//! Compiles the BPF programs and generates their skeleton into `OUT_DIR`; and compiles the walk by call frame information as
//! ordinary C.

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

const SOURCES: [&str; 22] = [
    "abi.h",
    "arch_arm64.bpf.h",
    "arch_x86.bpf.h",
    "capture.bpf.h",
    "cfi.bpf.h",
    "cfi_abi.h",
    "cfi_walk.bpf.h",
    "cgroup.bpf.h",
    "code_mapping.bpf.h",
    "compat.bpf.h",
    "fpprof.bpf.c",
    "host_walk.c",
    "interrupted.bpf.h",
    "maps.bpf.h",
    "memory.bpf.h",
    "off_cpu.bpf.h",
    "ring.bpf.h",
    "sample.bpf.h",
    "stack_end.bpf.h",
    "target.bpf.h",
    "vmlinux.h",
    "walk.bpf.h",
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("fpprof.skel.rs");
    // v3 has the atomic exchange; libbpf's BPF_PROG leaves its `ctx` unused.
    let arguments =
        ["-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-isystem", fpprof_libbpf::INCLUDE];
    SkeletonBuilder::new()
        .source("src/bpf/fpprof.bpf.c")
        .clang_args(arguments)
        .build_and_generate(&out)
        .unwrap_or_else(|error| panic!("building the BPF programs (clang with the bpf target is needed): {error:?}"));
    cc::Build::new().file("src/bpf/host_walk.c").flag("-Wno-unused-parameter").compile("fpprof_host_walk");
    for source in SOURCES {
        println!("cargo::rerun-if-changed=src/bpf/{source}");
    }
}
