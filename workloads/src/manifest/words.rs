//! Short forms used in the manifest.

use crate::{Chain, Compiler, Frame, Outcome, Part, Program, Stop};

pub(super) const GCC: &[Compiler] = &[Compiler::Gcc];
pub(super) const GCC_AND_CLANG: &[Compiler] = &[Compiler::Gcc, Compiler::Clang];
pub(super) const CLANG: &[Compiler] = &[Compiler::Clang];
pub(super) const RUSTC: &[Compiler] = &[Compiler::Rustc];
pub(super) const MUSL: &[Compiler] = &[Compiler::MuslGcc];

/// Frame pointers as in distributions' builds: gcc still omits them in leaf functions.
pub(super) const WITH_FP: &[&str] = &["-fno-omit-frame-pointer"];
/// Frame pointers in leaf functions too.
pub(super) const WITH_LEAF_FP: &[&str] = &["-fno-omit-frame-pointer", "-DWITH_LEAF_FRAME"];

pub(super) const COMPLETE: Option<Stop> = Some(Stop::Complete);

/// The defaults of most programs: gcc and clang, a chunk of 64 KiB, no arguments, and no excuse for a wrong stack.
pub(super) const USUAL: Program = Program {
    name: "",
    about: "",
    parts: &[],
    compilers: GCC_AND_CLANG,
    arguments: &[],
    chunk_bytes: 64 << 10,
    chains: &[],
    never: &[],
    is_single_use: false,
    is_described: true,
};

pub(super) const fn truncated(reason: &'static str) -> Option<Stop> {
    Some(Stop::Truncated(reason))
}

pub(super) const fn broken(reason: &'static str) -> Option<Stop> {
    Some(Stop::Broken(reason))
}

/// These frames, possibly followed by more.
pub(super) const fn begins(frames: &'static [Frame], stop: Option<Stop>) -> Outcome {
    Outcome { frames, is_all: false, stop, is_leaf_skip_suspect: false }
}

/// These frames and no others.
pub(super) const fn all(frames: &'static [Frame], stop: Option<Stop>) -> Outcome {
    Outcome { frames, is_all: true, stop, is_leaf_skip_suspect: false }
}

/// These frames, with the leaf's caller missing. How the chain ends depends on the C library, which is built without
/// frame pointers.
pub(super) const fn skips_caller(frames: &'static [Frame]) -> Outcome {
    Outcome { frames, is_all: false, stop: None, is_leaf_skip_suspect: true }
}

/// A chain of nearly all samples; the others are of the program's start and end.
pub(super) const fn nearly_all(truth: &'static [Frame], fp: &'static [Outcome], dwarf: &'static [Outcome]) -> Chain {
    Chain { truth, least_percent: 95, fp, dwarf }
}

/// A program built from one source.
pub(super) const fn one(source: &'static [&'static str], flags: &'static [&'static str]) -> Part {
    Part { output: "program", sources: source, flags, is_stripped: false }
}
