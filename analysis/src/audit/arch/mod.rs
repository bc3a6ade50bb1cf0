//! What differs between architectures: registers, the meaning of a row for a frame-pointer walk, the encoding of calls.

pub(super) mod aarch64;
mod spec;
mod specs;
pub(super) mod x86_64;

pub(super) use spec::{Calls, Context, Reader, Row, Shape, Spec, Target};
pub(super) use specs::spec;
