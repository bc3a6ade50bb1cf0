//! Names of kernel functions.

use crate::support::{run, take_some};
use fpprof_collector::Request;
use fpprof_recording::model::{CaptureMode, KERNEL_SYMBOLS_PATH, Sideband};
use std::collections::BTreeMap;
use std::path::Path;

/// Addresses of a symbol table, ascending, and whether they belong to BPF programs, which come and go.
fn addresses(table: &[u8]) -> BTreeMap<u64, bool> {
    let text = String::from_utf8_lossy(table);
    let address = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
    text.lines().filter_map(|line| Some((address(line)?, line.contains("bpf")))).collect()
}

/// Check that a recording has the kernel's own name of every kernel address in its stacks, and not the whole table.
#[test]
fn the_kernels_names_are_in_the_recording() {
    let request = run(Path::new("/bin/dd"), &["if=/dev/zero", "of=/dev/null", "bs=64k"], CaptureMode::Fp);
    let taken = take_some(&Request { kernel_stacks: true, ..request });
    let kept = taken.sideband.iter().find_map(|event| match event {
        Sideband::Module(module) if module.path == KERNEL_SYMBOLS_PATH => Some(addresses(&module.bytes)),
        _ => None,
    });
    let (kept, all) = (kept.expect("the names"), addresses(&std::fs::read("/proc/kallsyms").expect("the table")));
    let mut n_asked = 0_u64;
    for sample in &taken.samples {
        for (depth, &address) in sample.kernel.iter().enumerate() {
            let lookup = if depth == 0 { address } else { address - 1 };
            let (own, there) = (kept.range(..=lookup).next_back(), all.range(..=lookup).next_back());
            let is_bpf = [own, there].into_iter().flatten().any(|(_, &is_bpf)| is_bpf);
            assert!(own == there || is_bpf, "{address:#x}: {own:x?}, not {there:x?}");
            n_asked += 1;
        }
    }
    assert!(n_asked > 100 && kept.len() * 10 < all.len(), "{n_asked} addresses, {} of {}", kept.len(), all.len());
}
