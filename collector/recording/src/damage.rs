//! What could not be read of a file.

/// Known damage of a file. Blocks, samples and events are numbered, so that the size of a gap is known even if nothing
/// of a block is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Damage {
    /// Bytes between valid blocks that belong to none.
    pub skipped_bytes: u64,
    /// Blocks missing between valid ones.
    pub skipped_blocks: u64,
    /// Samples missing, including those of malformed blocks.
    pub lost_samples: u64,
    /// Process events missing, including those of malformed blocks.
    pub lost_sideband: u64,
    /// Bytes after the last valid block: where a recording broke off, or a damaged last block.
    pub torn_tail_bytes: u64,
    /// Samples announced by the header of the broken-off block.
    pub torn_tail_samples: u64,
    /// Valid blocks of another recording or a later format version.
    pub foreign_blocks: u64,
    /// Valid blocks that are repetitions.
    pub repeated_blocks: u64,
    /// Blocks with a valid checksum and invalid contents; found when they are decoded.
    pub malformed_blocks: u64,
}

impl Damage {
    /// Whether there is no damage.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The damage as text, one finding per line; empty without damage.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let of = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        if self.skipped_bytes > 0 || self.skipped_blocks > 0 {
            let (bytes, blocks) = (of(self.skipped_bytes, "corrupt byte"), of(self.skipped_blocks, "block"));
            lines.push(format!("{bytes} skipped, {blocks} missing"));
        }
        if self.malformed_blocks > 0 {
            lines.push(format!("{} with corrupt contents", of(self.malformed_blocks, "block")));
        }
        if self.lost_samples > 0 || self.lost_sideband > 0 {
            let (samples, events) = (of(self.lost_samples, "sample"), of(self.lost_sideband, "process event"));
            lines.push(format!("{samples} and {events} missing in them"));
        }
        if self.torn_tail_bytes > 0 {
            lines.push(format!(
                "a truncated or corrupt block at the end of the file: {} with at least {}",
                of(self.torn_tail_bytes, "byte"),
                of(self.torn_tail_samples, "sample")
            ));
        }
        if self.foreign_blocks > 0 {
            lines.push(format!("{} of another recording", of(self.foreign_blocks, "block")));
        }
        if self.repeated_blocks > 0 {
            lines.push(format!("{} repeated", of(self.repeated_blocks, "block")));
        }
        lines
    }
}
