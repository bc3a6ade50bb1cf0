//! How strategies differ over the same samples, and what other chunk sizes would have given.

mod agreement;
mod chunk_needs;
mod chunk_sizes;
mod compare;

pub(crate) use agreement::Blame;
pub use agreement::{Agreement, AgreementCounter, DisputedFunction};
pub use chunk_needs::{Around, chunk_needs};
pub(crate) use chunk_sizes::needed_bytes;
pub use chunk_sizes::{ChunkSizeCounter, ChunkSizes, NamedChunkSizes};
pub(crate) use compare::same_frames;
pub use compare::{Comparison, Difference, Relation};

#[cfg(test)]
mod tests;
