//! `fpprof query`: runs the program `fpprof-query`.
//!
//! It is a program of its own because its SQL engine is larger than all the rest of fpprof.

use anyhow::bail;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

const PROGRAM: &str = "fpprof-query";

/// Query a store in SQL; needs the program fpprof-query
///
/// The package fpprof-query has that program, and `./dev query` builds it. `fpprof query --help` has its options and examples.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// The query and options of fpprof-query
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes `fpprof-query`, the one beside this program or else the first in PATH.
///
/// # Errors
/// If there is none, or it cannot be run.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let program = beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).args(&args.arguments).exec();
    if error.kind() == ErrorKind::NotFound {
        bail!(
            "{PROGRAM} is neither beside this program nor in PATH: install the package {PROGRAM}, or build it with \
             `./dev query`; DuckDB and other engines read the store, too"
        );
    }
    Err(anyhow::Error::new(error).context(program.display().to_string()))
}
