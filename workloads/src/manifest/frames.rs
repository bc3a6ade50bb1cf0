//! Frames of unusual shape, and wrong or missing unwind information.

use super::words::{
    CLANG, COMPLETE, GCC, USUAL, WITH_FP, WITH_LEAF_FP, all, begins, broken, nearly_all, one, skips_caller, truncated,
};
use crate::Frame::{Any, Many, Named, Repeated};
use crate::{Frame, Program};

const CHAIN: &[Frame] = &[Named("burn"), Named("mid"), Named("outer"), Named("main")];
const BIG: &[Frame] = &[Named("burn"), Named("big"), Named("outer"), Named("main")];
const SWITCHED: &[Frame] = &[Named("burn"), Named("coroutine"), Named("begin_with_end")];
const SIGNAL: &[Frame] =
    &[Named("burn"), Named("on_illegal"), Any, Named("interrupted"), Named("outer"), Named("main")];

pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "leaf",
        about: "a leaf function without a frame of its own: the frame pointer skips its caller",
        parts: &[one(&["chain.c"], WITH_FP)],
        compilers: GCC,
        chains: &[nearly_all(
            CHAIN,
            &[skips_caller(&[Named("burn"), Named("outer"), Named("main")])],
            &[begins(CHAIN, COMPLETE)],
        )],
        ..USUAL
    },
    Program {
        name: "leaf_with_frame",
        about: "frame pointers everywhere: both strategies agree",
        parts: &[one(&["chain.c"], WITH_LEAF_FP)],
        chains: &[nearly_all(CHAIN, &[begins(CHAIN, None)], &[begins(CHAIN, COMPLETE)])],
        ..USUAL
    },
    Program {
        name: "leaf_clang",
        about: "clang keeps frame pointers in leaf functions too: both strategies agree",
        parts: &[one(&["chain.c"], WITH_FP)],
        compilers: CLANG,
        chains: &[nearly_all(CHAIN, &[begins(CHAIN, None)], &[begins(CHAIN, COMPLETE)])],
        ..USUAL
    },
    Program {
        name: "unoptimised",
        about: "-O0: frame pointers everywhere, whatever the flags",
        parts: &[one(&["chain.c"], &["-O0"])],
        chains: &[nearly_all(CHAIN, &[begins(CHAIN, None)], &[begins(CHAIN, COMPLETE)])],
        ..USUAL
    },
    Program {
        name: "noreturn",
        about: "a call of a noreturn function at the end of its caller: the return address is the next function's",
        parts: &[one(&["noreturn.c"], &["-fno-omit-frame-pointer", "-falign-functions=1"])],
        compilers: GCC,
        chains: &[nearly_all(
            &[Named("burn"), Named("finish"), Named("caller_ends_here"), Named("main")],
            &[skips_caller(&[Named("burn"), Named("caller_ends_here"), Named("main")])],
            &[begins(&[Named("burn"), Named("finish"), Named("caller_ends_here"), Named("main")], COMPLETE)],
        )],
        never: &["innocent_next"],
        ..USUAL
    },
    Program {
        name: "signal",
        about: "a signal handler on the interrupted stack",
        parts: &[one(&["altstack.c"], &[])],
        arguments: &["same-stack"],
        chains: &[nearly_all(SIGNAL, &[], &[begins(SIGNAL, COMPLETE)])],
        ..USUAL
    },
    Program {
        name: "sigaltstack",
        about: "a signal handler on a stack of its own: both stacks are copied",
        parts: &[one(&["altstack.c"], &[])],
        chains: &[nearly_all(SIGNAL, &[], &[begins(SIGNAL, COMPLETE)])],
        ..USUAL
    },
    Program {
        name: "sigaltstack_disarmed",
        about: "the same with SS_AUTODISARM: that the stack is an alternate one, nothing tells",
        parts: &[one(&["altstack.c"], &[])],
        arguments: &["disarmed"],
        chains: &[nearly_all(
            SIGNAL,
            &[],
            &[all(&[Named("burn"), Named("on_illegal"), Any, Named("interrupted")], truncated("stack_switch"))],
        )],
        is_described: false,
        ..USUAL
    },
    Program {
        name: "big_frame",
        about: "a frame of 100,000 bytes, more than the chunk holds",
        parts: &[one(&["big_frame.c"], WITH_FP)],
        compilers: GCC,
        chains: &[nearly_all(
            BIG,
            &[skips_caller(&[Named("burn"), Named("outer"), Named("main")])],
            &[all(&[Named("burn"), Named("big")], truncated("chunk_end"))],
        )],
        is_described: false,
        ..USUAL
    },
    Program {
        name: "big_frame_fits",
        about: "a frame of 30,000 bytes",
        parts: &[one(&["big_frame.c"], &[])],
        arguments: &["30000"],
        chains: &[nearly_all(BIG, &[], &[begins(BIG, COMPLETE)])],
        ..USUAL
    },
    Program {
        name: "realigned",
        about: "a realigned stack whose CFA is an expression (gcc's DRAP)",
        parts: &[one(&["realigned.c"], &["-fno-omit-frame-pointer", "-mavx2"])],
        compilers: GCC,
        chains: &[nearly_all(
            &[Named("burn"), Named("realigned"), Named("outer"), Named("main")],
            &[skips_caller(&[Named("burn"), Named("outer"), Named("main")])],
            &[begins(&[Named("burn"), Named("realigned"), Named("outer"), Named("main")], COMPLETE)],
        )],
        ..USUAL
    },
    Program {
        name: "tail_call",
        about: "a function that jumped to the next is not on the stack, and is not missing",
        parts: &[one(&["tail_call.c"], WITH_FP)],
        compilers: GCC,
        chains: &[nearly_all(
            &[Named("burn"), Named("target"), Named("mid"), Named("main")],
            &[skips_caller(&[Named("burn"), Named("mid"), Named("main")])],
            &[begins(&[Named("burn"), Named("target"), Named("mid"), Named("main")], COMPLETE)],
        )],
        never: &["tailcaller"],
        ..USUAL
    },
    Program {
        name: "no_cfi",
        about: "assembly without call frame information between two functions that have it",
        parts: &[one(&["assembly.c"], WITH_FP)],
        compilers: GCC,
        arguments: &["no_cfi"],
        chains: &[nearly_all(
            &[Named("burn"), Named("no_cfi"), Named("outer"), Named("main")],
            &[skips_caller(&[Named("burn"), Named("main")])],
            &[all(&[Named("burn"), Named("no_cfi")], truncated("no_cfi"))],
        )],
        is_described: false,
        ..USUAL
    },
    Program {
        name: "no_cfi_leaf",
        about: "a leaf in assembly without call frame information",
        parts: &[one(&["assembly.c"], WITH_FP)],
        arguments: &["no_cfi_leaf"],
        chains: &[nearly_all(
            &[Named("no_cfi_leaf"), Named("outer"), Named("main")],
            &[],
            &[
                all(&[Named("no_cfi_leaf")], truncated("no_cfi")),
                begins(&[Named("no_cfi_leaf"), Named("outer"), Named("main")], COMPLETE),
            ],
        )],
        is_described: false,
        ..USUAL
    },
    Program {
        name: "wrong_cfi",
        about: "assembly with wrong call frame information: the return address is 0x4141414141414141",
        parts: &[one(&["assembly.c"], WITH_FP)],
        compilers: GCC,
        arguments: &["wrong_cfi"],
        chains: &[nearly_all(
            &[Named("burn"), Named("wrong_cfi"), Named("outer"), Named("main")],
            &[skips_caller(&[Named("burn"), Named("main")])],
            &[all(&[Named("burn"), Named("wrong_cfi")], broken("ra_not_exec"))],
        )],
        is_described: false,
        ..USUAL
    },
    Program {
        name: "endless_cfi",
        about: "a CFA expression that never ends",
        parts: &[one(&["assembly.c"], WITH_FP)],
        compilers: GCC,
        arguments: &["endless_cfi"],
        chains: &[nearly_all(
            &[Named("burn"), Named("endless_cfi"), Named("outer"), Named("main")],
            &[skips_caller(&[Named("burn"), Named("main")])],
            &[all(&[Named("burn"), Named("endless_cfi")], broken("expr_limit"))],
        )],
        is_described: false,
        ..USUAL
    },
    Program {
        name: "indirect_thunk",
        about: "calls through a thunk that moves its return address, which its rows do not say",
        parts: &[one(&["indirect_thunk.c"], &["-fno-omit-frame-pointer", "-mindirect-branch=thunk"])],
        compilers: GCC,
        chains: &[nearly_all(
            &[Named("burn"), Named("outer"), Named("main")],
            &[],
            &[begins(&[Named("burn"), Named("outer"), Named("main")], COMPLETE)],
        )],
        ..USUAL
    },
    Program {
        name: "split_stack",
        about: "a stack of pieces (-fsplit-stack): copied are the pieces that happen to lie above the leaf's",
        parts: &[one(&["split_stack.c"], &["-fsplit-stack", "-fuse-ld=gold"])],
        compilers: GCC,
        chains: &[nearly_all(
            &[Named("burn"), Named("recurse"), Many, Named("main")],
            &[],
            &[
                begins(&[Named("burn"), Named("recurse"), Many, Named("main")], COMPLETE),
                begins(&[Named("burn"), Named("recurse")], truncated("stack_switch")),
                begins(&[Named("burn"), Named("recurse")], truncated("chunk_end")),
            ],
        )],
        is_described: false,
        ..USUAL
    },
    Program {
        name: "hand_switch",
        about: "a stack that assembly went over to, below a function that says it has no caller",
        parts: &[one(&["switch.c"], &[])],
        chains: &[nearly_all(SWITCHED, &[], &[all(SWITCHED, COMPLETE)])],
        ..USUAL
    },
    Program {
        name: "hand_switch_without_rows",
        about: "a stack that assembly went over to, below a function that says nothing",
        parts: &[one(&["switch.c"], &[])],
        arguments: &["without"],
        chains: &[nearly_all(
            &[Named("burn"), Named("coroutine"), Named("begin_without_rows")],
            &[],
            &[all(&[Named("burn"), Named("coroutine"), Named("begin_without_rows")], truncated("no_cfi"))],
        )],
        ..USUAL
    },
    Program {
        name: "deep",
        about: "200 frames, more than the kernel's chain of 127 holds",
        parts: &[one(&["deep.c"], WITH_FP)],
        arguments: &["200"],
        chains: &[nearly_all(
            &[Named("burn"), Repeated("recurse", 200), Named("main")],
            &[begins(&[Named("burn"), Repeated("recurse", 120)], None)],
            &[begins(&[Named("burn"), Repeated("recurse", 200), Named("main")], COMPLETE)],
        )],
        ..USUAL
    },
    Program {
        name: "too_deep",
        about: "1,500 frames, more than are unwound unless asked for",
        parts: &[one(&["deep.c"], &[])],
        arguments: &["1500"],
        chains: &[nearly_all(
            &[Named("burn"), Repeated("recurse", 1500), Named("main")],
            &[],
            &[all(&[Named("burn"), Repeated("recurse", 1023)], truncated("max_depth"))],
        )],
        is_described: false,
        ..USUAL
    },
];
