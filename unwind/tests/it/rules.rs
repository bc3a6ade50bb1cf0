//! Rules a walk follows: every way to recover a CFA, a return address and a register.

use fpprof_unwind::{FrameSource, Root, StopReason};

use crate::build::{BIAS, Cfi, Process, R10, RA, RBP, RBX, RSP, STACK, Sparse, addresses, bytes, cfa, regs, whole};

const COMPLETE: StopReason = StopReason::Complete(Root::UndefinedRa);

/// `main` at 0x3000, which has no caller.
fn with_main(cfi: &mut Cfi) -> &mut Cfi {
    cfi.fde(0x3000, 0x100, &[cfa::undefined(RA)])
}

/// Check that a walk through a prologue and an epilogue follows the row of each instruction.
#[test]
fn follows_the_row_of_each_instruction() {
    // 2000: push %rbp    CFA=rsp+8
    // 2001: mov %rsp,%rbp    CFA=rsp+16, rbp=c-16
    // 2004: ... call ...    CFA=rbp+16, rbp=c-16
    // 2050: pop %rbp; 2051: ret    CFA=rsp+8
    let mut cfi = Cfi::eh_frame();
    cfi.fde(
        0x2000,
        0x52,
        &[
            cfa::advance(1),
            cfa::def_cfa_offset(16),
            cfa::saved(RBP, 16),
            cfa::advance(3),
            cfa::def_cfa_register(RBP),
            cfa::advance(0x3f),
            cfa::advance(0x51 - 0x43),
            cfa::def_cfa(RSP, 8),
        ],
    );
    let process = Process::new(with_main(&mut cfi).module());
    let near_miss = BIAS + 0x3077;
    let ra = BIAS + 0x3010;
    let stack = bytes(&[near_miss, near_miss, STACK + 0x40, ra, near_miss]);
    for (ip, sp, fp) in [(0x2000, 24, 0), (0x2001, 16, 0), (0x2004, 0, 16), (0x2050, 16, 16), (0x2051, 24, 0x40)] {
        let found = process.unwind(&regs(ip, STACK + sp, STACK + fp), &whole(&stack));
        assert_eq!(addresses(&found), [ip, 0x3010], "at {ip:#x}");
        assert_eq!(found.stop, COMPLETE);
        assert_eq!(found.frames[0].cfa, STACK + 32);
        assert_eq!(found.frames[0].source, FrameSource::Registers);
        assert_eq!(found.frames[1].source, FrameSource::Cfi);
        assert!(found.frames[0].flags.is_instruction && !found.frames[1].flags.is_instruction);
    }
}

/// Check that a frame pointer restored by one frame is used for a later CFA, through a frame that keeps it.
#[test]
fn hands_the_frame_pointer_on() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::def_cfa_offset(24), cfa::saved(RBP, 16)])
        .fde(0x1100, 0x10, &[cfa::def_cfa_offset(16)])
        .fde(0x1200, 0x10, &[cfa::def_cfa(RBP, 16), cfa::saved(RBP, 16)]);
    let process = Process::new(with_main(&mut cfi).module());
    let stack = bytes(&[
        0,
        STACK + 48, // rbp of 0x1200
        BIAS + 0x1105,
        0,
        BIAS + 0x1205,
        0,
        0x77, // its caller's rbp
        BIAS + 0x3001,
    ]);
    let found = process.unwind(&regs(0x1004, STACK, 1), &whole(&stack));
    assert_eq!(addresses(&found), [0x1004, 0x1105, 0x1205, 0x3001]);
    assert_eq!(found.stop, COMPLETE);
    assert_eq!(found.frames.iter().map(|frame| frame.cfa).collect::<Vec<_>>(), [STACK + 24, STACK + 40, STACK + 64, 0]);
}

/// Check that a return address is looked up one byte lower, since the call may be the last instruction: the function
/// that happens to follow is not the caller.
#[test]
fn looks_up_the_call_not_what_follows() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x2000, 0x10, &[])
        .fde(0x2100, 0x10, &[cfa::def_cfa_offset(16)]) // ends with a call that does not return
        .fde(0x2110, 0x10, &[cfa::def_cfa_offset(64)]); // the innocent next
    let process = Process::new(with_main(&mut cfi).module());
    let stack = bytes(&[BIAS + 0x2110, 0, BIAS + 0x3001, 0, 0, 0, 0, 0, 0]);
    let found = process.unwind(&regs(0x2000, STACK, 0), &whole(&stack));
    assert_eq!(addresses(&found), [0x2000, 0x2110, 0x3001]);
    assert_eq!(found.frames[1].lookup(), BIAS + 0x210f);
    assert_eq!(found.stop, COMPLETE);
}

