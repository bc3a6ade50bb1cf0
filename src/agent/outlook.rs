//! Whether the agent could run here, for `agent --check` and `doctor`.

use super::config::{Config, StoreConfig};
use super::store::own_dir;
use crate::exit::error_chain;
use crate::progress::mode_choice;
use crate::values::mode_name;
use fpprof_collector::{CollectorKind, Update, rehearse};
use rustix::fs::{Access, access};
use std::path::Path;

/// What the agent would do with this configuration, as this user on this machine.
#[derive(Debug)]
pub(crate) struct Outlook {
    /// How it would sample, and why not better; or why it could not.
    pub(crate) sampling: Result<Vec<String>, String>,
    /// Whether it could write its store; or why not.
    pub(crate) store: Result<String, String>,
}

/// Loads and unloads the BPF programs, and looks at the directory of the store; changes nothing.
///
/// # Errors
/// If `call-graph` is invalid.
pub(crate) fn outlook(config: &Config) -> anyhow::Result<Outlook> {
    let mut notes = Vec::new();
    let rehearsed = rehearse(&config.request()?, &mut |update| match update {
        Update::Fallback(fallback) => notes.push(fallback.to_string()),
        Update::Mode(choice) => notes.push(mode_choice(choice)),
        Update::Progress(_) => {}
    });
    let sampling = match rehearsed {
        Ok((collector, mode)) => {
            let with = if collector == CollectorKind::PerfEvent { "perf events" } else { "eBPF" };
            Ok([format!("{} with {with}", mode_name(mode))].into_iter().chain(notes).collect())
        }
        Err(error) => Err(error_chain(&error.into())),
    };
    Ok(Outlook { sampling, store: store(&config.store) })
}

fn store(config: &StoreConfig) -> Result<String, String> {
    let path = &config.path;
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let refused = |why: String| Err(format!("cannot write to {}: {why}", there.display()));
    match access(there, Access::WRITE_OK | Access::EXEC_OK) {
        _ if !there.is_dir() => refused("it is not a directory".to_owned()),
        Err(error) => refused(std::io::Error::from(error).to_string()),
        Ok(()) if there != path.as_path() => Ok(format!("can create {}", path.display())),
        Ok(()) => match own_dir(path) {
            Ok(()) => Ok(format!("can write to {}", path.display())),
            Err(error) => Err(format!("refuses {error}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    /// Check that a store that does not exist yet can be created, and that one which is not a directory is refused.
    #[test]
    fn stores_are_looked_at() {
        let dir = tempfile::tempdir().expect("a directory");
        let of = |path: &Path| store(&StoreConfig { path: path.to_owned(), ..StoreConfig::default() });
        assert!(of(dir.path()).is_ok_and(|words| words.starts_with("can write")));
        assert!(of(&dir.path().join("a/b")).is_ok_and(|words| words.starts_with("can create")));
        assert!(!dir.path().join("a").exists());
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("written");
        assert!(of(&file.join("store")).is_err_and(|words| words.ends_with("file: it is not a directory")));
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).expect("changed");
        assert!(of(dir.path()).is_err_and(|words| words.contains("others may write into it")));
    }
}
