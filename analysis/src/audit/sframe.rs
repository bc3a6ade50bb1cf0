//! `.sframe`: its version, and how much code has rows in it.

use super::model::{Machine, SframeVersion};
use super::sections::{Bytes, CodeSection};
use fpprof_unwind::{Arch, Module, ModuleSections, Section};

/// `SFRAME_MAGIC`, little-endian.
const MAGIC: [u8; 2] = 0xdee2_u16.to_le_bytes();

/// The version in a section's preamble: magic number (2 bytes), version (1 byte).
///
/// # Sources
/// The `SFrame` format, versions 1 to 3, "`SFrame` Preamble" (binutils).
pub(super) fn version(section: &[u8]) -> SframeVersion {
    match section {
        [a, b, version, ..] if [*a, *b] == MAGIC => SframeVersion::Version(*version),
        _ => SframeVersion::Unknown,
    }
}

/// Bytes of executable sections in functions with `.sframe` rows.
pub(super) fn covered(section: Bytes<'_>, code: &[CodeSection], machine: Machine) -> u64 {
    let arch = match machine {
        Machine::X86_64 => Arch::X86_64,
        Machine::Aarch64 => Arch::Aarch64,
    };
    let sframe = Some(Section { svma: section.svma, bytes: section.bytes.to_vec().into() });
    let module = Module::new(ModuleSections { sframe, arch, ..ModuleSections::default() });
    let (mut n, mut at) = (0_u64, 0);
    let mut code = code.iter().map(|section| &section.svma).peekable();
    // Both are ascending; in a hostile file, what is not is skipped.
    module.for_each_range(|function| {
        let start = function.start.max(at);
        while code.next_if(|section| section.end <= start).is_some() {}
        if let Some(section) = code.peek() {
            let (start, end) = (start.max(section.start), function.end.min(section.end));
            n = n.saturating_add(end.saturating_sub(start));
            at = end.max(at);
        }
    });
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that versions are read, and that a different section of that name is not accepted.
    #[test]
    fn versions_are_read() {
        assert_eq!(version(&[0xe2, 0xde, 2, 5, 3]), SframeVersion::Version(2));
        assert_eq!(version(&[0xde, 0xe2, 2, 5, 3]), SframeVersion::Unknown);
        assert_eq!(version(&[0xe2, 0xde]), SframeVersion::Unknown);
    }
}
