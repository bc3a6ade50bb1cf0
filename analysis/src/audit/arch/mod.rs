//! What differs between architectures: registers, what a row means to a frame-pointer walk, what a call looks like.

pub(super) mod aarch64;
mod spec;
mod specs;
pub(super) mod x86_64;

pub(super) use spec::{Calls, Context, Reader, Row, Shape, Spec, Target};
pub(super) use specs::spec;
