//! Computes answers from the tables of a store or of one recording, for `fpprof serve` and `fpprof export`.
//!
//! You provide open Parquet files of [`crate::parquet`], one after the other, and a [`Filter`]. In turn you get the
//! rows that pass it; aggregates of rows; and from those, answers: [`Facets`] for the lists of choices, [`Stacks`] for
//! flame graphs, functions and comparisons, [`Quality`] and [`Cost`] over time, [`StoreProfile`] for other tools. [`merge()`] makes one table of several.
//! The caller finds the files, and decides
//! what to do about unreadable ones.
//!
//! **Invariant:** an answer covers one event and one strategy (in a comparison, one strategy per side), since each
//! sample has a row for each strategy, and waits are never summed with samples. What is left out to keep an answer
//! small is counted in it, so that totals are those of all rows.

mod compared;
mod cost;
mod counts;
mod error;
mod facets;
mod filter;
mod flamegraph;
mod functions;
mod labels;
mod merge;
mod page;
mod profile;
mod quality;
mod rows;
mod series;
mod stacks;
mod tree;

#[cfg(test)]
mod tests;

pub use compared::{Compared, ComparedFunction, compared};
pub use cost::{Cost, CostAnswer, CostPoint};
pub use counts::Chosen;
pub use error::StoreError;
pub use facets::{Choice, Combination, Facets, FacetsAnswer, Named};
pub use filter::{Facet, Filter};
pub use flamegraph::{Flamegraph, Nodes, flamegraph};
pub use functions::{FunctionCount, FunctionsAnswer, functions};
pub use merge::{MergeError, merge};
pub use page::{Page, page};
pub use profile::{StoreProfile, folded};
pub use quality::{Quality, QualityAnswer, StackCount, TickCount};
pub use rows::{GoesOn, Rows, read};
pub use stacks::{Stacks, Unit, Wanted};
