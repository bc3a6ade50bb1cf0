//! Builds programs: objects once per flag set, then one link per layout, then copies.

use super::identity::{Files, fnv};
use super::manifest::{Flags, Manifest, PREPARED, Program};
use super::shell::{quoted, shell};
use super::sources::prepared;
use super::store::Store;
use crate::output::private_directory;
use anyhow::Context as _;
use fpprof_analysis::flags::Arm;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The method of varying layouts, in words.
pub(super) const LLD: &str = "functions and object files shuffled by lld";
/// The method without lld.
pub(super) const OBJECTS: &str = "object files shuffled (lld is not installed, functions stay in their order)";

/// The file that records a finished build's inputs, next to its binaries.
pub(super) const MADE: &str = "made.json";

/// The inputs of a finished build. A build whose inputs differ is made again.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Made {
    compile: String,
    link: String,
    /// The flag set's `prepare` commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prepare: Option<String>,
    compiler: String,
    seed: u64,
    layouts: u32,
    copies: u32,
    layout: String,
}

impl Made {
    /// Whether two builds have the same objects.
    fn compiles_as(&self, other: &Self) -> bool {
        self.compile == other.compile && self.compiler == other.compiler
    }
}

/// Whether the objects of these files are complete and current, so that only linking remains.
fn has_objects(dir: &Path, made: &Made, digest: &str) -> bool {
    let is_of_now = |files: Files| files.digest == digest;
    Store::read::<Made>(&dir.join(MADE)).is_some_and(|before| before.compiles_as(made))
        && Store::read::<Files>(&dir.join(Files::FILE)).is_none_or(is_of_now)
}

/// Identifies the first binary of a build as text: that of the first layout, however many there are.
pub(super) fn first_binary(dir: &Path) -> Option<String> {
    let made = Store::read::<Made>(&dir.join(MADE))?;
    serde_json::to_string(&Made { layouts: 1, copies: 1, ..made }).ok()
}

