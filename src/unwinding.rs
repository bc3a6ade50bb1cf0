//! What may be asked of the unwinder.

use fpprof_unwind::{Fallback, Options};

/// Limits and options of unwinding by call frame information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Unwinding by call frame information")]
pub(crate) struct Unwinding {
    /// What to do where there is no call frame information
    #[arg(long, value_enum, default_value_t = FallbackArg::None)]
    fallback: FallbackArg,
    /// Most frames of a stack
    #[arg(long, value_name = "N", default_value_t = Options::default().max_depth, value_parser = clap::value_parser!(u32).range(1..))]
    max_depth: u32,
    /// Most operations of all DWARF expressions of a stack, which is what hostile call frame information takes time with
    #[arg(long, value_name = "STEPS", default_value_t = Options::default().max_expression_steps)]
    budget: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FallbackArg {
    /// Stop, and say so
    None,
    /// Go on with the frame pointer, and mark the frame: `_[fp]` in folded stacks, a colour of its own in a flame graph
    Fp,
}

impl Default for Unwinding {
    fn default() -> Self {
        let Options { max_depth, max_expression_steps, .. } = Options::default();
        Self { fallback: FallbackArg::None, max_depth, budget: max_expression_steps }
    }
}

impl Unwinding {
    /// What the unwinder is asked for.
    pub(crate) fn options(self) -> Options {
        let fallback = match self.fallback {
            FallbackArg::None => Fallback::None,
            FallbackArg::Fp => Fallback::FramePointer,
        };
        let Self { max_depth, budget: max_expression_steps, .. } = self;
        Options { max_depth, fallback, max_expression_steps, ..Options::default() }
    }
}
