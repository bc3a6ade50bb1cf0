//! Every stack with its thread, and with its time if asked for: the model behind formats that other tools read.
//!
//! Takes the samples under one strategy, with the stacks that [`crate::fold::Folder`] has numbered; gives a [`Profile`]:
//! tables of modules, frames, stacks and threads, and samples that refer to them. Frames keep their addresses, and functions
//! their lines.
//!
//! Made only when it is asked for ([`crate::Options::profiles`]), since it keeps threads apart, or every sample.

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
    /// What counts for them, where so many strategies are replayed and the default is at that place.
    pub(crate) fn rows(self, n_strategies: usize, default: usize) -> Vec<Rows> {
        match self {
            Self::None => Vec::new(),
            Self::OfDefault(grouping) => vec![Rows::new(grouping, default)],
            Self::OfEach(grouping) => (0..n_strategies).map(|strategy| Rows::new(grouping, strategy)).collect(),
        }
    }
}
