//! The unwinders.

mod external;
mod framehop;
mod name;
mod ours;

pub(crate) use name::{Name, Pass, make};
