//! `.sframe`: its version.

use super::model::SframeVersion;

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that versions are read, and that another section under that name is not taken for one.
    #[test]
    fn versions_are_read() {
        assert_eq!(version(&[0xe2, 0xde, 2, 5, 3]), SframeVersion::Version(2));
        assert_eq!(version(&[0xde, 0xe2, 2, 5, 3]), SframeVersion::Unknown);
        assert_eq!(version(&[0xe2, 0xde]), SframeVersion::Unknown);
    }
}
