//! A module: the unwind sections of one ELF file, and the way from an address to its entry.

mod entry;
mod header;
mod index;
mod sections;

pub use entry::SectionKind;
pub(crate) use entry::{Fde, Reader};
pub(crate) use sections::Place;
pub use sections::{Module, ModuleSections, Section};
