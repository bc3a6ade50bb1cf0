//! What libbpf-cargo generates from the BPF object: the skeleton, and the types both sides share.

#![expect(
    unreachable_pub,
    clippy::all,
    clippy::cast_possible_wrap,
    clippy::indexing_slicing,
    clippy::multiple_unsafe_ops_per_block,
    clippy::ptr_as_ptr,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    missing_debug_implementations,
    reason = "generated code"
)]

include!(concat!(env!("OUT_DIR"), "/fpprof.skel.rs"));
