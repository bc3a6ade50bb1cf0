//! Modules that are packed before they are passed to the writer.

use crate::codec::SidebandEncoder;
use crate::error::Error;
use crate::model::{ModuleBytes, Sideband};
use crate::pack::Packer;
use crate::workers::PackedBlock;

/// A module, encoded and packed as a block of its own: a large one takes a tenth of a second, which would delay the
/// thread that writes samples. Any thread can create it.
#[derive(Debug)]
pub struct PackedModule(pub(crate) PackedBlock);

impl PackedModule {
    /// Packs a module.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for one over 48 MiB.
    pub fn new(module: ModuleBytes) -> Result<Self, Error> {
        let mut encoder = SidebandEncoder::default();
        encoder.push(&Sideband::Module(module))?;
        let mut stored = Vec::new();
        Packer::new()?.pack(&[encoder.payload()], &mut stored)?;
        Ok(Self(PackedBlock {
            items: encoder.items(),
            n_parts: 1,
            raw_len: encoder.payload().len(),
            stored,
            by_cpu: Vec::new(),
        }))
    }

    /// Size as stored, bytes.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        self.0.stored.len()
    }
}
