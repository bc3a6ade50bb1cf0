//! The unwinder from outside: stacks built word by word, sections built byte by byte, and the files of this machine.
#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    reason = "what tests build is small and known, and a panic is how they fail"
)]

mod build;

mod arches;
mod batches;
mod broken;
mod chains;
mod ends;
mod function_rules;
mod hostile;
mod indexes;
mod programs;
mod red_zone;
mod roots;
mod rows;
mod rules;
mod sframe;
mod truncated;
mod two_stacks;
mod words;
