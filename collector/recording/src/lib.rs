//! The sample model and the recording format.
//!
//! [`model`] says what a recording holds: what was asked for ([`model::Meta`]), what the processes did
//! ([`model::Sideband`]), what was sampled ([`model::Sample`]), and how it ended ([`model::End`]).
//! It knows nothing of eBPF, of files' names or of unwinding, so that a recording can be analysed on any machine.

pub mod model;
