//! The model of `results.json`: one command run under every mode, interleaved and repeated.
//!
//! Fill [`Experiment`] with the raw values of every run, then call [`Experiment::complete`]: it makes the
//! [`Aggregate`] of every row. Raw values stay beside what was made of them, so that anyone can do the sums again.
//! A figure that a tool cannot give is `{"value": null, "reason": "…"}` ([`Measured`]), never 0.

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
