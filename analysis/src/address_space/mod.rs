//! Which file was mapped where, in which process, at which moment.
//!
//! All process events of a recording, in whatever order, become a [`Timeline`]. A sample finds its [`Place`] in it by
//! process, thread and time; the place names the address space as of that moment by a [`SpaceKey`].
//!
//! ```text
//! pid 7 ──┬─ life from 0   ── log 0   edits: map A, map B, cut A, map C
//!         └─ life from 900 ── log 1   (after exec: empty, then its own edits)
//! pid 9 ──── life from 500 ── log 2   base = log 0 after 3 edits (forked from 7 then)
//! ```
//!
//! An address space at a moment is *a log and how many of its edits apply*. Forks refer to their parent's log instead
//! of copying it, so thousands of modules times thousands of forks stay small; a child without edits of its own *is*
//! its parent's space, and shares everything cached for it. Only executable mappings, and what cuts them, are edits:
//! nothing else can change a stack.

mod builder;
mod content;
mod event;
mod files;
mod interned;
mod moments;
mod sampled;
mod timeline;
mod window;

pub use builder::Builder;
pub use content::{Contents, SpaceMapping};
pub use files::{Embedded, FileIx, MappedFile};
pub(crate) use moments::MomentCache;
pub use sampled::Sampled;
pub use timeline::{CgroupIx, CommIx, Place, ProcessIx, SpaceKey, Timeline};

#[cfg(test)]
mod tests;
