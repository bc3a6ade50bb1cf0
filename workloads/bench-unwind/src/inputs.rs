//! Recordings of real programs, made on first use.

use crate::generate;
use crate::progress::print_progress;
use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Functions of the C file and types of the Rust file: some seconds of compiling.
const C_FUNCTIONS: usize = 800;
const RUST_TYPES: usize = 100;

/// A program to record.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) name: String,
    /// Bytes of stack to copy: as many as the program's stacks need.
    pub(crate) stack_bytes: u32,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    NbdkitFio,
    Cc1,
    Rustc,
    Python,
}

/// Every input.
pub(crate) fn all() -> Vec<Input> {
    let input = |name: &str, stack_bytes, kind| Input { name: name.to_owned(), stack_bytes, kind };
    vec![
        input("nbdkit-fio", 8192, Kind::NbdkitFio),
        input("cc1", 32_768, Kind::Cc1),
        input("rustc", 32_768, Kind::Rustc),
        input("python", 32_768, Kind::Python),
    ]
}

/// The path of an input's recording, which is made if it does not exist.
pub(crate) fn recorded(input: &Input, dir: &Path, fpprof: &Path, seconds: u64) -> anyhow::Result<PathBuf> {
    let file = dir.join(format!("{}.fpprof", input.name));
    if file.exists() {
        return Ok(file);
    }
    print_progress(&format!("recording {}", input.name));
    let mut command = Command::new(fpprof);
    let mode = format!("dwarf,{}", input.stack_bytes);
    command.args(["record", "--quiet", "--call-graph", &mode, "-F", "1999", "-o"]).arg(&file).arg("--");
    command.args(arguments(input.kind, dir, seconds)?);
    let status = command.stdout(Stdio::null()).status().with_context(|| fpprof.display().to_string())?;
    ensure!(status.success() && file.exists(), "recording {} failed: {status}", input.name);
    Ok(file)
}

/// The command of an input.
pub(crate) fn command(input: &Input, dir: &Path, seconds: u64) -> anyhow::Result<Vec<String>> {
    arguments(input.kind, dir, seconds)
}

fn arguments(kind: Kind, dir: &Path, seconds: u64) -> anyhow::Result<Vec<String>> {
    let write = |name: &str, text: &str| -> anyhow::Result<String> {
        let path = dir.join(name);
        std::fs::write(&path, text)?;
        Ok(path.to_str().context("a directory named in UTF-8")?.to_owned())
    };
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    Ok(match kind {
        Kind::NbdkitFio => {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../nbdkit-fio.sh");
            words(&["sh", script, &seconds.to_string()])
        }
        Kind::Cc1 => {
            words(&["gcc", "-O2", "-c", "-o", "/dev/null", &write("big.c", &generate::c_source(C_FUNCTIONS))?])
        }
        Kind::Rustc => {
            let source = write("big.rs", &generate::rust_source(RUST_TYPES))?;
            let out = dir.to_str().context("a directory named in UTF-8")?;
            words(&["rustc", "--edition", "2024", "-O", "--crate-type", "lib", "--out-dir", out, &source])
        }
        Kind::Python => words(&["python3", &write("busy.py", generate::PYTHON)?, &seconds.to_string()]),
    })
}
