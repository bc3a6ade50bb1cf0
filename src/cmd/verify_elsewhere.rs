//! `fpprof verify` on architectures where it cannot step programs.

use std::ffi::OsString;

/// Single-step a program and check every strategy against its true stack (x86-64 only)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The arguments that it takes on x86-64
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _arguments: Vec<OsString>,
}

/// Fails with a message that names the architecture.
///
/// # Errors
/// Always.
pub(crate) fn run(_: &Args) -> anyhow::Result<u8> {
    let here = std::env::consts::ARCH;
    anyhow::bail!("`verify` supports x86-64 only, and this machine is {here}")
}
