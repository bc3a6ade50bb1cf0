//! Options for unwinding a core.

use crate::modules::Resolver;
use std::path::Path;

/// Options for unwinding a core.
#[derive(Debug, Clone, Copy)]
pub struct CoreOptions<'a> {
    /// Finds files.
    pub resolver: &'a dyn Resolver,
    /// The file to use as the executable, whatever its path in the core.
    pub executable: Option<&'a Path>,
    /// If set, files are looked up only below this directory, which the resolver must know.
    pub root: Option<&'a Path>,
    /// Limits and options of the unwinder.
    pub unwinding: fpprof_unwind::Options,
}
