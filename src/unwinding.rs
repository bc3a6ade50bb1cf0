//! Options of the unwinder.

use fpprof_unwind::{Fallback, Options};

/// Heading of these options in the help.
const HEADING: &str = "Unwinding options";

/// Limits and options of unwinding by call frame information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub(crate) struct Unwinding {
    /// What to do without call frame information
    #[arg(long, value_enum, default_value_t = FallbackArg::Jit, help_heading = HEADING)]
    fallback: FallbackArg,
    /// Maximum number of frames per stack
    #[arg(
        long, value_name = "N", default_value_t = Options::default().max_depth,
        value_parser = clap::value_parser!(u32).range(1..), help_heading = HEADING
    )]
    max_depth: u32,
    /// Maximum number of DWARF expression operations per stack
    #[arg(long, value_name = "STEPS", default_value_t = Options::default().max_expression_steps, help_heading = HEADING)]
    budget: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FallbackArg {
    /// End the stack there, and say why
    None,
    /// Follow the frame pointer in JIT-compiled code only, and mark the frame (`fp_in_jit`)
    Jit,
    /// Follow the frame pointer wherever call frame information is missing, and mark the frame (`fp_fallback`): `_[fp]` in folded stacks, its own colour in flame graphs
    Fp,
}

impl Default for Unwinding {
    fn default() -> Self {
        let Options { max_depth, max_expression_steps, .. } = Options::default();
        Self { fallback: FallbackArg::Jit, max_depth, budget: max_expression_steps }
    }
}

impl Unwinding {
    /// The options of the unwinder library.
    pub(crate) fn options(self) -> Options {
        let fallback = match self.fallback {
            FallbackArg::None => Fallback::None,
            FallbackArg::Jit => Fallback::Jit,
            FallbackArg::Fp => Fallback::FramePointer,
        };
        let Self { max_depth, budget: max_expression_steps, .. } = self;
        Options { max_depth, fallback, max_expression_steps, ..Options::default() }
    }
}
