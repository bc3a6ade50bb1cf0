//! The programs, by what makes their stacks hard.

mod all;
mod frames;
mod linking;
mod running;
mod rust;
mod words;

pub use all::programs;
