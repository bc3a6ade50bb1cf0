//! What compiler flags cost and what they give: from times of replicated binaries to a verdict.
//!
//! You provide [`Times`] of every binary in every round, sizes, instruction counts and results of recordings ([`Raw`]).
//! In turn you get an [`Evaluation`]: for each program and flag set the change relative to its baseline with an
//! interval, and a verdict for each flag set with the rule it is based on.
//!
//! # Model
//!
//! Binaries of one program built with the same flags differ in time, reproducibly, by more than repeated runs of one of
//! them: mainly by where the linker placed its functions, less by where the kernel placed a copy of it. So link layouts
//! are the unit of replication, and intervals are over them. Copies of a layout are averaged first: they are not
//! independent replicates, since they share the effect of the layout. Layouts that are the same file are copies, too.
//!
//! ```text
//! ln t(round, binary) = round + flags + layout(flags) + copy(layout) + error
//! x(layout)           = mean over its copies of the trimmed mean over rounds of (ln t − mean of the round)
//! effect              = mean of x over the flag set's layouts − mean of x over the baseline's
//! interval            = effect ± t(1 − α/2, Welch's degrees of freedom) · √(s²/n + s₀²/n₀)
//! ```
//!
//! An effect above zero is slower. Every baseline is also compared with itself: another set of layouts built with the
//! same flags (A/A), which shows the differences the method finds when there are none.
//!
//! # Sources
//! - Trimmed means: Tukey and `McLaughlin` (1963), Sankhya A 25; Yuen (1974), Biometrika 61(1): 20 % from each end.
//! - Unequal variances: Welch (1947), Biometrika 34; degrees of freedom: Satterthwaite (1946), Biometrics 2(6).
//! - Many programs at once: Holm (1979), Scandinavian Journal of Statistics 6(2).
//! - Minimum detectable effect: Bloom (1995), Evaluation Review 19(5), at 80 % power.
//! - Layout as the source of variance: Mytkowicz, Diwan, Hauswirth and Sweeney (2009), "Producing wrong data without
//!   doing anything obviously wrong!", ASPLOS; Curtsinger and Berger (2013), "`Stabilizer`", ASPLOS.
//! - Levels of replication: Kalibera and Jones (2013), "Rigorous benchmarking in reasonable time", ISMM.

mod estimate;
mod evaluate;
mod model;
mod verdict;

pub use estimate::{Effect, NoEstimate, TRIM, effect, holm, over_programs};
pub use evaluate::evaluate;
pub use model::{
    Arm, ArmResult, Evaluation, FileSizes, FlagSet, FlagSetResult, FlagsEnvironment, FlagsMethod, FlagsQuality,
    FlagsVerdict, ProgramResult, Raw, RawProgram, StrategyQuality, TallySummary, Times,
};
pub use verdict::{MIN_SAMPLES, RULE, change};

#[cfg(test)]
mod tests;
