//! Lists the files under some paths.

use super::root::Root;
use std::collections::HashSet;
use std::path::PathBuf;
use walkdir::WalkDir;

/// Regular files, and directories that could not be read.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) paths: Vec<PathBuf>,
    pub(super) unreadable: Vec<String>,
}

/// Lists files. Links in directories are not followed, and other file systems mounted below are not entered (`/proc`
/// and similar ones have endless files).
pub(super) fn files(root: &Root, paths: &[PathBuf]) -> Files {
    let mut files = Files::default();
    for path in paths {
        for entry in WalkDir::new(path).same_file_system(true) {
            match entry {
                Ok(entry) if entry.file_type().is_file() => files.paths.push(entry.into_path()),
                Ok(_) => {}
                Err(error) => {
                    let path = error.path().map_or_else(String::new, |path| root.show(path).display().to_string());
                    files.unreadable.push(format!("{path}: {error}"));
                }
            }
        }
    }
    // Paths may be given twice, or lie in each other.
    let (mut paths, mut unreadable) = (HashSet::new(), HashSet::new());
    files.paths.retain(|path| paths.insert(path.clone()));
    files.unreadable.retain(|why| unreadable.insert(why.clone()));
    files
}
