//! The unwinders under test.

mod external;
mod framehop;
mod make;
mod name;
mod ours;

pub(crate) use make::make;
pub(crate) use name::{Name, Pass};
