//! Replay, strategies, symbols, folding, balance, volume, quality, overhead and statistics.
//!
//! A recording goes in; models that a report can print come out ([`summary`], [`folded`]).

pub mod experiment;
pub mod folded;
pub mod statistics;
pub mod summary;
