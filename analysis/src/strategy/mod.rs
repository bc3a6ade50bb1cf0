//! Strategies: ways to get from a recorded sample to a stack.
//!
//! A [`Strategy`] is a pure function from a sample and the modules mapped at that moment to a stack: the same samples
//! through several strategies are what a comparison of accuracy needs. Collecting in a mode and evaluating under a
//! strategy are different things; which strategies a recording supports follows from what its samples carry.

#[cfg(any(feature = "libdw", feature = "libunwind"))]
mod external;
mod item;
mod name;
mod walker;

pub use item::Item;
pub use name::{Strategy, StrategyError};
pub use walker::{Unwound, Walker};
