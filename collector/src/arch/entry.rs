//! Entries into the kernel.

/// Where on its way into the kernel an interrupt has found a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryStage {
    /// The user's registers are not saved yet: those that stand there are of an earlier entry.
    Before,
    /// They are being saved, and the kernel gives none.
    Saving,
    /// Beyond.
    Inside,
}
