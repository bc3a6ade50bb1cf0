//! Builds modules from ELF files parsed by the crate `object`.

use crate::arch::Arch;
use crate::error::Error;
use crate::module::{Module, ModuleSections, Section};
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Range;
use object::{Architecture, Object, ObjectSection as _};

impl Module {
    /// The unwind sections of a file, its architecture and its entry point.
    ///
    /// Compressed sections need the feature `compression` of the crate `object`. Other roots
    /// ([`ModuleSections::roots`]) cannot be read from a section; the list stays empty.
    ///
    /// # Errors
    /// [`Error::Object`] if a section cannot be read, [`Error::Architecture`] if the architecture is not supported.
    pub fn from_object<'d>(file: &impl Object<'d>) -> Result<Self, Error> {
        let sections = ModuleSections {
            eh_frame: section(file, ".eh_frame")?,
            eh_frame_hdr: section(file, ".eh_frame_hdr")?,
            debug_frame: section(file, ".debug_frame")?,
            sframe: None,
            text: range(file, ".text"),
            got: range(file, ".got").map(|range| range.start),
            arch: match file.architecture() {
                Architecture::X86_64 => Arch::X86_64,
                Architecture::I386 => Arch::I386,
                Architecture::Aarch64 => Arch::Aarch64,
                other => return Err(Error::Architecture(other)),
            },
            little_endian: file.is_little_endian(),
            entry: Some(file.entry()).filter(|&entry| entry != 0),
            roots: Vec::new(),
        };
        Ok(Self::new(sections))
    }
}

fn section<'d>(file: &impl Object<'d>, name: &str) -> Result<Option<Section>, Error> {
    let Some(section) = file.section_by_name(name) else { return Ok(None) };
    let bytes = section.uncompressed_data()?;
    Ok(Some(Section { svma: section.address(), bytes: Bytes::from(bytes.into_owned()) }))
}

fn range<'d>(file: &impl Object<'d>, name: &str) -> Option<Range<u64>> {
    let section = file.section_by_name(name)?;
    Some(section.address()..section.address().saturating_add(section.size()))
}
