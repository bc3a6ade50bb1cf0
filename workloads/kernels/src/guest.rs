//! The content of the guest's memory file system.

use crate::kernels::{Arch, Expects, Kernel};
use crate::run::run;
use crate::steps::steps;
use anyhow::{Context as _, ensure};
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{ElfFile, ProgramHeader as _};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use walkdir::WalkDir;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/guest");

/// Fills the directory `root` and packs it into a file.
pub(crate) fn build(kernel: &Kernel, fpprof: &Path, busybox: &Path, root: &Path, packed: &Path) -> anyhow::Result<()> {
    for folder in ["bin", "dev", "out", "proc", "steps", "sys", "tmp"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let guest = Path::new(SOURCES);
    let tool = |name: &str| Command::new(kernel.arch.tool_prefix().to_owned() + name);
    fs::copy(guest.join("init"), root.join("init"))?;
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
    fs::copy(busybox, root.join("bin/busybox")).with_context(|| format!("copying {}", busybox.display()))?;
    for program in ["known", "bpf_objects"] {
        let mut compile = tool("gcc");
        compile.args(["-O2", "-fno-omit-frame-pointer", "-fno-ipa-icf", "-DWITH_LEAF_FRAME", "-static", "-pthread"]);
        compile.args(kernel.arch.compiler_options());
        compile.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(root.join("bin").join(program));
        run(compile.arg(guest.join(program).with_extension("c")))?;
    }
    if kernel.expects == Expects::SignedAddresses {
        let signed = guest.join("../../../tests/aarch64/signed");
        fs::copy(&signed, root.join("bin/signed")).with_context(|| format!("copying {}", signed.display()))?;
    }
    run(tool("strip").arg("-o").arg(root.join("bin/fpprof")).arg(fpprof))?;
    add_libraries(fpprof, kernel.arch, root)?;
    let mut order = String::new();
    for step in steps(kernel.expects) {
        fs::write(root.join("steps").join(step.name), format!("{}\n", step.script))?;
        order = order + step.name + "\n";
    }
    fs::write(root.join("steps/order"), order)?;
    pack(root, packed)
}

/// Copies the shared libraries of a program, and their dependencies, to where its interpreter looks for them.
fn add_libraries(program: &Path, arch: Arch, root: &Path) -> anyhow::Result<()> {
    let mut files = vec![program.to_owned()];
    while let Some(file) = files.pop() {
        let data = fs::read(&file)?;
        let elf = ElfFile::<FileHeader64<object::Endianness>>::parse(&*data)
            .with_context(|| format!("reading {}", file.display()))?;
        let endian = elf.endian();
        for segment in elf.elf_program_headers() {
            if let Some(interpreter) = segment.interpreter(endian, &*data)? {
                let interpreter = str::from_utf8(interpreter)?.trim_start_matches('/');
                let name = Path::new(interpreter).file_name().context("an interpreter without a name")?;
                copy_library(&library(arch, Path::new(name))?, &root.join(interpreter))?;
            }
        }
        let table = elf.elf_dynamic_table()?;
        for needed in table.iter().filter(|entry| entry.tag == DT_NEEDED) {
            let name = str::from_utf8(table.string(needed)?)?;
            let source = library(arch, Path::new(name))?;
            if copy_library(&source, &root.join("lib").join(name))? {
                files.push(source);
            }
        }
    }
    Ok(())
}

fn library(arch: Arch, name: &Path) -> anyhow::Result<PathBuf> {
    let mut places = arch.library_folders().iter().map(|folder| Path::new(folder).join(name));
    let found = places.find(|place| place.exists());
    found.with_context(|| format!("fpprof needs {} for {}: not found", name.display(), arch.debian()))
}

/// Copies a library unless it exists; returns whether it was copied.
fn copy_library(source: &Path, target: &Path) -> anyhow::Result<bool> {
    if target.exists() {
        return Ok(false);
    }
    fs::create_dir_all(target.parent().context("a path with a folder")?)?;
    fs::copy(source, target).with_context(|| format!("copying {}", source.display()))?;
    Ok(true)
}

fn pack(root: &Path, packed: &Path) -> anyhow::Result<()> {
    let mut names = String::new();
    for entry in WalkDir::new(root).min_depth(1) {
        let entry = entry?;
        names = names + entry.path().strip_prefix(root)?.to_str().context("a name that is text")? + "\n";
    }
    let mut cpio = Command::new("cpio");
    cpio.args(["--quiet", "-o", "-H", "newc", "-R", "0:0"]).current_dir(root);
    let mut cpio = cpio.stdin(Stdio::piped()).stdout(File::create(packed)?).spawn().context("starting cpio")?;
    cpio.stdin.take().context("cpio's input")?.write_all(names.as_bytes())?;
    let status = cpio.wait()?;
    ensure!(status.success(), "cpio failed, {status}");
    Ok(())
}
