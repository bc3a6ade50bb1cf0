//! The facts of every architecture.

use super::super::model::Machine;
use super::spec::Spec;
use super::{aarch64, x86_64};

/// The facts of a machine.
pub(crate) fn spec(machine: Machine) -> &'static Spec {
    match machine {
        Machine::X86_64 => &x86_64::SPEC,
        Machine::Aarch64 => &aarch64::SPEC,
    }
}
