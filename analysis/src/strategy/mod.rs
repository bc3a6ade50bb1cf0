//! Strategies: ways to get from a recorded sample to a stack.
//!
//! A [`Strategy`] is a pure function from a sample and the modules mapped at that moment to a stack. To compare
//! accuracy, the same samples are unwound with several strategies. Collecting in a mode and evaluating under a strategy
//! are separate; which strategies a recording supports depends on the contents of its samples.

#[cfg(any(feature = "libdw", feature = "libunwind"))]
mod external;
mod item;
mod name;
mod walker;

pub use item::Item;
pub use name::{Strategy, StrategyError};
pub use walker::{Unwound, Walker};
