//! Effects of the system and of run-time libraries on stacks.

use super::words::{COMPLETE, USUAL, WITH_LEAF_FP, all, begins, nearly_all, one, truncated};
use crate::Frame::{Any, Many, Named, Repeated};
use crate::{Chain, Frame, Program};

const LONGJMP: &[Frame] = &[Named("burn"), Repeated("recurse", 8), Named("outer"), Named("main")];
/// A lower share, since starting processes takes part of the time.
const IN_CHILD: &[Chain] = &[Chain {
    truth: &[Named("burn"), Named("in_child"), Named("main")],
    least_percent: 25,
    fp: &[],
    dwarf: &[begins(&[Named("burn"), Named("in_child"), Named("main")], COMPLETE)],
}];
const IN_VDSO: &[Frame] = &[Many, Named("__vdso_clock_gettime"), Any, Named("ask"), Named("main")];
/// The throwing function is `Any`: compilers give the cold part of a function a name of its own.
const THROWN: &[Frame] = &[Many, Any, Repeated("recurse", 8), Named("outer"), Named("main")];
const ENDLESS: &[Frame] = &[Named("recurse")];

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "vdso",
        about: "the vDSO, code of the kernel without a file",
        parts: &[one(&["vdso.c"], &[])],
        chains: &[
            nearly_all(
                &[Many, Named("ask"), Named("main")],
                &[],
                &[begins(&[Many, Named("ask"), Named("main")], COMPLETE)],
            ),
            Chain { truth: IN_VDSO, least_percent: 60, fp: &[], dwarf: &[begins(IN_VDSO, COMPLETE)] },
        ],
        ..USUAL
    },
    Program {
        name: "exception",
        about: "a C++ exception, through eleven frames and the run-time library that unwinds them itself",
        parts: &[one(&["exception.cpp"], &[])],
        chains: &[
            nearly_all(
                &[Many, Named("outer"), Named("main")],
                &[],
                &[begins(&[Many, Named("outer"), Named("main")], COMPLETE)],
            ),
            Chain { truth: THROWN, least_percent: 60, fp: &[], dwarf: &[begins(THROWN, COMPLETE)] },
        ],
        ..USUAL
    },
    Program {
        name: "threads",
        about: "thousands of threads of a millisecond each",
        parts: &[one(&["threads.c"], &["-pthread"])],
        chains: &[Chain {
            truth: &[Named("burn"), Named("thread_main"), Any, Any],
            least_percent: 85,
            fp: &[],
            dwarf: &[all(&[Named("burn"), Named("thread_main"), Any, Any], COMPLETE)],
        }],
        ..USUAL
    },
    Program {
        name: "coroutine",
        about: "a context of makecontext, on a stack outside of any thread's",
        parts: &[one(&["coroutine.c"], &[])],
        chains: &[nearly_all(
            &[Named("burn"), Named("coroutine"), Any],
            &[],
            // The return address is the first instruction of `__start_context`, and glibc has no row for the address
            // before it; the instruction bytes identify it.
            &[all(&[Named("burn"), Named("coroutine"), Any], COMPLETE)],
        )],
        ..USUAL
    },
    Program {
        name: "vfork",
        about: "children of vfork, on their parent's stack",
        parts: &[one(&["vfork.c"], &[])],
        chains: &[Chain {
            truth: &[Named("burn"), Named("main")],
            least_percent: 85,
            fp: &[],
            dwarf: &[begins(&[Named("burn"), Named("main")], COMPLETE)],
        }],
        ..USUAL
    },
    Program {
        name: "longjmp",
        about: "longjmp out of nine frames, again and again",
        parts: &[one(&["longjmp.c"], &[])],
        chains: &[nearly_all(LONGJMP, &[], &[begins(LONGJMP, COMPLETE)])],
        ..USUAL
    },
    Program {
        name: "fork_storm",
        about: "hundreds of children of a millisecond each",
        parts: &[one(&["storm.c"], &[])],
        arguments: &["fork"],
        chains: IN_CHILD,
        ..USUAL
    },
    Program {
        name: "exec_storm",
        about: "hundreds of children that execute the program anew",
        parts: &[one(&["storm.c"], &[])],
        arguments: &["exec"],
        chains: IN_CHILD,
        ..USUAL
    },
    Program {
        name: "pid_reuse",
        about: "children that execute the program anew, each under the process id of the one before",
        parts: &[one(&["storm.c"], &[])],
        arguments: &["reuse"],
        chains: IN_CHILD,
        ..USUAL
    },
    Program {
        name: "memfd",
        about: "a program that is in memory only",
        parts: &[one(&["memfd.c"], &[])],
        chains: &[nearly_all(
            &[Named("burn"), Named("outer"), Named("main")],
            &[],
            &[begins(&[Named("burn"), Named("outer"), Named("main")], COMPLETE)],
        )],
        ..USUAL
    },
    Program {
        name: "exec",
        about: "a program that executes itself: the same process with other addresses, half of the time each by the clock",
        parts: &[one(&["exec.c"], &[])],
        chains: &[
            Chain {
                truth: &[Named("burn"), Named("before_exec"), Named("main")],
                least_percent: 10,
                fp: &[],
                dwarf: &[begins(&[Named("burn"), Named("before_exec"), Named("main")], COMPLETE)],
            },
            Chain {
                truth: &[Named("burn"), Named("after_exec"), Named("main")],
                least_percent: 10,
                fp: &[],
                dwarf: &[begins(&[Named("burn"), Named("after_exec"), Named("main")], COMPLETE)],
            },
        ],
        ..USUAL
    },
    Program {
        name: "endless",
        about: "endless recursion into pages of the stack that are not there yet: little or nothing can be copied",
        parts: &[one(&["endless.c"], &[])],
        chains: &[Chain {
            truth: &[Named("recurse"), Many, Named("outer"), Named("main")],
            least_percent: 60,
            fp: &[],
            dwarf: &[
                begins(ENDLESS, truncated("chunk_end")),
                begins(ENDLESS, truncated("chunk_empty")),
                begins(ENDLESS, truncated("max_depth")),
                begins(&[Named("recurse"), Many, Named("outer"), Named("main")], COMPLETE),
            ],
        }],
        is_described: false,
        ..USUAL
    },
    Program {
        name: "jit",
        about: "code made at run time: it has no call frame information, and its frame pointers are followed",
        parts: &[one(&["jit.c"], WITH_LEAF_FP)],
        chains: &[nearly_all(
            &[Named("burn"), Any, Named("outer"), Named("main")],
            &[begins(&[Named("burn"), Any, Named("outer"), Named("main")], None)],
            &[begins(&[Named("burn"), Any, Named("outer"), Named("main")], COMPLETE)],
        )],
        is_described: false,
        ..USUAL
    },
    Program {
        name: "jit_mapped",
        about: "the same with a map of names for perf",
        parts: &[one(&["jit.c"], WITH_LEAF_FP)],
        arguments: &["mapped"],
        chains: &[nearly_all(
            &[Named("burn"), Any, Named("outer"), Named("main")],
            &[begins(&[Named("burn"), Any, Named("outer"), Named("main")], None)],
            &[begins(&[Named("burn"), Any, Named("outer"), Named("main")], COMPLETE)],
        )],
        is_described: false,
        ..USUAL
    },
];
