//! What to unwind a core with.

use crate::modules::Resolver;
use std::path::Path;

/// What to unwind a core with.
#[derive(Debug, Clone, Copy)]
pub struct CoreOptions<'a> {
    /// Finds files.
    pub resolver: &'a dyn Resolver,
    /// The file to take for the executable, whatever it was called.
    pub executable: Option<&'a Path>,
    /// Files are looked for below it only; the resolver must know it.
    pub root: Option<&'a Path>,
    /// Limits and options of the unwinder.
    pub unwinding: fpprof_unwind::Options,
}
