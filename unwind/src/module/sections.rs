//! The input of a module.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use bytes::Bytes;

use crate::arch::Arch;
use crate::stack::Root;

/// Bytes of one ELF section, decompressed.
#[derive(Clone)]
pub struct Section {
    /// The address it is linked at.
    pub svma: u64,
    /// Its contents.
    pub bytes: Bytes,
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Section {{ svma: {:#x}, bytes: [u8; {}] }}", self.svma, self.bytes.len())
    }
}

/// What the unwinder needs from a module. Everything is optional: a module may have no unwind information.
#[derive(Debug, Clone)]
pub struct ModuleSections {
    /// `.eh_frame`.
    pub eh_frame: Option<Section>,
    /// `.eh_frame_hdr`, the search table of `.eh_frame`. If it is missing or wrong, the section is scanned.
    pub eh_frame_hdr: Option<Section>,
    /// `.debug_frame`, for addresses `.eh_frame` does not cover.
    pub debug_frame: Option<Section>,
    /// `.sframe`. If given, rows are taken from it and nothing else.
    pub sframe: Option<Section>,
    /// SVMAs of `.text`, the base of `DW_EH_PE_textrel`.
    pub text: Option<Range<u64>>,
    /// SVMA of `.got`, the base of `DW_EH_PE_datarel`.
    pub got: Option<u64>,
    /// The architecture of the code.
    pub arch: Arch,
    /// Byte order. Big-endian sections are not supported.
    pub little_endian: bool,
    /// SVMA of the entry point (`e_entry`), where a walk of the main thread ends.
    pub entry: Option<u64>,
    /// Code where a walk ends whatever its rows say, for run-time libraries whose call frame information does not mark
    /// their outermost functions.
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
