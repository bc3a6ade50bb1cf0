//! Mapped modules: found, verified, and read only as far as samples need.
//!
//! A [`Resolver`] knows where a file may be and opens it; [`FileModules`] is the one for the file system. Before a file
//! is used it is compared with what was mapped (build ID; device and inode if they are meaningful), so that a replaced
//! file gives no frames and no names instead of wrong ones. Files are read, never mapped, and only regular ones: if a
//! file is truncated while it is read, that is an error and not a signal.
//!
//! [`ModuleTable`] holds all modules, lazily: headers are read when a space with the module is needed (for its bias),
//! sections when a stack passes through it.

mod budget;
mod debug_file;
mod elf;
mod go;
mod go_functions;
mod identity;
mod image;
pub(crate) mod inflate;
mod lone;
mod missing;
mod outermost;
mod pieces;
mod resolver;
mod rule_files;
mod table;
mod unwind_sections;

pub(crate) use elf::has_too_many_headers;
pub use elf::{ElfFile, SectionInfo};
pub(crate) use go_functions::{GoFunctions, GoMissing};
pub use image::{Image, Segment};
pub use lone::{LoneModule, NamedFunction};
pub use missing::Missing;
pub use outermost::OutermostJudge;
pub(crate) use pieces::Pieces;
pub use resolver::{Candidate, FileModules, FileStat, Inode, KERNEL_FILES, KERNEL_TABLE, Opened, ReadSeek, Resolver};
pub use rule_files::RuleFiles;
pub(crate) use table::BySframe;
pub use table::{Location, ModuleTable};

#[cfg(test)]
mod tests;
