//! Names of strategies, and which recordings support them.

use fpprof_recording::model::{Arch, CaptureMode, Meta};
use std::fmt;
use std::str::FromStr;

/// A way to get from a recorded sample to a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// Frame pointers: the recorded chain, or if there is none, a walk over the copied bytes.
    Fp,
    /// Call frame information over all copied bytes.
    Dwarf,
    /// The same over at most so many bytes: what a recording with smaller chunks would have given.
    DwarfAt(u32),
    /// `.sframe` sections over all copied bytes, for modules that have them.
    Sframe,
    /// The kernel's walk by call frame information; if it was given up, call frame information over the copied bytes.
    Cfi,
    /// elfutils' libdw over all copied bytes.
    Elfutils,
    /// libunwind over all copied bytes.
    Libunwind,
}

/// Why a strategy is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StrategyError {
    /// No strategy of this name.
    #[error("unknown strategy `{0}`; expected fp, dwarf, dwarf@BYTES, cfi, sframe, elfutils or libunwind")]
    Unknown(String),
    /// Not a valid chunk size.
    #[error("`{0}`: expected a chunk size of 1 to 4294967295 bytes, such as dwarf@8192 or dwarf@8K")]
    BadBytes(String),
    /// The recording has no copied stacks.
    #[error(
        "strategy {0} needs copied stacks, but this recording was made in mode fp; record with --call-graph dwarf or \
         both"
    )]
    NeedsChunks(Strategy),
    /// Only the samples at which the kernel's walk failed have copied stacks.
    #[error(
        "strategy {0} is not possible: mode cfi keeps copied stacks only where the kernel's walk failed; record with {1}"
    )]
    OnlyWalks(Strategy, &'static str),
    /// The recording has no kernel walks.
    #[error("strategy cfi needs a recording of mode cfi; record with --call-graph cfi")]
    NeedsWalks,
    /// The recording has smaller chunks.
    #[error(
        "strategy {strategy} needs larger chunks than the {recorded_bytes} bytes of this recording; record with \
         --call-graph dwarf,BYTES or both,BYTES"
    )]
    ChunksTooSmall {
        /// The strategy.
        strategy: Strategy,
        /// The chunk size of the recording.
        recorded_bytes: u32,
    },
    /// The external libraries unwind for the machine they run on, and are supported on x86-64 only.
    #[error("strategy {strategy} supports x86-64 only; this recording is from {recorded}, and this machine is {here}")]
    NotX86 {
        /// The strategy.
        strategy: Strategy,
        /// The architecture of the recording.
        recorded: &'static str,
        /// The architecture of this machine.
        here: &'static str,
    },
    /// This build does not include it.
    #[error("strategy {strategy} is not in this build of fpprof: install it from source with `--features {feature}`")]
    NotBuilt {
        /// The strategy.
        strategy: Strategy,
        /// The feature it needs.
        feature: &'static str,
    },
}

impl Strategy {
    /// Default strategies: everything that the recording supports and every build includes.
    #[must_use]
    pub fn defaults(meta: &Meta) -> Vec<Self> {
        match meta.mode {
            CaptureMode::Fp => vec![Self::Fp],
            CaptureMode::Dwarf { .. } => vec![Self::Dwarf],
            CaptureMode::Both { .. } => vec![Self::Fp, Self::Dwarf],
            CaptureMode::Cfi { frame_pointers: false, .. } => vec![Self::Cfi],
            CaptureMode::Cfi { frame_pointers: true, .. } => vec![Self::Cfi, Self::Fp],
        }
    }

