//! What can be typed.

use crate::cmd;
use clap::{Parser, Subcommand};

/// Records programs with frame pointers, with copied stacks, or with both in the same sample; unwinds offline; and
/// says what each way costs and what it breaks.
///
/// Data goes to stdout, words go to stderr. Exit status: 0 done, 1 failed, 2 wrong usage; `record` passes on the
/// status of the command it ran.
#[derive(Debug, Parser)]
#[command(name = "fpprof", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Record(cmd::record::Args),
    Report(cmd::report::Args),
    Flamegraph(cmd::flamegraph::Args),
    Export(cmd::export::Args),
    Compare(cmd::compare::Args),
    Diff(cmd::diff::Args),
    Cfi(cmd::cfi::Args),
    Unwind(cmd::unwind::Args),
    Verify(cmd::verify::Args),
    Audit(cmd::audit::Args),
    Flags(cmd::flags::Args),
    Import(cmd::import::Args),
    Top(cmd::top::Args),
    Doctor(cmd::doctor::Args),
}
