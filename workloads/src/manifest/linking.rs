//! The same chain in files of different layout.

use super::words::{COMPLETE, GCC, MUSL, USUAL, WITH_FP, all, begins, nearly_all, one, truncated};
use crate::Frame::{Any, Many, Named};
use crate::{Chain, Frame, Part, Program};

const CHAIN: &[Frame] = &[Named("burn"), Named("mid"), Named("outer"), Named("main")];
const COMPLETE_CHAIN: &[Chain] = &[nearly_all(CHAIN, &[], &[begins(CHAIN, COMPLETE)])];
/// The number of frames below the C library, whose functions have names, identifies the chain.
const NAMELESS_UP_TO_LIBC: &[Frame] = &[Any, Any, Any, Any, Named("__libc_start_call_main")];
const NAMELESS: &[Frame] = &[Any, Any, Any, Any, Any];

const fn library(output: &'static str, flags: &'static [&'static str]) -> Part {
    Part { output, sources: &["library.c"], flags, is_stripped: false }
}

const IN_STUB: &[Frame] = &[Named("plt_nothing@plt"), Named("outer"), Named("main")];
/// The frames after the trampoline, which has saved the registers it will restore.
const RESOLVING: &[Frame] = &[Any, Many, Any, Named("outer_lazy"), Named("main")];
const PLT_LIBRARY: Part = library("libplt.so", &["-fPIC", "-shared", "-DNAME=plt"]);
const PLT_FLAGS: &[&str] = &["-Wl,-z,lazy", "-Wl,-rpath,$ORIGIN", "-L.", "-lplt"];

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "no_eh_frame_hdr",
        about: "call frame information without the search table",
        parts: &[one(&["chain.c"], &["-Wl,--no-eh-frame-hdr"])],
        chains: COMPLETE_CHAIN,
        ..USUAL
    },
    Program {
        name: "debug_frame",
        about: "call frame information in .debug_frame, and an .eh_frame of the start files only",
        parts: &[one(&["chain.c"], &["-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"])],
        chains: COMPLETE_CHAIN,
        ..USUAL
    },
    Program {
        name: "compressed_debug_frame",
        about: ".debug_frame compressed with zlib",
        parts: &[one(&["chain.c"], &["-g", "-gz=zlib", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"])],
        chains: COMPLETE_CHAIN,
        ..USUAL
    },
    Program {
        name: "no_pie",
        about: "a program linked at its addresses",
        parts: &[one(&["chain.c"], &["-no-pie", "-fno-pie"])],
        chains: COMPLETE_CHAIN,
        ..USUAL
    },
    Program {
        name: "static_no_pie",
        about: "a static program linked at its addresses, which gcc links without .eh_frame_hdr",
        parts: &[one(&["chain.c"], &["-static", "-fno-pie"])],
        chains: COMPLETE_CHAIN,
        ..USUAL
    },
    Program {
        name: "static_pie",
        about: "a static program that relocates itself",
        parts: &[one(&["chain.c"], &["-static-pie", "-fPIE"])],
        chains: COMPLETE_CHAIN,
        ..USUAL
    },
    Program {
        name: "lld",
        about: "segments as lld lays them out: addresses and file offsets are not congruent to those of GNU ld",
        parts: &[one(&["chain.c"], &["-fuse-ld=lld"])],
        chains: COMPLETE_CHAIN,
        ..USUAL
    },
    Program {
        name: "gold",
        about: "segments as gold lays them out",
        parts: &[one(&["chain.c"], &["-fuse-ld=gold"])],
        chains: COMPLETE_CHAIN,
        ..USUAL
    },
    Program {
        name: "far_segments",
        about: "a program linked far from zero, as prelinked ones are",
        parts: &[one(&["chain.c"], &["-no-pie", "-fno-pie", "-Wl,-Ttext-segment=0x70000000"])],
        chains: COMPLETE_CHAIN,
        ..USUAL
    },
    Program {
        name: "musl",
        about: "the C library musl, linked dynamically",
        parts: &[one(&["chain.c"], &[])],
        compilers: MUSL,
        chains: COMPLETE_CHAIN,
        ..USUAL
    },
    Program {
        name: "musl_static",
        about: "the C library musl, linked statically",
        parts: &[one(&["chain.c"], &["-static"])],
        compilers: MUSL,
        chains: COMPLETE_CHAIN,
        ..USUAL
    },
    Program {
        name: "stripped",
        about: "no symbols: the frames are there and have no names",
        parts: &[Part { is_stripped: true, ..one(&["chain.c"], &[]) }],
        chains: &[nearly_all(NAMELESS_UP_TO_LIBC, &[], &[begins(NAMELESS, COMPLETE)])],
        never: &["burn", "mid", "outer", "main"],
        ..USUAL
    },
    Program {
        name: "plt",
        about: "stubs of the procedure linkage table, which share one expression for their CFA",
        parts: &[PLT_LIBRARY, one(&["plt.c"], PLT_FLAGS)],
        compilers: GCC,
        chains: &[
            nearly_all(
                &[Many, Named("outer"), Named("main")],
                &[],
                &[begins(&[Many, Named("outer"), Named("main")], COMPLETE)],
            ),
            Chain { truth: IN_STUB, least_percent: 3, fp: &[], dwarf: &[begins(IN_STUB, COMPLETE)] },
        ],
        ..USUAL
    },
    Program {
        name: "lazy_binding",
        about: "the dynamic linker's trampoline, which saves vector registers above a realigned stack",
        parts: &[PLT_LIBRARY, one(&["plt.c"], PLT_FLAGS)],
        compilers: GCC,
        arguments: &["lazy"],
        chains: &[
            nearly_all(
                &[Any, Many, Named("outer_lazy"), Named("main")],
                &[],
                &[begins(&[Any, Many, Named("outer_lazy"), Named("main")], COMPLETE)],
            ),
            Chain { truth: RESOLVING, least_percent: 8, fp: &[], dwarf: &[begins(RESOLVING, COMPLETE)] },
        ],
        ..USUAL
    },
    Program {
        name: "dlopen",
        about: "two libraries at one address, one after the other",
        parts: &[
            library("liba.so", &["-fPIC", "-shared", "-DNAME=a"]),
            library("libb.so", &["-fPIC", "-shared", "-DNAME=b"]),
            one(&["dlopen.c"], &[]),
        ],
        chains: &[
            Chain {
                truth: &[Named("a_burn"), Named("a_work"), Named("outer"), Any, Named("main")],
                least_percent: 35,
                fp: &[],
                dwarf: &[begins(&[Named("a_burn"), Named("a_work"), Named("outer"), Many, Named("main")], COMPLETE)],
            },
            Chain {
                truth: &[Named("b_burn"), Named("b_work"), Named("outer"), Any, Named("main")],
                least_percent: 35,
                fp: &[],
                dwarf: &[begins(&[Named("b_burn"), Named("b_work"), Named("outer"), Many, Named("main")], COMPLETE)],
            },
        ],
        ..USUAL
    },
    Program {
        name: "deleted",
        about: "a program whose file is gone: read while it runs, or said to be unavailable",
        parts: &[one(&["file_gone.c"], WITH_FP)],
        arguments: &["delete"],
        chains: &[nearly_all(
            &[Named("burn"), Named("outer"), Named("main")],
            &[],
            &[
                begins(&[Named("burn"), Named("outer"), Named("main")], COMPLETE),
                all(&[Any], truncated("module_unavailable")),
            ],
        )],
        is_single_use: true,
        ..USUAL
    },
    Program {
        name: "replaced",
        about: "a program whose file is another one now: nothing may be looked up in that",
        parts: &[Part { output: "replacement", ..one(&["replacement.c"], WITH_FP) }, one(&["file_gone.c"], WITH_FP)],
        arguments: &["replace"],
        chains: &[nearly_all(
            &[Named("burn"), Named("outer"), Named("main")],
            &[],
            &[
                begins(&[Named("burn"), Named("outer"), Named("main")], COMPLETE),
                all(&[Any], truncated("build_id_mismatch")),
                all(&[Any], truncated("module_unavailable")),
            ],
        )],
        never: &["wrong_name_1", "wrong_name_2"],
        is_single_use: true,
        ..USUAL
    },
];
