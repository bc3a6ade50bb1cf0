//! What the unwinder is given of a module.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use bytes::Bytes;

use crate::arch::Arch;
use crate::stack::Root;

/// Bytes of one ELF section, decompressed.
#[derive(Clone)]
pub struct Section {
    /// The address it is linked for.
    pub svma: u64,
    /// Its contents.
    pub bytes: Bytes,
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Section {{ svma: {:#x}, bytes: [u8; {}] }}", self.svma, self.bytes.len())
    }
}

/// What the unwinder needs of a module. Everything is optional: a module may have no information.
#[derive(Debug, Clone)]
pub struct ModuleSections {
    /// `.eh_frame`.
    pub eh_frame: Option<Section>,
    /// `.eh_frame_hdr`. A fast way into `.eh_frame` where it is right; where it is missing or wrong the section
    /// is scanned.
    pub eh_frame_hdr: Option<Section>,
    /// `.debug_frame`, for addresses `.eh_frame` does not cover.
    pub debug_frame: Option<Section>,
    /// `.sframe`. Where it is given, rows are taken from it and from nothing else.
    pub sframe: Option<Section>,
    /// SVMAs of `.text`, the base of `DW_EH_PE_textrel`.
    pub text: Option<Range<u64>>,
    /// SVMA of `.got`, the base of `DW_EH_PE_datarel`.
    pub got: Option<u64>,
    /// Whose code it is.
    pub arch: Arch,
    /// Byte order. Big-endian sections are not read.
    pub little_endian: bool,
    /// SVMA of the entry point (`e_entry`), where a walk of the main thread ends.
    pub entry: Option<u64>,
    /// Code where a walk ends whatever its rows say, as in run-time libraries whose call frame information does not
    /// say so itself.
    pub roots: Vec<(Range<u64>, Root)>,
}

impl Default for ModuleSections {
    fn default() -> Self {
        Self {
            eh_frame: None,
            eh_frame_hdr: None,
            debug_frame: None,
            sframe: None,
            text: None,
            got: None,
            arch: Arch::default(),
            little_endian: true,
            entry: None,
            roots: Vec::new(),
        }
    }
}