/// Check that a lazy PLT entry's CFA depends on the instruction: one byte before the push, at it, and after it.
#[test]
fn follows_plt_entries() {
    // breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus
    let plt = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x100, &[cfa::def_cfa_expression(&plt)]);
    let process = Process::new(with_main(&mut cfi).module());
    let stack = bytes(&[1, BIAS + 0x3001, 2]);
    for (ip, sp) in [(0x1020, 8), (0x102a, 8), (0x102b, 0), (0x102f, 0), (0x1030, 8)] {
        let found = process.unwind(&regs(ip, STACK + sp, 0), &whole(&stack));
        assert_eq!(addresses(&found), [ip, 0x3001], "at {ip:#x}");
    }
}

/// Check that a signal frame restores all registers, and that the interrupted instruction itself is looked up, not the
/// byte before: it is the first of its function.
#[test]
fn crosses_signal_frames() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[]).fde(0x2000, 0x10, &[cfa::def_cfa(RBX, 16)]);
    cfi.cie("zRS", &[]);
    // The trampoline: CFA = *(rsp+16), rip = *(rsp+24), rbx = *(rsp+32), rbp = *(rsp+40).
    let at = |offset: u8| [0x77, offset];
    cfi.fde(
        0x1800,
        0x10,
        &[
            cfa::def_cfa_expression(&[0x77, 16, 0x06]),
            cfa::expression(RA, &at(24)),
            cfa::expression(RBX, &at(32)),
            cfa::expression(RBP, &at(40)),
        ],
    );
    cfi.cie("zR", &[cfa::def_cfa(RSP, 8), cfa::saved(RA, 8)].concat());
    let process = Process::new(with_main(&mut cfi).module());
    let stack = bytes(&[
        BIAS + 0x1800, // the handler returns to the first byte of the trampoline
        0,
        0,
        STACK + 64,    // sp
        BIAS + 0x2000, // ip: the first instruction of its function
        STACK + 56,    // rbx
        0x1234,        // rbp
        0,
        BIAS + 0x3001,
        0,
    ]);
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&stack));
    // A return address at a trampoline's first byte belongs to whatever precedes it: the kernel's trampolines have a
    // nop there, or start their FDE one byte early. This one does not, so the walk ends.
    assert_eq!(addresses(&found), [0x1004, 0x1800]);
    let stack = bytes(&[BIAS + 0x1801, 0, 0, STACK + 64, BIAS + 0x2000, STACK + 56, 0x1234, 0, BIAS + 0x3001, 0]);
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&stack));
    assert_eq!(addresses(&found), [0x1004, 0x1801, 0x2000, 0x3001]);
    assert_eq!(found.stop, COMPLETE);
    assert_eq!(
        found.frames.iter().map(|frame| frame.flags.is_instruction).collect::<Vec<_>>(),
        [true, false, true, false]
    );
    assert_eq!(found.frames[2].lookup(), BIAS + 0x2000);
}

/// Check that a realigned stack is unwound: first with r10, then with its copy pushed below the frame pointer.
#[test]
fn follows_realigned_stacks() {
    // lea 8(%rsp),%r10; and $-32,%rsp; push -8(%r10); push %rbp; mov %rsp,%rbp; push %r10
    let mut cfi = Cfi::eh_frame();
    cfi.fde(
        0x2000,
        0x40,
        &[
            cfa::advance(5),
            cfa::def_cfa(R10, 0),
            cfa::advance(0x10),
            cfa::expression(RBP, &[0x76, 0]),
            cfa::def_cfa_expression(&[0x76, 0x78, 0x06]), // breg6 (rbp) -8; deref
        ],
    );
    let process = Process::new(with_main(&mut cfi).module());
    let stack = bytes(&[STACK + 48, 0x99, 0, 0, 0, BIAS + 0x3001, 0]);
    let mut in_prologue = regs(0x2006, STACK, 0);
    in_prologue.set(u16::from(R10), STACK + 48);
    assert_eq!(addresses(&process.unwind(&in_prologue, &whole(&stack))), [0x2006, 0x3001]);
    let found = process.unwind(&regs(0x2020, STACK, STACK + 8), &whole(&stack));
    assert_eq!((addresses(&found), found.stop), (vec![0x2020, 0x3001], COMPLETE));
    assert_eq!(found.frames[0].cfa, STACK + 48);
}

/// Check that a CFA relative to rbx (as in `_dl_runtime_resolve`) is found if a callee has restored rbx.
#[test]
fn follows_registers_other_frames_saved() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::def_cfa_offset(16), cfa::saved(RBX, 16)]).fde(0x2000, 0x10, &[cfa::def_cfa(RBX, 24)]);
    let process = Process::new(with_main(&mut cfi).module());
    let stack = bytes(&[STACK + 24, BIAS + 0x2004, 0, 0, 0, BIAS + 0x3001]);
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&stack));
    assert_eq!((addresses(&found), found.stop), (vec![0x1004, 0x2004, 0x3001], COMPLETE));
}

