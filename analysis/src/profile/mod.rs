//! Every stack with its thread, and with its time if asked for: the model behind formats of other tools.
//!
//! Takes the samples under one strategy, with the stacks numbered by [`crate::fold::Folder`]; makes a [`Profile`]:
//! tables of modules, frames, stacks and threads, and samples that refer to them. Frames keep their addresses, and
//! functions their lines.
//!
//! Made only if asked for ([`crate::Options::profiles`]), since it keeps threads, or even samples, separate.

mod make;
mod model;
mod rows;

pub use fpprof_recording::model::BuildId;
pub(crate) use make::{Naming, make};
pub use model::{
    Function, Grouping, Profile, ProfileEvent, ProfileFrame, ProfileModule, ProfileOrigin, ProfileSample, ProfileStack,
    ProfileThread, Profiles, Weight,
};
pub(crate) use rows::Rows;

impl Profiles {
    /// The counters for these profiles, given the number of replayed strategies and the index of the default.
    pub(crate) fn rows(self, n_strategies: usize, default: usize) -> Vec<Rows> {
        match self {
            Self::None => Vec::new(),
            Self::OfDefault(grouping) => vec![Rows::new(grouping, default)],
            Self::OfEach(grouping) => (0..n_strategies).map(|strategy| Rows::new(grouping, strategy)).collect(),
        }
    }
}
