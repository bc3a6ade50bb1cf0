//! Maps files to packages, from the databases of dpkg and RPM.

use super::root::{Root, open_regular};
use anyhow::Context as _;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The package database of a directory tree.
#[derive(Debug)]
pub(super) struct Packages {
    kind: Kind,
    root: Option<PathBuf>,
    owners: OnceLock<HashMap<PathBuf, usize>>,
    names: OnceLock<Vec<String>>,
}

#[derive(Debug)]
enum Kind {
    /// A directory with one list of files per package.
    Dpkg(PathBuf),
    /// A database that only `rpm` can read.
    Rpm,
    /// No database.
    None,
}

/// The most bytes read of the list of a package; the largest have some MB.
const MAX_LIST_BYTES: u64 = 64 << 20;
/// Directories that may be links to the directory of the same name under `/usr`. Older packages list their files under
/// these names.
const MERGED: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

impl Packages {
    /// Finds the database of the tree.
    pub(super) fn open(root: &Root) -> anyhow::Result<Self> {
        let kind = if let Ok(lists) = root.resolve(Path::new("/var/lib/dpkg/info")) {
            Kind::Dpkg(lists)
        } else if ["/var/lib/rpm", "/usr/lib/sysimage/rpm"].iter().any(|path| root.resolve(Path::new(path)).is_ok()) {
            Kind::Rpm
        } else {
            Kind::None
        };
        let root = root.image().map(Path::to_owned);
        Ok(Self { kind, root, owners: OnceLock::new(), names: OnceLock::new() })
    }

    /// The files of a package, as paths of this machine. Listed files that do not exist are left out: a package may
    /// list files that only some of its hooks create.
    pub(super) fn files_of(&self, root: &Root, name: &str) -> anyhow::Result<Vec<PathBuf>> {
        let listed = match &self.kind {
            Kind::Dpkg(lists) => dpkg_files(lists, name)?,
            Kind::Rpm => lines(&self.rpm(&["-ql", "--", name])?),
            Kind::None => anyhow::bail!("no database of packages (dpkg or RPM){}: give paths instead", root.inside()),
        };
        let mut files = Vec::new();
        for path in listed {
            let Ok(path) = root.resolve(&path) else { continue };
            if path.is_file() {
                files.push(path);
            }
        }
        Ok(files)
    }

    /// Reads the whole database while this process may still run `rpm`.
    pub(super) fn read(&self, root: &Root) {
        let _ = self.owner(root, Path::new("/"));
    }

    /// The package that owns a file, by its path in the tree. The first call reads the whole database.
    pub(super) fn owner(&self, root: &Root, path: &Path) -> Option<&str> {
        let owners = self.owners.get_or_init(|| {
            let (names, owners) = self.read_all(root);
            self.names.get_or_init(|| names);
            owners
        });
        let index = *owners.get(path)?;
        self.names.get()?.get(index).map(String::as_str)
    }

    fn read_all(&self, root: &Root) -> (Vec<String>, HashMap<PathBuf, usize>) {
        let listed: Vec<(String, Vec<PathBuf>)> = match &self.kind {
            Kind::Dpkg(lists) => dpkg_all(lists),
            // If the database cannot be read, files have no owner; `--package` reports the error.
            Kind::Rpm => {
                self.rpm(&["-qa", "--qf", "[%{=NAME}\t%{FILENAMES}\n]"]).map(|text| rpm_all(&text)).unwrap_or_default()
            }
            Kind::None => Vec::new(),
        };
        let merged: Vec<_> = MERGED
            .iter()
            .filter(|name| {
                let outer = root.resolve(&Path::new("/").join(name));
                let inner = root.resolve(&Path::new("/usr").join(name));
                matches!((outer, inner), (Ok(outer), Ok(inner)) if outer == inner)
            })
            .map(|name| Path::new("/").join(name))
            .collect();
        let mut owners = HashMap::new();
        let mut names = Vec::new();
        for (name, paths) in listed {
            for path in paths {
                let path = if merged.iter().any(|merged| path.starts_with(merged)) {
                    Path::new("/usr").join(path.strip_prefix("/").unwrap_or(&path))
                } else {
                    path
                };
                owners.insert(path, names.len());
            }
            names.push(name);
        }
        (names, owners)
    }

