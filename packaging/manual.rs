//! Writes the manual pages and the completions of bash, zsh and fish into a directory, from the command line's definition.
#![forbid(unsafe_code)]

use anyhow::Context as _;
use clap_complete::Shell;
use std::env;
use std::fs;
use std::path::Path;

fn main() -> anyhow::Result<()> {
    let folder = env::args_os().nth(1).context("usage: manual DIRECTORY")?;
    write(Path::new(&folder))
}

/// Writes them where a `share` directory has them.
pub(crate) fn write(share: &Path) -> anyhow::Result<()> {
    let man = share.join("man/man1");
    fs::create_dir_all(&man)?;
    clap_mangen::generate_to(fpprof::command(), man)?;
    let shells = [
        (Shell::Bash, "bash-completion/completions"),
        (Shell::Zsh, "zsh/site-functions"),
        (Shell::Fish, "fish/vendor_completions.d"),
    ];
    for (shell, folder) in shells {
        let folder = share.join(folder);
        fs::create_dir_all(&folder)?;
        let made = clap_complete::generate_to(shell, &mut fpprof::command(), "fpprof", &folder)?;
        if shell == Shell::Bash {
            // bash-completion looks for a file named like the command.
            fs::rename(made, folder.join("fpprof"))?;
        }
    }
    Ok(())
}
