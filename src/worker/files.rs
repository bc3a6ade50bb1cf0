//! What a command may ask for.

use std::path::{Path, PathBuf};

/// What a command may ask for besides ELF files.
#[derive(Debug, Default, Clone)]
pub(crate) struct Files {
    /// Opened for reading, whatever they are. `-` is standard input.
    pub(crate) inputs: Vec<PathBuf>,
    /// Written.
    pub(crate) outputs: Vec<PathBuf>,
    /// It opens files for reading itself: the libraries of the strategies `elfutils` and `libunwind` do.
    pub(crate) reads: bool,
    /// It calls [`confine`](super::confine()) itself, once it has run what it must.
    pub(crate) confines_itself: bool,
    /// It works as long as a recording goes on, which may be for ever.
    pub(crate) goes_on: bool,
}

impl Files {
    /// These inputs and outputs.
    pub(crate) fn new<'a>(
        inputs: impl IntoIterator<Item = &'a Path>,
        outputs: impl IntoIterator<Item = &'a Path>,
    ) -> Self {
        let owned = |path: &Path| path.to_owned();
        Self {
            inputs: inputs.into_iter().map(owned).collect(),
            outputs: outputs.into_iter().map(owned).collect(),
            ..Self::default()
        }
    }

    /// None, for a worker that calls [`confine`](super::confine()) itself.
    pub(crate) fn confined_by_itself() -> Self {
        Self { confines_itself: true, goes_on: true, ..Self::default() }
    }
}