/// Check the rules for values in other registers, values that are offsets, and values of expressions.
#[test]
fn follows_every_register_rule() {
    let mut cfi = Cfi::eh_frame();
    // rip in rbx; rbp = CFA − 8 (as an expression that starts with the CFA on its stack); rsp = r10.
    cfi.fde(
        0x1000,
        0x10,
        &[
            cfa::in_register(RA, RBX),
            cfa::val_expression(RBP, &[0x38, 0x1c]), // lit8; minus
            cfa::in_register(RSP, R10),
        ],
    )
    // CFA = rbp + 24, which depends on both rules above.
    .fde(0x2000, 0x10, &[cfa::def_cfa(RBP, 24), cfa::same_value(RBP)]);
    let process = Process::new(with_main(&mut cfi).module());
    let mut regs = regs(0x1004, STACK, 0);
    regs.set(u16::from(RBX), BIAS + 0x2004);
    regs.set(u16::from(R10), STACK + 8);
    let stack = bytes(&[0, 0, BIAS + 0x3001, 0]);
    let found = process.unwind(&regs, &whole(&stack));
    assert_eq!((addresses(&found), found.stop), (vec![0x1004, 0x2004, 0x3001], COMPLETE));
    assert_eq!(found.frames[1].cfa, STACK + 24);
}

/// Check that a register that could not be read ends the walk only if it is needed, with the reason it was lost.
#[test]
fn lost_registers_end_the_walk_where_needed() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::expression(RBP, &[0x08, 0x10])]) // saved at address 16
        .fde(0x2000, 0x10, &[cfa::def_cfa_offset(16)])
        .fde(0x2100, 0x10, &[cfa::def_cfa(RBP, 16)]);
    let process = Process::new(with_main(&mut cfi).module());
    let stack = bytes(&[BIAS + 0x2004, 0, BIAS + 0x3001]);
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&stack));
    assert_eq!((addresses(&found), found.stop), (vec![0x1004, 0x2004, 0x3001], COMPLETE));
    let stack = bytes(&[BIAS + 0x2104, 0, BIAS + 0x3001]);
    let found = process.unwind(&regs(0x1004, STACK, 0), &whole(&stack));
    assert_eq!(addresses(&found), [0x1004, 0x2104]);
    assert_eq!(found.stop.name(), "stack_switch");
}

/// Check that a caller-saved register without a rule is unknown in the caller.
#[test]
fn caller_saved_registers_are_not_handed_on() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[]).fde(0x2000, 0x10, &[cfa::def_cfa(R10, 16)]);
    let process = Process::new(with_main(&mut cfi).module());
    let mut regs = regs(0x1004, STACK, 0);
    regs.set(u16::from(R10), STACK + 8);
    let found = process.unwind(&regs, &whole(&bytes(&[BIAS + 0x2004, 0, BIAS + 0x3001])));
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x1004, 0x2004], "bad_cfi"));
}

/// Check that addresses inside expressions are relocated with their module.
#[test]
fn expressions_know_the_bias() {
    let mut cfi = Cfi::eh_frame();
    let addr = [vec![0x03], 0x8000_u64.to_le_bytes().to_vec(), vec![0x06]].concat();
    cfi.fde(0x1000, 0x10, &[cfa::def_cfa_expression(&addr)]);
    let process = Process::new(with_main(&mut cfi).module());
    let memory = Sparse([(BIAS + 0x8000, STACK + 32), (STACK + 24, BIAS + 0x3001)].into());
    let found = process.unwind(&regs(0x1004, STACK, 0), &memory);
    assert_eq!((addresses(&found), found.frames[0].cfa), (vec![0x1004, 0x3001], STACK + 32));
}

/// Check that remembered states are fully restored, including the CFA.
#[test]
fn restores_remembered_states() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(
        0x1000,
        0x20,
        &[
            cfa::def_cfa_offset(24),
            cfa::remember(),
            cfa::advance(8),
            cfa::def_cfa_offset(8),
            cfa::advance(8),
            cfa::restore_state(),
        ],
    );
    let process = Process::new(with_main(&mut cfi).module());
    let stack = bytes(&[BIAS + 0x3001, 0, BIAS + 0x3002]);
    for (ip, caller) in [(0x1000, 0x3002), (0x1008, 0x3001), (0x1010, 0x3002)] {
        assert_eq!(addresses(&process.unwind(&regs(ip, STACK, 0), &whole(&stack))), [ip, caller]);
    }
}
