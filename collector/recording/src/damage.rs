//! What of a file could not be read.

/// Damage of a file, as far as it is known. Blocks are known by their numbers, samples and events by theirs, so a gap
/// has a size even where nothing of a block is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Damage {
    /// Bytes between good blocks that belong to none.
    pub skipped_bytes: u64,
    /// Blocks missing between good ones.
    pub skipped_blocks: u64,
    /// Samples missing in them, those of malformed blocks included.
    pub lost_samples: u64,
    /// Process events missing in them, those of malformed blocks included.
    pub lost_sideband: u64,
    /// Bytes after the last good block: where a recording broke off, or a damaged last block.
    pub torn_tail_bytes: u64,
    /// Samples that the head of the broken-off block announces.
    pub torn_tail_samples: u64,
    /// Good blocks of another recording, and of a later format version.
    pub foreign_blocks: u64,
    /// Good blocks that had been there before.
    pub repeated_blocks: u64,
    /// Blocks that are intact by their checksum and still make no sense; found when they are decoded.
    pub malformed_blocks: u64,
}

impl Damage {
    /// Whether there is none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The damage in words, one finding a line; empty for none.
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
