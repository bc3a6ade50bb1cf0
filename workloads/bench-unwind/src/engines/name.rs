//! The engines, and the interface they implement.

use crate::load::Input;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// The most frames of a stack, for every engine.
pub(crate) const MAX_DEPTH: u32 = 1024;

/// An engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Name {
    /// fpprof's unwinder, one thread.
    Ours,
    /// fpprof's unwinder, two threads.
    OursTwoThreads,
    /// framehop.
    Framehop,
    /// elfutils.
    Libdw,
    /// libunwind.
    Libunwind,
}

impl Name {
    /// All engines in this build.
    pub(crate) const ALL: &'static [Self] = &[
        Self::Ours,
        Self::OursTwoThreads,
        Self::Framehop,
        #[cfg(feature = "libdw")]
        Self::Libdw,
        #[cfg(feature = "libunwind")]
        Self::Libunwind,
    ];

    /// The name in words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursTwoThreads => "ours, 2 threads",
            Self::Framehop => "framehop",
            Self::Libdw => "libdw",
            Self::Libunwind => "libunwind",
        }
    }
}

/// The result of a pass over all samples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Frames, leaves included.
    pub(crate) frames: u64,
    /// Stacks that the engine reports as complete.
    pub(crate) complete: u64,
    /// A hash of the addresses of each stack; the lowest bit says whether it is complete. `None` if not requested.
    pub(crate) hashes: Option<Vec<u64>>,
    /// The distinct addresses of frames; empty if hashes are not requested.
    pub(crate) addresses: HashSet<u64>,
}

impl Pass {
    /// Adds a stack.
    pub(crate) fn add(&mut self, addresses: impl Iterator<Item = u64>, is_complete: bool) {
        let mut n = 0;
        match &mut self.hashes {
            None => n += addresses.count() as u64,
            Some(hashes) => {
                // FNV-1a on words instead of bytes; the top bits are mixed down at the end.
                let mut hash = 0xcbf2_9ce4_8422_2325_u64;
                for address in addresses {
                    hash = (hash ^ address).wrapping_mul(0x0100_0000_01b3);
                    hash ^= hash >> 32;
                    self.addresses.insert(address);
                    n += 1;
                }
                hashes.push(hash & !1 | u64::from(is_complete));
            }
        }
        self.frames = self.frames.saturating_add(n);
        self.complete = self.complete.saturating_add(u64::from(is_complete));
    }
}

/// A running unwinder. Its caches are kept for the next pass.
pub(crate) trait Engine {
    /// Unwinds every sample.
    fn pass(&mut self, input: &Input, out: &mut Pass) -> anyhow::Result<()>;
}
