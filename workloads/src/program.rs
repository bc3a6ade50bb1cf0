//! How a program is built.

use crate::Chain;

/// A program whose stacks are known.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Name of the program, and of the directory it is built in.
    pub name: &'static str,
    /// The construct it is about, in one line.
    pub about: &'static str,
    /// The files to build, in this order. The last one is the program.
    pub parts: &'static [Part],
    /// The compilers for which the chains hold; the first is the default of [`crate::build`].
    pub compilers: &'static [Compiler],
    /// The arguments after the seconds.
    pub arguments: &'static [&'static str],
    /// Bytes of stack that must be copied for the `dwarf` outcomes to hold; at most twice the minimum.
    pub chunk_bytes: u32,
    /// All chains that matter.
    pub chains: &'static [Chain],
    /// Functions that are never on the stack while the program runs, although a wrong symbol look-up may report them.
    pub never: &'static [&'static str],
    /// Whether the program changes its own files and must be built for each run.
    pub is_single_use: bool,
    /// Whether call frame information and the copied bytes cover every frame of its chains, so that every stack must be
    /// exact.
    pub is_described: bool,
}

/// One file of a program.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The file name.
    pub output: &'static str,
    /// Sources in the folder `programs`.
    pub sources: &'static [&'static str],
    /// Flags for the compiler, which runs in the directory of the outputs.
    pub flags: &'static [&'static str],
    /// Whether to remove the symbols with `strip`.
    pub is_stripped: bool,
}

/// A compiler for C, and for C++ if a source ends in `.cpp`; or for Rust.
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

    /// The command for sources in C or in C++; `None` if there is none.
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
