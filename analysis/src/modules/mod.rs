//! The modules that were mapped: found, verified, and read no further than a sample needs.
//!
//! A [`Resolver`] says where a file may be and opens it; [`FileModules`] is the one of the file system. Before anything
//! of a file is used it is compared with what was mapped (build id; device and inode where that means something), so
//! that a file that was replaced gives no frames and no names rather than wrong ones. Bytes are read, never mapped, and
//! only from regular files: a file that shrinks while it is read is an error and no signal.
//!
//! [`ModuleTable`] holds all of them, lazily: headers when a space with the module is needed (for its bias), sections
//! when a stack goes through it.

mod budget;
mod debug_file;
mod elf;
mod go;
mod go_functions;
mod identity;
mod image;
mod inflate;
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
pub use resolver::{Candidate, FileModules, FileStat, Inode, KERNEL_FILES, Opened, ReadSeek, Resolver};
pub use rule_files::RuleFiles;
pub(crate) use table::BySframe;
pub use table::{Location, ModuleTable};

#[cfg(test)]
mod tests;