/// Removes a finished build's binaries but keeps its objects: the build no longer counts as finished.
fn clear_binaries(dir: &Path) -> anyhow::Result<()> {
    fs::remove_file(dir.join(MADE)).with_context(|| format!("clearing {}", dir.display()))?;
    for entry in fs::read_dir(dir).with_context(|| format!("clearing {}", dir.display()))?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"bin-") {
            fs::remove_file(entry.path()).with_context(|| format!("clearing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// State shared by all builds of an evaluation.
#[derive(Debug)]
pub(super) struct Builder<'a> {
    pub(super) store: &'a Store,
    pub(super) manifest: &'a Manifest,
    /// [`LLD`] or [`OBJECTS`].
    pub(super) layout: &'static str,
}

/// The sources of a program.
#[derive(Debug)]
pub(super) struct Sources {
    /// `{src}`, `{src2}`, …
    pub(super) dirs: Vec<PathBuf>,
    /// Digest of the manifest's own files ([`super::identity::files`]).
    pub(super) digest: String,
}

impl Builder<'_> {
    /// Builds the binaries of an arm, unless they are already there. Returns `true` if they are, but had not recorded
    /// the digest of their files; the current digest is recorded then.
    pub(super) fn arm(
        &self,
        program: &Program,
        sources: &Sources,
        flags: &Flags,
        version: &str,
        arm: &Arm,
    ) -> anyhow::Result<bool> {
        let dir = self.store.arm_dir(&program.name, &arm.flags, arm.again);
        let common = |template: &str| self.fill(template, &sources.dirs, flags);
        let made = Made {
            compile: common(&program.compile),
            link: common(&self.with_ldflags(&program.link, flags)),
            prepare: flags.prepare.as_ref().map(|commands| flags.fill(commands, &self.manifest.here)),
            compiler: version.to_owned(),
            seed: self.manifest.seed,
            layouts: self.manifest.layouts,
            copies: self.manifest.copies,
            layout: self.layout.to_owned(),
        };
        let finished = dir.join(MADE);
        let (noted, digest) = (dir.join(Files::FILE), sources.digest.clone());
        // Builds by versions that recorded no files are kept; their digest is recorded from now on.
        if Store::read::<Made>(&finished).is_some_and(|before| before == made) {
            match Store::read::<Files>(&noted) {
                Some(files) if files.digest == digest => return Ok(false),
                Some(_) => {}
                None => {
                    Store::write(&noted, &Files { digest, since_build: false })?;
                    return Ok(true);
                }
            }
        }
        let objects_dir = dir.join("objects");
        let mut since_build = true;
        if has_objects(&dir, &made, &digest) {
            since_build = Store::read::<Files>(&noted).is_some_and(|files| files.since_build);
            clear_binaries(&dir)?;
        } else {
            if dir.exists() {
                fs::remove_dir_all(&dir).with_context(|| format!("clearing {}", dir.display()))?;
            }
            private_directory(&objects_dir, true).with_context(|| format!("making {}", objects_dir.display()))?;
            shell(&made.compile, &objects_dir, &dir.join("build.log"))?;
        }
        let objects = objects(&objects_dir)?;
        for layout in 0..self.manifest.layouts {
            let seed = self.seed(&program.name, arm, layout);
            self.link(&made.link, &dir, &objects, layout, seed)?;
        }
        Store::write(&noted, &Files { digest, since_build })?;
        // Written last, since it marks the build as finished.
        Store::write(&finished, &made)?;
        Ok(false)
    }

    /// Links one layout and copies it.
    fn link(&self, link: &str, dir: &Path, objects: &[PathBuf], layout: u32, seed: u64) -> anyhow::Result<()> {
        let mut objects = objects.to_vec();
        fastrand::Rng::with_seed(seed).shuffle(&mut objects);
        let objects: Vec<_> = objects.iter().map(|path| quoted(path.as_os_str())).collect();
        // lld needs a positive 32-bit seed.
        let lld = format!("-fuse-ld=lld '-Wl,--shuffle-sections=.text*={}'", (seed & 0x7fff_fffe) + 1);
        let first = dir.join(binary_name(layout.saturating_mul(self.manifest.copies)));
        let command = link
            .replace("{objects}", &objects.join(" "))
            .replace("{layout}", if self.layout == LLD { &lld } else { "" })
            .replace("{exe}", &quoted(first.as_os_str()));
        shell(&command, dir, &dir.join("build.log"))?;
        anyhow::ensure!(first.exists(), "`link` did not create {}", first.display());
        for copy in 1..self.manifest.copies {
            let name = binary_name(layout.saturating_mul(self.manifest.copies).saturating_add(copy));
            fs::copy(&first, dir.join(name)).context("copying a binary")?;
        }
        Ok(())
    }

    /// The layout of each binary of an arm. Layouts that are the same bytes have the same number: that of the first.
    pub(super) fn layouts(&self, program: &str, arm: &Arm) -> anyhow::Result<Vec<u32>> {
        let dir = self.store.arm_dir(program, &arm.flags, arm.again);
        let (mut first_with, mut numbers) = (HashMap::new(), Vec::new());
        for layout in 0..self.manifest.layouts {
            let path = dir.join(binary_name(layout.saturating_mul(self.manifest.copies)));
            let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            let number = *first_with.entry((bytes.len(), fnv(&bytes))).or_insert(layout);
            numbers.extend(std::iter::repeat_n(number, self.manifest.copies as usize));
        }
        Ok(numbers)
    }

    /// The link command with a flag set's linker flags inserted after `{layout}`.
    fn with_ldflags(&self, link: &str, flags: &Flags) -> String {
        let Some(ldflags) = &flags.ldflags else { return link.to_owned() };
        let prepared = quoted(prepared(self.store, flags).as_os_str());
        link.replace("{layout}", &format!("{{layout}} {}", ldflags.replace(PREPARED, &prepared)))
    }

    fn fill(&self, template: &str, sources: &[PathBuf], flags: &Flags) -> String {
        let mut text = flags.fill(template, &self.manifest.here);
        for (index, source) in sources.iter().enumerate() {
            let name = if index == 0 { "{src}".to_owned() } else { format!("{{src{}}}", index + 1) };
            text = text.replace(&name, &quoted(source.as_os_str()));
        }
        text
    }

    /// The seed of a layout: different for every arm, the same in every run.
    fn seed(&self, program: &str, arm: &Arm, layout: u32) -> u64 {
        let text = format!("{} {program} {} {} {layout}", self.manifest.seed, arm.flags, arm.again);
        fnv(text.as_bytes())
    }
}

/// The file name of a binary. All have the same length, since a longer name would move the stack.
pub(super) fn binary_name(index: u32) -> String {
    format!("bin-{index:02}")
}

/// Object files, sorted by name.
fn objects(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let mut objects: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "o" || extension == "a"))
        .collect();
    objects.sort();
    anyhow::ensure!(!objects.is_empty(), "`compile` created no object files");
    Ok(objects)
}