    fn rpm(&self, args: &[&str]) -> anyhow::Result<Vec<u8>> {
        let mut command = Command::new("rpm");
        if let Some(root) = &self.root {
            command.arg("--root").arg(root);
        }
        let output = command.args(args).output().context(
            "the tree has an RPM database, which needs the command `rpm` to read: install it, or give paths instead",
        )?;
        if !output.status.success() {
            let message = [output.stdout, output.stderr].concat();
            anyhow::bail!("rpm: {}", String::from_utf8_lossy(&message).trim());
        }
        Ok(output.stdout)
    }
}

/// The file list of a package: `NAME.list`, or `NAME:ARCH.list` if several architectures are installed.
fn dpkg_files(lists: &Path, name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    let mut is_known = false;
    for (package, file) in dpkg_lists(lists) {
        if package == name || package.split_once(':').is_some_and(|(package, _)| package == name) {
            is_known = true;
            paths.extend(lines(&read_list(&file).with_context(|| format!("cannot read {}", file.display()))?));
        }
    }
    anyhow::ensure!(is_known, "package {name} is not installed");
    Ok(paths)
}

/// Reads a list of a tree that a stranger may have made: only from a file, and only so much.
fn read_list(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = Vec::new();
    file.take(MAX_LIST_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

fn dpkg_all(lists: &Path) -> Vec<(String, Vec<PathBuf>)> {
    let mut all = Vec::new();
    for (package, file) in dpkg_lists(lists) {
        let name = package.split_once(':').map_or(package.as_str(), |(name, _)| name).to_owned();
        all.push((name, read_list(&file).map(|text| lines(&text)).unwrap_or_default()));
    }
    all
}

/// All packages (with their architecture, if named) and their lists.
fn dpkg_lists(lists: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(lists).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "list")
            && let Some(stem) = path.file_stem().and_then(|stem| stem.to_str())
        {
            found.push((stem.to_owned(), path.clone()));
        }
    }
    found.sort();
    found
}

fn rpm_all(text: &[u8]) -> Vec<(String, Vec<PathBuf>)> {
    let mut all: Vec<(String, Vec<PathBuf>)> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let Some(tab) = line.iter().position(|byte| *byte == b'\t') else { continue };
        let (name, path) = line.split_at(tab);
        let name = String::from_utf8_lossy(name).into_owned();
        let path = PathBuf::from(OsString::from_vec(path.get(1..).unwrap_or_default().to_vec()));
        match all.last_mut() {
            Some((last, paths)) if *last == name => paths.push(path),
            _ => all.push((name, vec![path])),
        }
    }
    all
}

fn lines(text: &[u8]) -> Vec<PathBuf> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"/") && *line != b"/.");
    lines.map(|line| PathBuf::from(std::ffi::OsStr::from_bytes(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only regular files are read as lists: a FIFO would never end, a link may lead out of the tree.
    #[test]
    fn only_regular_lists_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("good.list"), "/bin/good\n").unwrap();
        std::os::unix::fs::symlink(path("good.list"), path("link.list")).unwrap();
        let made = Command::new("mkfifo").arg(path("fifo.list")).status().unwrap();
        assert!(made.success());
        let all = dpkg_all(dir.path());
        let files: Vec<_> = all.iter().map(|(name, files)| (name.as_str(), files.len())).collect();
        assert_eq!(files, [("fifo", 0), ("good", 1), ("link", 0)]);
    }

    /// Check that RPM's lines are grouped by package, and that invalid lines are skipped.
    #[test]
    fn rpm_lines_are_put_together() {
        let all = rpm_all(b"glibc\t/usr/lib64/libc.so.6\nglibc\t/usr/lib64/libm.so.6\nodd\nbash\t/usr/bin/bash\n");
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].0, "glibc");
        assert_eq!(all[0].1.len(), 2);
        assert_eq!(all[1], ("bash".to_owned(), vec![PathBuf::from("/usr/bin/bash")]));
    }

    /// Check that the root entry and everything but absolute paths is left out of a list.
    #[test]
    fn lists_hold_absolute_paths() {
        assert_eq!(
            lines(b"/.\n/usr\n/usr/bin/x y\n\nrelative\n"),
            [PathBuf::from("/usr"), PathBuf::from("/usr/bin/x y")]
        );
    }
}
