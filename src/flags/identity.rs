//! Identifies the files that programs are built from, so that results of different versions are not mixed.
//!
//! Commands of a manifest name files of its directory (`{here}/drivers/rec.c`). If one changes, builds and their
//! results become stale. A build by an fpprof version that did not record its files is assumed to come from the files
//! as they are when it is first seen again.

use super::manifest::{Manifest, Program};
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// The most files read per program; a program that names more is compared by its first ones.
const MAX_FILES: usize = 20_000;

/// The digest of the files that a build was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Files {
    pub(super) digest: String,
    /// Whether the digest was recorded at build time, not later.
    pub(super) since_build: bool,
}

impl Files {
    /// The file's name, next to the binaries.
    pub(super) const FILE: &'static str = "files.json";
}

/// Identifies what rounds time: the builds and the benchmark of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) digest: String,
    /// Whether rounds without a recorded identity belong to this one.
    pub(super) has_older_rounds: bool,
}

impl Identity {
    /// Whether a round with identity `made` counts.
    pub(super) fn covers(&self, made: Option<&str>) -> bool {
        made.map_or(self.has_older_rounds, |made| made == self.digest)
    }
}

/// A digest of the files below the manifest's directory that the commands of a program and of its flag sets name, of
/// files these include by `"…"`, and of the program's `path`; without `results`, which may be there too.
pub(super) fn files(manifest: &Manifest, program: &Program, results: &Path) -> anyhow::Result<String> {
    let here = &manifest.here;
    let commands = [Some(&program.compile), Some(&program.link), Some(&program.bench), program.fetch.as_ref()];
    let commands = commands.into_iter().chain([program.short.as_ref(), program.long.as_ref()]);
    let sets = manifest.flags.iter().filter(|flags| program.is_under(&flags.name));
    let of_sets = sets.flat_map(|flags| [flags.prepare.as_ref(), Some(&flags.cflags), flags.ldflags.as_ref()]);
    let commands = commands.chain(of_sets).flatten();
    let paths = commands.flat_map(|command| named(command)).chain(program.path.as_deref());
    let files = digest(here, paths.map(|name| here.join(name)).collect(), results)?;
    // What other commands fetch has the same names as what these did.
    Ok(program.fetch.as_ref().map_or(files.clone(), |fetch| format!("{files} {:016x}", fnv(fetch.as_bytes()))))
}

/// A digest of the files that a flag set's `prepare` commands name.
pub(super) fn files_of_commands(here: &Path, commands: &str) -> anyhow::Result<String> {
    digest(here, named(commands).map(|name| here.join(name)).collect(), Path::new(""))
}

fn digest(here: &Path, mut left: Vec<PathBuf>, results: &Path) -> anyhow::Result<String> {
    let mut found = BTreeSet::new();
    while let Some(path) = left.pop().filter(|_| found.len() < MAX_FILES) {
        if path.is_dir() {
            let is_ours = |entry: &walkdir::DirEntry| entry.path() != results && entry.file_name() != ".git";
            let entries = WalkDir::new(&path).into_iter().filter_entry(is_ours).flatten();
            found.extend(entries.filter(|entry| entry.file_type().is_file()).map(walkdir::DirEntry::into_path));
        } else if path.is_file() && found.insert(path.clone()) {
            left.extend(included(&path));
        }
    }
    let mut digest = fnv(&[]);
    for path in found.iter().take(MAX_FILES) {
        let content = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.strip_prefix(here).unwrap_or(path);
        digest = fnv(format!("{digest:x} {} {:x}", name.display(), fnv(&content)).as_bytes());
    }
    Ok(format!("{digest:016x}"))
}

/// A hash that is the same in every version and on every machine; not secure against forgery.
///
/// # Sources
/// FNV-1a (Fowler, Noll and Vo), 64 bits.
pub(super) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The paths after `{here}/` in a command; for a shell pattern, its directory.
fn named(command: &str) -> impl Iterator<Item = &Path> {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | '|' | '&' | ')' | '<' | '>' | ':');
    command.split("{here}/").skip(1).map(move |rest| {
        let name = rest.split(is_end).next().unwrap_or_default();
        let plain = name.split(['*', '?', '[', '$', '{']).next().unwrap_or_default();
        if plain.len() == name.len() {
            Path::new(name)
        } else {
            Path::new(plain.rsplit_once('/').map_or("", |(dir, _)| dir))
        }
    })
}

/// The files that a source includes from its own directory.
fn included(path: &Path) -> Vec<PathBuf> {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let names = text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
        rest.trim_start().strip_prefix('"')?.split('"').next()
    });
    let beside = path.parent().unwrap_or(Path::new(""));
    names.map(|name| beside.join(name)).filter(|path| path.is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Manifest, TEMPLATE};

    /// Check that file names are found in commands, and that a pattern gives its directory.
    #[test]
    fn named_files_are_found() {
        let names = |command| named(command).map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(names("cc -I{here}/inc -c {here}/a/b.c; sh '{here}/x.sh'"), ["inc", "a/b.c", "x.sh"]);
        assert_eq!(names("for f in {here}/a/*.c; do cc $f; done"), ["a"]);
        assert!(names("cc -c x.c").is_empty());
    }

    /// Check that the digest changes with the commands that fetch sources, and with files that flags name.
    #[test]
    fn digests_follow_fetch_and_flags() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("extra.h"), "1").unwrap();
        let mut manifest = Manifest::parse(TEMPLATE).unwrap();
        manifest.here = dir.path().to_owned();
        let digest = |manifest: &Manifest| files(manifest, &manifest.program[0], Path::new("/nowhere")).unwrap();
        manifest.flags[0].cflags = "-O2 -include {here}/extra.h".to_owned();
        let before = digest(&manifest);
        fs::write(dir.path().join("extra.h"), "2").unwrap();
        let after = digest(&manifest);
        assert_ne!(after, before);
        manifest.program[0].fetch = Some("echo 1".to_owned());
        let fetched = digest(&manifest);
        assert_ne!(fetched, after);
        manifest.program[0].fetch = Some("echo 2".to_owned());
        assert_ne!(digest(&manifest), fetched);
    }

    /// Check that the digest changes with a driver, with what it includes, and with nothing else.
    #[test]
    fn digests_follow_drivers() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        fs::create_dir(dir.path().join("drivers")).unwrap();
        write("drivers/rec.c", "#include \"text.h\"\n # include <stdio.h>\n");
        write("drivers/text.h", "#include \"text.h\"\n1");
        let mut manifest = Manifest::parse(TEMPLATE).unwrap();
        manifest.here = dir.path().to_owned();
        let digest = || files(&manifest, &manifest.program[0], Path::new("/nowhere")).unwrap();
        let before = digest();
        write("drivers/other.c", "2");
        assert_eq!(digest(), before);
        write("drivers/text.h", "#include \"text.h\"\n2");
        let after = digest();
        assert_ne!(after, before);
        write("drivers/rec.c", "");
        assert_ne!(digest(), after);
    }
}
