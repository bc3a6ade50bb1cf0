//! What a program is built from.

use crate::Chain;

/// A program whose stacks are known.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Names it, and the directory it is built in.
    pub name: &'static str,
    /// The construct it is about, in one line.
    pub about: &'static str,
    /// What to build, in this order. The last part is the program.
    pub parts: &'static [Part],
    /// The compilers the chains hold for; the first is the one [`crate::build`] takes.
    pub compilers: &'static [Compiler],
    /// The arguments behind the seconds.
    pub arguments: &'static [&'static str],
    /// Bytes of stack that must be copied for the `dwarf` outcomes to hold, and no more than twice as many.
    pub chunk_bytes: u32,
    /// All chains that matter.
    pub chains: &'static [Chain],
    /// Functions of the program that are never on the stack while it runs, though a wrong look-up may say so.
    pub never: &'static [&'static str],
    /// The program changes its own files: build it anew for each run.
    pub is_single_use: bool,
    /// Call frame information and the copied bytes hold every frame of its chains: nothing excuses a stack that is not
    /// exact.
    pub is_described: bool,
}

/// One file of a program.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The file's name.
    pub output: &'static str,
    /// Sources in the folder `programs`.
    pub sources: &'static [&'static str],
    /// Flags for the compiler, which runs in the directory of the outputs.
    pub flags: &'static [&'static str],
    /// Whether `strip` removes the symbols.
    pub is_stripped: bool,
}

/// A compiler for C, and for C++ where a source ends in `.cpp`; or for Rust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compiler {
    /// `gcc`, `g++`.
    Gcc,
    /// `clang`, `clang++`.
    Clang,
    /// `musl-gcc`: gcc with the C library musl.
    MuslGcc,
    /// `rustc`, for sources in Rust.
    Rustc,
}

impl Compiler {
    /// The name used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gcc => "gcc",
            Self::Clang => "clang",
            Self::MuslGcc => "musl-gcc",
            Self::Rustc => "rustc",
        }
    }

    /// The command for sources in C or in C++; `None` where there is none.
    #[must_use]
    pub const fn command(self, is_cpp: bool) -> Option<&'static str> {
        Some(match (self, is_cpp) {
            (Self::Gcc, false) => "gcc",
            (Self::Gcc, true) => "g++",
            (Self::Clang, false) => "clang",
            (Self::Clang, true) => "clang++",
            (Self::MuslGcc, false) => "musl-gcc",
            (Self::MuslGcc, true) => return None,
            (Self::Rustc, _) => "rustc",
        })
    }
}
