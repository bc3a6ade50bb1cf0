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
        if self.skipped_bytes > 0 || self.skipped_blocks > 0 {
            lines.push(format!("{} corrupt bytes skipped, {} blocks missing", self.skipped_bytes, self.skipped_blocks));
        }
        if self.malformed_blocks > 0 {
            lines.push(format!("{} blocks are corrupt", self.malformed_blocks));
        }
        if self.lost_samples > 0 || self.lost_sideband > 0 {
            lines.push(format!(
                "{} samples and {} process events missing in them",
                self.lost_samples, self.lost_sideband
            ));
        }
        if self.torn_tail_bytes > 0 {
            lines.push(format!(
                "the last {} bytes of the file are a truncated or corrupt block with at least {} samples",
                self.torn_tail_bytes, self.torn_tail_samples
            ));
        }
        if self.foreign_blocks > 0 {
            lines.push(format!("{} blocks belong to another recording", self.foreign_blocks));
        }
        if self.repeated_blocks > 0 {
            lines.push(format!("{} blocks are there twice", self.repeated_blocks));
        }
        lines
    }
}
