//! Builds: objects once for each flag set, then one link for each layout, then copies.

use super::identity::{Files, fnv};
use super::manifest::{Flags, Manifest, PREPARED, Program};
use super::shell::{quoted, shell};
use super::sources::prepared;
use super::store::Store;
use crate::output::private_directory;
use anyhow::Context as _;
use fpprof_analysis::flags::Arm;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// How layouts are made, in words.
pub(super) const LLD: &str = "functions and object files shuffled by lld";
/// Likewise without lld.
pub(super) const OBJECTS: &str = "object files shuffled (lld is not installed, functions stay in their order)";

/// The file that says what a build was made of, beside its binaries, once it is finished.
pub(super) const MADE: &str = "made.json";

/// What a finished build was made of. A build whose own differs is made again.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Made {
    compile: String,
    link: String,
    /// What its flag set prepared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prepare: Option<String>,
    compiler: String,
    seed: u64,
    layouts: u32,
    copies: u32,
    layout: String,
}

impl Made {
    /// Whether both have the same objects.
    fn compiles_as(&self, other: &Self) -> bool {
        self.compile == other.compile && self.compiler == other.compiler
    }
}

/// Whether what was compiled of these files is there and finished, so that linking is all that is left to do.
fn has_objects(dir: &Path, made: &Made, digest: &str) -> bool {
    let is_of_now = |files: Files| files.digest == digest;
    Store::read::<Made>(&dir.join(MADE)).is_some_and(|before| before.compiles_as(made))
        && Store::read::<Files>(&dir.join(Files::FILE)).is_none_or(is_of_now)
}

/// What the first binary of a build is, as text: that of the first layout, however many there are.
pub(super) fn first_binary(dir: &Path) -> Option<String> {
    let made = Store::read::<Made>(&dir.join(MADE))?;
    serde_json::to_string(&Made { layouts: 1, copies: 1, ..made }).ok()
}

/// Takes a finished build's binaries away, its objects left: it is finished no more.
fn clear_binaries(dir: &Path) -> anyhow::Result<()> {
    fs::remove_file(dir.join(MADE)).with_context(|| format!("clearing {}", dir.display()))?;
    for entry in fs::read_dir(dir).with_context(|| format!("clearing {}", dir.display()))?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"bin-") {
            fs::remove_file(entry.path()).with_context(|| format!("clearing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// What every build of an evaluation shares.
#[derive(Debug)]
pub(super) struct Builder<'a> {
    pub(super) store: &'a Store,
    pub(super) manifest: &'a Manifest,
    /// [`LLD`] or [`OBJECTS`].
    pub(super) layout: &'static str,
}

/// Where a program's code comes from.
#[derive(Debug)]
pub(super) struct Sources {
    /// `{src}`, `{src2}`, …
    pub(super) dirs: Vec<PathBuf>,
    /// Digest of the manifest's own files ([`super::identity::files`]).
    pub(super) digest: String,
}

impl Builder<'_> {
    /// Builds the binaries of an arm, unless they are there already. Gives `true` if they are and did not say of which
    /// files: those of now are noted.
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
        Store::write(&finished, &made)?;
        Ok(false)
    }

    /// Links one layout and copies it.
    fn link(&self, link: &str, dir: &Path, objects: &[PathBuf], layout: u32, seed: u64) -> anyhow::Result<()> {
        let mut objects = objects.to_vec();
        fastrand::Rng::with_seed(seed).shuffle(&mut objects);
        let objects: Vec<_> = objects.iter().map(|path| quoted(path.as_os_str())).collect();
        // lld takes a positive 32-bit seed.
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

    /// A link command with the linker flags of a flag set behind `{layout}`.
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

    /// A seed for one layout: different for every arm, the same in every run.
    fn seed(&self, program: &str, arm: &Arm, layout: u32) -> u64 {
        let text = format!("{} {program} {} {} {layout}", self.manifest.seed, arm.flags, arm.again);
        fnv(text.as_bytes())
    }
}

/// Names of binaries are of one length: a longer name moves the stack.
pub(super) fn binary_name(index: u32) -> String {
    format!("bin-{index:02}")
}

/// Object files, in the order of their names.
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
