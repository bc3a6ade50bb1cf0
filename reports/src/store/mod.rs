//! Answers from the tables of a store, or of one recording: what `fpprof serve` shows.
//!
//! You provide open Parquet files of [`crate::parquet`], one after the other, and a [`Filter`]. In turn you get rows that pass
//! it, and from those an aggregate and then an answer: [`Facets`] to choose from, [`Stacks`] for flame graphs, functions and
//! comparisons, [`Quality`] and [`Cost`] over time. Which files there are, and what is done about one that cannot be read, is not
//! decided here.
//!
//! **Invariant:** an answer is of one event and one strategy (a comparison: of one strategy on each side), since each sample
//! has a row for each strategy, and waits are in no sum with samples. What is left out to keep an answer small is in it as a
//! count, so that totals are those of the rows.

mod compared;
mod cost;
mod counts;
mod error;
mod facets;
mod filter;
mod flamegraph;
mod functions;
mod labels;
mod page;
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
pub use page::{Page, page};
pub use quality::{Quality, QualityAnswer, StackCount, TickCount};
pub use rows::{Rows, read};
pub use stacks::{Stacks, Unit, Wanted};
