//! Creates an engine by its name.

use super::external::Asked;
use super::framehop::Framehop;
use super::name::{Engine, Name};
use super::ours::Ours;
use crate::load::Input;

/// Creates an engine with empty caches.
pub(crate) fn make(name: Name, input: &Input) -> anyhow::Result<Box<dyn Engine + '_>> {
    Ok(match name {
        Name::Ours => Box::new(Ours::new(input, 1)),
        Name::OursTwoThreads => Box::new(Ours::new(input, 2)),
        Name::Framehop => Box::new(Framehop::new(input)),
        Name::Libdw | Name::Libunwind => Box::new(Asked::new(name, input)?),
    })
}
