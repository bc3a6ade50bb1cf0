//! How strategies differ over the same samples, and what smaller chunks would have given.

mod agreement;
mod chunk_needs;
mod chunk_sizes;
mod compare;

pub use agreement::{Agreement, AgreementCounter, Culprit};
pub use chunk_needs::chunk_needs;
pub use chunk_sizes::{ChunkSizeCounter, ChunkSizes, ProcessChunkSizes};
pub use compare::{Comparison, Difference, Relation};

#[cfg(test)]
mod tests;