    /// Checks that a recording has what this strategy needs.
    ///
    /// # Errors
    /// Why it does not, and which recordings do.
    pub fn check(self, meta: &Meta) -> Result<(), StrategyError> {
        match self {
            Self::Elfutils | Self::Libunwind
                if meta.host.processor() != Arch::X86_64 || !cfg!(target_arch = "x86_64") =>
            {
                let recorded = meta.host.processor().name();
                return Err(StrategyError::NotX86 { strategy: self, recorded, here: std::env::consts::ARCH });
            }
            Self::Elfutils if !cfg!(feature = "libdw") => {
                return Err(StrategyError::NotBuilt { strategy: self, feature: "libdw" });
            }
            Self::Libunwind if !cfg!(feature = "libunwind") => {
                return Err(StrategyError::NotBuilt { strategy: self, feature: "libunwind" });
            }
            _ => {}
        }
        let recorded_bytes = match meta.mode {
            CaptureMode::Fp => None,
            CaptureMode::Dwarf { stack_bytes }
            | CaptureMode::Both { stack_bytes, .. }
            | CaptureMode::Cfi { stack_bytes, .. } => Some(stack_bytes),
        };
        match (self, recorded_bytes) {
            (Self::Cfi, _) if !matches!(meta.mode, CaptureMode::Cfi { .. }) => Err(StrategyError::NeedsWalks),
            (Self::Cfi, _) => Ok(()),
            (Self::Fp, _) if meta.mode.has_frame_pointers() => Ok(()),
            (other, _) if matches!(meta.mode, CaptureMode::Cfi { .. }) => {
                let instead = if other == Self::Fp { "--call-graph cfi,fp or both" } else { "--call-graph both" };
                Err(StrategyError::OnlyWalks(other, instead))
            }
            (Self::Fp, _) => Ok(()),
            (_, None) => Err(StrategyError::NeedsChunks(self)),
            (Self::DwarfAt(bytes), Some(recorded_bytes)) if bytes > recorded_bytes => {
                Err(StrategyError::ChunksTooSmall { strategy: self, recorded_bytes })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fp => f.write_str("fp"),
            Self::Dwarf => f.write_str("dwarf"),
            Self::DwarfAt(bytes) => write!(f, "dwarf@{bytes}"),
            Self::Sframe => f.write_str("sframe"),
            Self::Cfi => f.write_str("cfi"),
            Self::Elfutils => f.write_str("elfutils"),
            Self::Libunwind => f.write_str("libunwind"),
        }
    }
}

impl FromStr for Strategy {
    type Err = StrategyError;

    fn from_str(name: &str) -> Result<Self, StrategyError> {
        match name {
            "fp" => Ok(Self::Fp),
            "dwarf" => Ok(Self::Dwarf),
            "sframe" => Ok(Self::Sframe),
            "cfi" => Ok(Self::Cfi),
            "elfutils" | "libdw" => Ok(Self::Elfutils),
            "libunwind" => Ok(Self::Libunwind),
            _ => match name.strip_prefix("dwarf@") {
                Some(bytes) => parse_bytes(bytes).map(Self::DwarfAt).ok_or(StrategyError::BadBytes(name.to_string())),
                None => Err(StrategyError::Unknown(name.to_string())),
            },
        }
    }
}

/// Parses a positive number of bytes, with K or M for 1,024 or 1,048,576.
fn parse_bytes(text: &str) -> Option<u32> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (text.get(..text.len().checked_sub(1)?)?, 1 << 10),
        b'm' | b'M' => (text.get(..text.len().checked_sub(1)?)?, 1 << 20),
        _ => (text, 1),
    };
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u32>().ok().filter(|&n| is_plain && n > 0)?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every name is parsed and printed, including alternative spellings.
    #[test]
    fn names_are_read_and_written() {
        let names = [
            ("fp", Strategy::Fp, "fp"),
            ("dwarf", Strategy::Dwarf, "dwarf"),
            ("dwarf@4096", Strategy::DwarfAt(4096), "dwarf@4096"),
            ("dwarf@64K", Strategy::DwarfAt(65_536), "dwarf@65536"),
            ("dwarf@1m", Strategy::DwarfAt(1 << 20), "dwarf@1048576"),
            ("sframe", Strategy::Sframe, "sframe"),
            ("elfutils", Strategy::Elfutils, "elfutils"),
            ("libdw", Strategy::Elfutils, "elfutils"),
            ("libunwind", Strategy::Libunwind, "libunwind"),
        ];
        for (text, strategy, name) in names {
            assert_eq!((text.parse(), strategy.to_string().as_str()), (Ok(strategy), name));
        }
    }

    /// Check that invalid numbers of bytes are refused as such.
    #[test]
    fn absurd_bytes_are_refused() {
        for text in
            ["dwarf@", "dwarf@0", "dwarf@-1", "dwarf@+1", "dwarf@4G", "dwarf@4294967296", "dwarf@4096M", "dwarf@K"]
        {
            assert_eq!(text.parse::<Strategy>(), Err(StrategyError::BadBytes(text.to_string())));
        }
        for text in ["", "FP", "dwarf,4096", " fp"] {
            assert_eq!(text.parse::<Strategy>(), Err(StrategyError::Unknown(text.to_string())));
        }
    }
}
