//! Fetches kernels from Debian's mirror with apt, using separate lists and a separate cache: nothing is installed, and
//! apt's state on this machine does not change.

use crate::kernels::Kernel;
use crate::run::{output, run};
use anyhow::{Context as _, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use walkdir::WalkDir;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The files fetched for a kernel.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) image: PathBuf,
    /// The guest's shell and tools, linked statically.
    pub(crate) busybox: PathBuf,
}

/// The kernel's files, fetched unless they exist.
pub(crate) fn fetched(kernel: &Kernel, mirror: &str, dir: &Path) -> anyhow::Result<Fetched> {
    let dir = dir.join("images").join(format!("{}-{}", kernel.suite, kernel.package));
    let fetched = Fetched { image: dir.join("vmlinuz"), busybox: dir.join("busybox") };
    if !fetched.image.exists() || !fetched.busybox.exists() {
        fetch(kernel, mirror, &dir.join("work"), &fetched).with_context(|| {
            let Kernel { package, suite, .. } = kernel;
            format!("cannot fetch the newest kernel of {package} in Debian's {suite} from {mirror}")
        })?;
    }
    Ok(fetched)
}

fn fetch(kernel: &Kernel, mirror: &str, work: &Path, fetched: &Fetched) -> anyhow::Result<()> {
    ensure!(Path::new(KEYRING).exists(), "{KEYRING} is missing: install debian-archive-keyring");
    if work.exists() {
        fs::remove_dir_all(work)?;
    }
    for folder in ["state/lists/partial", "cache/archives/partial", "packages", "tree"] {
        fs::create_dir_all(work.join(folder))?;
    }
    let work = work.canonicalize()?;
    let config = write_config(kernel, mirror, &work)?;
    run(apt("apt-get", &config).args(["-qq", "update"]))?;
    let mut names = packages(kernel, &config)?;
    names.push("busybox-static".to_owned());
    run(apt("apt-get", &config).args(["-qq", "download"]).args(&names).current_dir(work.join("packages")))?;
    for package in fs::read_dir(work.join("packages"))? {
        run(Command::new("dpkg-deb").arg("-x").arg(package?.path()).arg(work.join("tree")))?;
    }
    let find = |place: &str| {
        let mut files = WalkDir::new(work.join("tree")).into_iter().filter_map(Result::ok);
        let is_wanted = |path: &Path| path.to_str().is_some_and(|path| path.contains(place));
        let found = files.find(|file| file.file_type().is_file() && is_wanted(file.path()));
        found.with_context(|| format!("neither a kernel nor a busybox is in {}", names.join(", ")))
    };
    fs::rename(find("/bin/busybox")?.path(), &fetched.busybox)?;
    fs::rename(find("/vmlinuz")?.path(), &fetched.image)?;
    Ok(fs::remove_dir_all(&work)?)
}

/// The packages of the newest kernel of this kind. Since 7.x an image's package is empty and depends on the real one.
fn packages(kernel: &Kernel, config: &Path) -> anyhow::Result<Vec<String>> {
    let only_needed = ["recommends", "suggests", "conflicts", "breaks", "replaces", "enhances"];
    let mut command = apt("apt-cache", config);
    command.args(["depends", "--recurse"]).args(only_needed.map(|kind| format!("--no-{kind}"))).arg(kernel.package);
    let listed = output(&mut command)?;
    let is_kernel = |name: &str| {
        let version = name.strip_prefix("linux-image-").or_else(|| name.strip_prefix("linux-binary-"));
        version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
    };
    let names: Vec<String> = listed.lines().filter(|line| is_kernel(line)).map(str::to_owned).collect();
    if names.is_empty() {
        bail!("{} depends on no kernel: {listed}", kernel.package);
    }
    Ok(names)
}

/// These settings come after this machine's own configuration: its proxies apply, its hooks do not.
fn write_config(kernel: &Kernel, mirror: &str, work: &Path) -> anyhow::Result<PathBuf> {
    let arch = kernel.arch.debian();
    let sources = work.join("sources.list");
    let line = |suite: &str| format!("deb [arch={arch} signed-by={KEYRING}] {mirror} {suite} main\n");
    let suite = kernel.suite;
    // Backports have kernels, but no busybox.
    let base = suite.strip_suffix("-backports").map(line).unwrap_or_default();
    fs::write(&sources, line(suite) + &base)?;
    let config = work.join("apt.conf");
    let work = work.display();
    let text = format!(
        "#clear APT::Update;\n#clear DPkg;\n#clear APT::Architectures;\nAPT::Update::Error-Mode \"any\";\n\
         Dir::Etc::sourcelist \"{}\";\nDir::Etc::sourceparts \"/dev/null\";\nDir::Etc::preferences \"/dev/null\";\n\
         Dir::Etc::preferencesparts \"/dev/null\";\nDir::State \"{work}/state\";\nDir::State::status \"/dev/null\";\n\
         Dir::Cache \"{work}/cache\";\nAPT::Architecture \"{arch}\";\nAPT::Architectures {{ \"{arch}\"; }};\n\
         APT::Default-Release \"{suite}\";\nAPT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\nAcquire::Retries \"3\";\n\
         Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n",
        sources.display()
    );
    fs::write(&config, text)?;
    Ok(config)
}

fn apt(tool: &str, config: &Path) -> Command {
    let mut command = Command::new(tool);
    command.arg("-c").arg(config).env("LC_ALL", "C");
    command
}
