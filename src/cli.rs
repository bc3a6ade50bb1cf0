//! The command line.

use crate::cmd;
use clap::{CommandFactory as _, Parser, Subcommand};

/// Profile programs with frame pointers, DWARF or both, and show what each costs and gets wrong
///
/// Prints data to stdout and messages to stderr. Exits with 0 on success, 1 on failure and 2 on wrong usage; `record`
/// exits with the status of its command.
#[derive(Debug, Parser)]
#[command(name = "fpprof", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands, in the order of the help; `display_order` is the index of a group's heading in [`GROUPS`].
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(display_order = 0)]
    Record(cmd::record::Args),
    #[command(display_order = 0)]
    Report(cmd::report::Args),
    #[command(display_order = 0)]
    Flamegraph(cmd::flamegraph::Args),
    #[command(display_order = 0)]
    Top(cmd::top::Args),
    #[command(display_order = 0)]
    Agent(cmd::agent::Args),
    #[command(display_order = 0)]
    Serve(cmd::serve::Args),
    #[command(display_order = 0)]
    Query(cmd::query::Args),
    #[command(display_order = 1)]
    Compare(cmd::compare::Args),
    #[command(display_order = 1)]
    Diff(cmd::diff::Args),
    #[command(display_order = 1)]
    Export(cmd::export::Args),
    #[command(display_order = 1)]
    Import(cmd::import::Args),
    #[command(display_order = 1)]
    Archive(cmd::archive::Args),
    #[command(display_order = 2)]
    Verify(cmd::verify::Args),
    #[command(display_order = 2)]
    Audit(cmd::audit::Args),
    #[command(display_order = 2)]
    Flags(cmd::flags::Args),
    #[command(display_order = 3)]
    Doctor(cmd::doctor::Args),
    #[command(display_order = 3)]
    Cfi(cmd::cfi::Args),
    #[command(display_order = 3)]
    Unwind(cmd::unwind::Args),
}

/// Headings of the groups of subcommands in the help.
const GROUPS: [&str; 4] = ["Record and look", "Compare and convert", "Evaluate", "Debug"];

/// The command line's definition, whose help lists the subcommands in groups, which clap cannot do by itself.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command();
    let styles = command.get_styles().clone();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let n_columns = command.get_subcommands().map(|one| one.get_name().len()).max().unwrap_or(0);
    let mut help = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, heading) in GROUPS.iter().enumerate() {
        help.push_str(&format!("\n{header}{heading}:{header:#}\n"));
        for one in command.get_subcommands().filter(|one| one.get_display_order() == group) {
            let (name, about) = (one.get_name(), one.get_about().cloned().unwrap_or_default());
            help.push_str(&format!("  {literal}{name:n_columns$}{literal:#}  {about}\n"));
        }
    }
    help.push_str(&format!("\n{header}Options:{header:#}\n{{options}}{{after-help}}"));
    command.help_template(help).after_help("Run `fpprof COMMAND --help` for the options of a command.")
}
