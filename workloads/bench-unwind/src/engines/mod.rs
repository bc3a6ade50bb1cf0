//! The unwinders.

mod framehop;
mod name;
mod opinion;
mod ours;

pub(crate) use name::{Name, Pass, make};
