//! Any bytes as `.eh_frame`, `.eh_frame_hdr` and `.debug_frame`: every entry is indexed, every row written as text.
#![no_main]

use arbitrary::Arbitrary;
use fpprof_unwind::{Arch, Module, ModuleSections, Section, row_at};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    arch: u8,
    entry: Option<u64>,
    text: Option<u64>,
    got: Option<u64>,
    eh_frame: Option<(u64, &'a [u8])>,
    eh_frame_hdr: Option<(u64, &'a [u8])>,
    debug_frame: Option<(u64, &'a [u8])>,
}

fuzz_target!(|input: Input<'_>| {
    let section = |section: Option<(u64, &[u8])>| section.map(|(svma, bytes)| Section { svma, bytes: bytes.to_vec().into() });
    let module = Module::new(ModuleSections {
        eh_frame: section(input.eh_frame),
        eh_frame_hdr: section(input.eh_frame_hdr),
        debug_frame: section(input.debug_frame),
        text: input.text.map(|start| start..start.saturating_add(0x1000)),
        got: input.got,
        arch: [Arch::X86_64, Arch::Aarch64, Arch::I386][usize::from(input.arch % 3)],
        entry: input.entry,
        ..ModuleSections::default()
    });
    let _ = module.count_entries();
    module.for_each_range(|range| {
        for svma in [range.start, range.start.wrapping_add(1), range.end.wrapping_sub(1), range.end] {
            match row_at(&module, svma) {
                Ok(row) => {
                    assert!(row.range.contains(&svma));
                    let _ = row.to_string();
                }
                Err(error) => {
                    let _ = error.to_string();
                }
            }
        }
    });
});
