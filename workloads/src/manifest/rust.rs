//! Stacks of rustc's recursion, closures, generics, panics and threads.

use super::words::{COMPLETE, RUSTC, USUAL, begins, one};
use crate::Frame::{Any, Many, Named, Repeated};
use crate::{Chain, Frame, Part, Program};

const BURN: Frame = Named("program::burn");
const OUTER: Frame = Named("program::outer");
const MAIN: Frame = Named("program::main");

const DEEP: &[Frame] = &[BURN, Repeated("program::recurse", 64), OUTER, MAIN];
/// Without optimisation even a loop calls functions, hence `Many`.
const DEEP_O0: &[Frame] = &[Many, BURN, Repeated("program::recurse", 64), OUTER, MAIN];
const CLOSURE: &[Frame] = &[BURN, Named("program::outer::{{closure}}"), Named("program::call"), OUTER, MAIN];
const SMALL_AND_LARGE: &[Frame] = &[BURN, Named("program::generic"), OUTER, MAIN];
/// The functions of the standard library and of the unwinder in between differ from version to version.
const PANIC: &[Frame] = &[Many, Repeated("program::raise", 8), Many, OUTER, MAIN];
const PANIC_ANY: &[Frame] = &[Many, OUTER, MAIN];
const THREAD: &[Frame] = &[BURN, Named("program::on_thread"), Any, Many];

/// Frame pointers in the program itself; the standard library has none.
const WITH_FP: &[&str] = &["-C", "force-frame-pointers=yes"];
const UNOPTIMISED: &[&str] = &["-C", "opt-level=0"];

const fn parts(flags: &'static [&'static str]) -> Part {
    one(&["rust.rs"], flags)
}

const fn chain(truth: &'static [Frame], dwarf: &'static [crate::Outcome]) -> Chain {
    Chain { truth, least_percent: 90, fp: &[], dwarf }
}

const RUST: Program = Program { compilers: RUSTC, ..USUAL };

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "rust_deep",
        about: "64 frames of a recursion in Rust",
        parts: &[parts(&[])],
        arguments: &["deep"],
        chains: &[chain(DEEP, &[begins(DEEP, COMPLETE)])],
        ..RUST
    },
    Program {
        name: "rust_deep_fp",
        about: "the same with frame pointers",
        parts: &[parts(WITH_FP)],
        arguments: &["deep"],
        chains: &[chain(DEEP, &[begins(DEEP, COMPLETE)])],
        ..RUST
    },
    Program {
        name: "rust_deep_o0",
        about: "the same without optimisation",
        parts: &[parts(UNOPTIMISED)],
        arguments: &["deep"],
        chains: &[chain(DEEP_O0, &[begins(DEEP_O0, COMPLETE)])],
        ..RUST
    },
    Program {
        name: "rust_closure",
        about: "a closure behind a trait object, with frame pointers",
        parts: &[parts(WITH_FP)],
        arguments: &["closure"],
        chains: &[chain(CLOSURE, &[begins(CLOSURE, COMPLETE)])],
        ..RUST
    },
    Program {
        name: "rust_generic",
        about: "instances of a generic function with an inlined helper",
        parts: &[parts(&[])],
        arguments: &["generic"],
        chains: &[chain(SMALL_AND_LARGE, &[begins(SMALL_AND_LARGE, COMPLETE)])],
        ..RUST
    },
    Program {
        name: "rust_panic",
        about: "a panic through eight frames, caught",
        parts: &[parts(&[])],
        arguments: &["panic"],
        chains: &[chain(PANIC_ANY, &[begins(PANIC, COMPLETE), begins(PANIC_ANY, COMPLETE)])],
        ..RUST
    },
    Program {
        name: "rust_threads",
        about: "thousands of threads of a millisecond each, in Rust",
        parts: &[parts(WITH_FP)],
        arguments: &["threads"],
        chains: &[Chain { truth: THREAD, least_percent: 70, fp: &[], dwarf: &[begins(THREAD, COMPLETE)] }],
        ..RUST
    },
];
