//! Builds programs.

use crate::{Compiler, Part, Program};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The reason why a program could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory could not be created.
    #[error("cannot make the directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The manifest does not support this compiler for this program.
    #[error("{program} says nothing about {compiler:?}")]
    Compiler {
        /// The program's name.
        program: &'static str,
        /// The compiler.
        compiler: Compiler,
    },
    /// A tool is not installed, or could not be started.
    #[error("cannot start {command}")]
    Start {
        /// The tool.
        command: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A tool failed.
    #[error("{command} cannot make {output} of {program}:\n{message}")]
    Failed {
        /// The tool.
        command: &'static str,
        /// The program's name.
        program: &'static str,
        /// The part's file.
        output: &'static str,
        /// Standard error of the tool.
        message: Box<str>,
    },
}

/// Builds a program in a folder of its name in `directory`, with its first compiler; returns its path.
///
/// # Errors
///
/// If a tool is missing or fails, or the folder cannot be created.
pub fn build(program: &Program, directory: &Path) -> Result<PathBuf, Error> {
    let compiler = program.compilers.first().copied().unwrap_or(Compiler::Gcc);
    build_with(program, compiler, directory)
}

/// Builds a program with one of its compilers.
///
/// # Errors
///
/// As [`build`], and if the compiler is not one of the program's.
pub fn build_with(program: &Program, compiler: Compiler, directory: &Path) -> Result<PathBuf, Error> {
    if !program.compilers.contains(&compiler) {
        return Err(Error::Compiler { program: program.name, compiler });
    }
    let folder = directory.join(program.name);
    fs::create_dir_all(&folder).map_err(|source| Error::Directory { path: folder.clone(), source })?;
    let mut built = folder.clone();
    for part in program.parts {
        build_part(program, part, compiler, &folder)?;
        built = folder.join(part.output);
    }
    Ok(built)
}

fn build_part(program: &Program, part: &Part, compiler: Compiler, folder: &Path) -> Result<(), Error> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let is_cpp = part.sources.iter().any(|source| source.ends_with(".cpp"));
    let command = compiler.command(is_cpp).ok_or(Error::Compiler { program: program.name, compiler })?;
    let mut compile = Command::new(command);
    match compiler {
        Compiler::Rustc => {
            compile.args(["--edition", "2021", "--crate-name", "program", "-D", "warnings", "-C", "opt-level=2"]);
        }
        Compiler::Gcc | Compiler::Clang | Compiler::MuslGcc => {
            compile.args(["-O2", "-Wall", "-Wextra", "-Werror"]);
        }
    }
    if compiler == Compiler::Gcc {
        // For the strategy `sframe`; nothing else reads these sections. Needs binutils 2.40 or later.
        compile.arg("-Wa,--gsframe");
    }
    compile.args(["-o", part.output]);
    compile.args(part.sources.iter().map(|source| sources.join(source))).args(part.flags);
    run(compile, command, program, part, folder)?;
    if part.is_stripped {
        let mut strip = Command::new("strip");
        strip.arg(part.output);
        run(strip, "strip", program, part, folder)?;
    }
    Ok(())
}

fn run(mut tool: Command, command: &'static str, program: &Program, part: &Part, folder: &Path) -> Result<(), Error> {
    let output = tool.current_dir(folder).output().map_err(|source| Error::Start { command, source })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).into();
    Err(Error::Failed { command, program: program.name, output: part.output, message })
}
