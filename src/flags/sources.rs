//! Fetches the sources of programs, from crates through cargo and its configured registry, and runs what flag sets
//! prepare.

use super::identity::files_of_commands;
use super::manifest::{Flags, Program};
use super::shell::{quoted, shell};
use super::store::Store;
use crate::output::{print_message, private_directory};
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The source directories `{src}`, `{src2}`, …
pub(super) fn sources(store: &Store, here: &Path, program: &Program) -> anyhow::Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    if let Some(path) = &program.path {
        let path = here.join(path);
        sources.push(path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?);
    }
    if !program.crates.is_empty() {
        sources.extend(crates(store, program)?);
    }
    if let Some(commands) = &program.fetch {
        sources.push(fetched(store, here, program, commands)?);
    }
    Ok(sources)
}

/// Fetches the sources with the manifest's own commands.
fn fetched(store: &Store, here: &Path, program: &Program, commands: &str) -> anyhow::Result<PathBuf> {
    // If a file that the commands use was edited, they run again.
    let digest = files_of_commands(here, commands)?;
    let commands = format!("{}\n# of files {digest}", commands.replace("{here}", &quoted(here.as_os_str())));
    run_once(&store.path("sources").join(&program.name), "fetch", &commands).context("fetching the sources")
}

/// The directory of what a flag set prepares.
pub(super) fn prepared(store: &Store, flags: &Flags) -> PathBuf {
    store.path("prepared").join(&flags.name).join(RESULT)
}

/// Runs a flag set's `prepare` commands, once for each version of its compiler.
pub(super) fn prepare(store: &Store, here: &Path, flags: &Flags, version: &str) -> anyhow::Result<()> {
    let Some(commands) = &flags.prepare else { return Ok(()) };
    // If a file that the commands use was edited, they run again.
    let digest = files_of_commands(here, commands)?;
    let of_any = format!("{}\n# of files {digest}", flags.fill(commands, here));
    let commands = format!("{of_any}, by {version}");
    let dir = store.path("prepared").join(&flags.name);
    // Earlier versions of fpprof did not record the compiler.
    if is_done(&dir, &of_any) {
        return Ok(());
    }
    if !is_done(&dir, &commands) {
        print_message(&format!(
            "flags: preparing {}; what is printed goes to {}",
            flags.name,
            dir.join("prepare.log").display()
        ));
    }
    run_once(&dir, "prepare", &commands).context("preparing").map(drop)
}

/// The directory in which the manifest's commands leave their results.
const RESULT: &str = "src";

/// The file that records which commands have succeeded.
const DONE: &str = "done.json";

fn is_done(dir: &Path, commands: &str) -> bool {
    Store::read::<String>(&dir.join(DONE)).as_deref() == Some(commands)
}

/// Runs commands in a subdirectory of `dir`, which is returned; does nothing if they already succeeded.
fn run_once(dir: &Path, what: &str, commands: &str) -> anyhow::Result<PathBuf> {
    let result = dir.join(RESULT);
    if is_done(dir, commands) {
        return Ok(result);
    }
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("clearing {}", dir.display()))?;
    }
    private_directory(&result, true).with_context(|| format!("cannot create {}", result.display()))?;
    shell(commands, &result, &dir.join(format!("{what}.log")))?;
    Store::write(&dir.join(DONE), &commands)?;
    Ok(result)
}

/// The directories of a program's crates.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    crates: Vec<String>,
    paths: Vec<PathBuf>,
}

/// Has cargo fetch the crates as dependencies of an empty package, and reads their directories from its metadata; does
/// nothing if they are still there.
fn crates(store: &Store, program: &Program) -> anyhow::Result<Vec<PathBuf>> {
    let dir = store.path("sources").join(&program.name);
    let kept = dir.join("found.json");
    let known = Store::read::<Found>(&kept).filter(|found| found.crates == program.crates);
    if let Some(found) = known.filter(|found| found.paths.iter().all(|path| path.exists())) {
        return Ok(found.paths);
    }
    private_directory(&dir.join("src"), true).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut wanted = Vec::new();
    let mut manifest =
        "[package]\nname = \"sources\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[workspace]\n".to_owned();
    manifest.push_str("[dependencies]\n");
    for spec in &program.crates {
        let (name, version) = spec.split_once('@').with_context(|| format!("crate `{spec}`: expected NAME@VERSION"))?;
        manifest.push_str(&format!("{name} = {{ version = \"={version}\", default-features = false }}\n"));
        wanted.push(name);
    }
    fs::write(dir.join("Cargo.toml"), manifest)
        .and_then(|()| fs::write(dir.join("src/lib.rs"), ""))
        .context("writing")?;
    // `cargo metadata` downloads the crates without building them.
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--quiet"])
        .current_dir(&dir)
        .output()
        .context("cannot start cargo, which fetches the sources of crates")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "cargo metadata: {}", stderr.trim());
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("parsing the output of cargo metadata")?;
    let packages = metadata
        .get("packages")
        .and_then(|packages| packages.as_array())
        .context("cargo metadata named no packages")?;
    let path_of = |name: &&str| {
        let package = packages.iter().find(|package| package.get("name").is_some_and(|of| of == *name))?;
        Some(Path::new(package.get("manifest_path")?.as_str()?).parent()?.to_owned())
    };
    let found = wanted.iter().map(|name| path_of(name).with_context(|| format!("cargo did not fetch {name}")));
    let paths = found.collect::<anyhow::Result<Vec<_>>>()?;
    Store::write(&kept, &Found { crates: program.crates.clone(), paths: paths.clone() })?;
    Ok(paths)
}
