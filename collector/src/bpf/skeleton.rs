//! What libbpf-cargo generates from the BPF object: the skeleton, and the types both sides share.

#![expect(
    unreachable_pub,
    clippy::allow_attributes_without_reason,
    clippy::multiple_unsafe_ops_per_block,
    clippy::too_many_lines,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    reason = "generated code"
)]

include!(concat!(env!("OUT_DIR"), "/fpprof.skel.rs"));
