//! The keys of rules, which the BPF programs look up and user space writes; in `bpf/host_walk.c`.

unsafe extern "C" {
    /// The key of the `n`th way with rules of the granule that contains an offset of a file with this number.
    #[link_name = "fpprof_rule_key"]
    pub(crate) safe fn rule_key(number: u32, offset: u64, n: u32) -> u64;

    /// The hash whose lower bits are the number of the first set that a key may be in.
    #[link_name = "fpprof_key_hash"]
    pub(crate) safe fn key_hash(key: u64) -> u32;

    /// Likewise for the second set.
    #[link_name = "fpprof_second_key_hash"]
    pub(crate) safe fn second_key_hash(key: u64) -> u32;
}
