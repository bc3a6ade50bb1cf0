//! A module: the unwind sections of one ELF file, and the look-up from an address to its FDE.

mod entry;
mod header;
mod index;
mod indexed;
mod sections;
mod sframe;

pub use entry::SectionKind;
pub(crate) use entry::{Fde, Reader};
pub use indexed::Module;
pub(crate) use indexed::Place;
pub use sections::{ModuleSections, Section};
pub(crate) use sframe::{Base, SframeRow, SframeRule};
