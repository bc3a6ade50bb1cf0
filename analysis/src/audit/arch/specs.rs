//! Looks up the description of an architecture.

use super::super::model::Machine;
use super::spec::Spec;
use super::{aarch64, x86_64};

/// The description of a machine's architecture.
pub(crate) fn spec(machine: Machine) -> &'static Spec {
    match machine {
        Machine::X86_64 => &x86_64::SPEC,
        Machine::Aarch64 => &aarch64::SPEC,
    }
}
