//! The model of `results.json`: one command run under every mode, interleaved and repeated.
//!
//! Fill [`Experiment`] with the raw values of every run, then call [`Experiment::complete`], which computes the
//! [`Aggregate`] of every row. Raw values are kept next to the aggregates, so that anyone can recompute them.
//! A figure that a tool cannot provide is `{"value": null, "reason": "…"}` ([`Measured`]), never 0.

mod aggregate;
mod combine;
mod complete;
mod ends;
mod measured;
mod model;

#[cfg(test)]
mod tests;

pub use aggregate::{Aggregate, BalanceCheck, ProcessStacks, SampleCounts, StrategyStacks};
pub use complete::Baselines;
pub use ends::{Right, StackEnds};
pub use measured::Measured;
pub use model::{
    Attributed, BetterWhen, Experiment, ExperimentEnvironment, ExperimentMethod, ExperimentRow, Metric, Run, SCHEMA,
    Stacks, Tool, Version,
};
