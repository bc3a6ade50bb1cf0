//! The meaning of rows, and which functions call.

use super::elf::{Elf, GOT, TEXT};
use crate::audit::{AuditOptions, FileAudit, FunctionKind, FunctionRecord, examine};
use std::io::Cursor;

fn audit(elf: Elf) -> FileAudit {
    examine(Cursor::new(elf.bytes()), AuditOptions { disassemble: true, records: true, ranges: true }).unwrap()
}

/// Audits a file with one function, made of these bytes and rows.
fn function(code: &[u8], rows: &[u8]) -> FunctionRecord {
    let audit = audit(Elf::new().text(code).got().function(TEXT, u32::try_from(code.len()).unwrap(), rows));
    assert_eq!(audit.records.len(), 1);
    audit.records[0]
}

fn bytes_of(record: FunctionRecord) -> (u64, u64, u64) {
    (record.ok, record.drops_caller, record.breaks_chain)
}

/// `DW_CFA_advance_loc`.
const fn advance(n: u8) -> u8 {
    0x40 | n
}
/// `DW_CFA_def_cfa_offset`.
const CFA_OFFSET: u8 = 0x0e;
/// `DW_CFA_def_cfa_register`.
const CFA_REGISTER: u8 = 0x0d;
/// `DW_CFA_def_cfa`.
const CFA: u8 = 0x0c;
/// `DW_CFA_offset` of rbp, in words below the CFA.
const SAVE_RBP: u8 = 0x86;
/// `DW_CFA_offset` of rbx.
const SAVE_RBX: u8 = 0x83;
const RBP: u8 = 6;
const RSP: u8 = 7;

/// Check that a plain frame is right between the move and the `leave`, and drops the caller outside; also after the
/// push, where the rows say "saved" but the register still belongs to the caller.
#[test]
fn plain_frame_drops_the_caller_at_its_ends() {
    let code = [
        0x55, // push %rbp
        0x48, 0x89, 0xe5, // mov %rsp,%rbp
        0x31, 0xc0, // xor %eax,%eax
        0xc9, // leave
        0xc3, // ret
    ];
    let rows = [
        advance(1),
        CFA_OFFSET,
        16,
        SAVE_RBP,
        2, // after push
        advance(3),
        CFA_REGISTER,
        RBP, // after mov
        advance(3),
        CFA,
        RSP,
        8, // after leave
    ];
    let record = function(&code, &rows);
    assert_eq!(bytes_of(record), (3, 5, 0));
    assert!(record.framed && !record.late && record.leaf == Some(true) && record.kind == FunctionKind::Function);
}

/// Check that a function that uses rbp as a general register breaks the chain meanwhile, and only drops the caller
/// before the push and after the pop.
#[test]
fn borrowed_register_breaks_the_chain() {
    let code = [
        0x55, // push %rbp
        0x53, // push %rbx
        0x48, 0x89, 0xe5, // mov %rsp,%rbp: not a frame, rbx is on top
        0x5b, // pop %rbx
        0x5d, // pop %rbp
        0xc3, // ret
    ];
    let rows = [
        advance(1),
        CFA_OFFSET,
        16,
        SAVE_RBP,
        2,
        advance(1),
        CFA_OFFSET,
        24,
        SAVE_RBX,
        3,
        advance(4),
        CFA_OFFSET,
        16,
        advance(1),
        CFA_OFFSET,
        8,
    ];
    let audit = audit(Elf::new().text(&code).function(TEXT, 8, &rows));
    assert_eq!(bytes_of(audit.records[0]), (0, 2, 6));
    assert!(!audit.records[0].framed && audit.records[0].saves_others);
    let seen = audit.disassembled.unwrap();
    assert_eq!((seen.prologues, seen.framed_only, seen.writes_untouched), (0, 0, 0));
}

/// Check that a realigned stack (CFA in memory, located by the frame pointer) counts as a frame.
#[test]
fn realigned_stack_is_framed() {
    // lea 8(%rsp),%r10; and $-32,%rsp; push -8(%r10); push %rbp; mov %rsp,%rbp; push %r10 …
    let rows = [
        advance(5),
        CFA,
        10,
        0, // CFA in r10
        advance(12),
        0x10,
        RBP,
        2,
        0x76,
        0, // rbp at *(rbp+0)
        advance(2),
        0x0f,
        3,
        0x76,
        0x78,
        0x06, // CFA = *(rbp-8)
    ];
    let record = function(&[0x90; 40], &rows);
    assert_eq!(bytes_of(record), (23, 17, 0));
    assert!(record.framed && record.realigned && record.late);
}

/// Check that a frame set up more than 16 bytes after the start is late, and that the bytes before it are counted.
#[test]
fn late_prologue_is_counted() {
    let rows = [advance(20), CFA_OFFSET, 16, SAVE_RBP, 2, advance(3), CFA_REGISTER, RBP];
    let record = function(&[0x90; 60], &rows);
    assert!(record.framed && record.late);
    assert_eq!(bytes_of(record), (37, 23, 0));
}

/// Check that an FDE that begins inside a frame is a part of a function, not a function, and that its bytes are
/// classified by its rows.
#[test]
fn cold_parts_are_no_functions() {
    let rows = [CFA, RBP, 16, SAVE_RBP, 2];
    let audit = audit(Elf::new().text(&[0x90; 32]).function(TEXT, 20, &[]).function(TEXT + 20, 12, &rows));
    assert_eq!((audit.tally.functions.total, audit.tally.functions.parts), (1, 1));
    assert_eq!((audit.tally.code.ok, audit.tally.code.drops_caller), (12, 20));
}

/// Check that linkage stubs, recognised by their section or expression, and the entry point are not functions.
#[test]
fn stubs_and_entry_points_are_no_functions() {
    // DW_CFA_def_cfa_expression rsp+8+((rip&15)>=11)<<3, as linkers write it.
    let stub = [0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    let audit = audit(
        Elf::new()
            .text(&[0x90; 64])
            .section(".plt.got", 6, 0x2000, &[0x90; 16])
            .function(TEXT, 32, &stub)
            .function(TEXT + 32, 32, &[0x07, 16])
            .function(0x2000, 16, &[]),
    );
    let functions = audit.tally.functions;
    assert_eq!((functions.total, functions.stubs, functions.others), (0, 2, 1));
    assert_eq!((audit.tally.code.ok, audit.tally.code.drops_caller), (32, 48));
}

/// Check that calls are distinguished from bytes that look like them.
#[test]
fn calls_are_distinguished_from_bytes_that_look_like_them() {
    let leaf = |code: &[u8]| function(code, &[]).leaf;
    // A call of the function itself.
    assert_eq!(leaf(&[0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3]), Some(false));
    // mov $0xfffffbe8,%eax: the same bytes within an instruction; the target is not the start of a function.
    assert_eq!(leaf(&[0xb8, 0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3, 0x90, 0x90]), Some(true));
    // call *%rax; and add %eax,%esp, after a byte 0xff.
    assert_eq!(leaf(&[0xff, 0xd0, 0xc3]), Some(false));
    assert_eq!(leaf(&[0x83, 0xc8, 0xff, 0x10, 0xc0, 0xc3]), Some(true));
    // call *GOT(%rip).
    let to_got = u32::try_from(GOT - TEXT - 6).unwrap().to_le_bytes();
    assert_eq!(leaf(&[0xff, 0x15, to_got[0], to_got[1], to_got[2], to_got[3], 0xc3]), Some(false));
    // jmp elsewhere: a tail call keeps a leaf a leaf.
    assert_eq!(leaf(&[0xe9, 0, 1, 0, 0]), Some(true));
}

/// Check that every byte is counted once although FDEs overlap, repeat, and extend beyond the code.
#[test]
fn overlapping_entries_count_once() {
    let audit = audit(
        Elf::new()
            .text(&[0x90; 200])
            .function(TEXT, 100, &[])
            .function(TEXT, 100, &[])
            .function(TEXT + 50, 100, &[CFA, RBP, 16, SAVE_RBP, 2])
            .function(TEXT + 190, 4000, &[])
            .function(0, 4000, &[]),
    );
    let code = audit.tally.code;
    assert_eq!((code.executable, code.drops_caller, code.ok, code.no_cfi + code.padding), (200, 110, 50, 40));
    assert!(audit.remarks.contains(&crate::audit::Remark::Overlaps(2)));
}

/// Check that the gap before an aligned function is padding, and that other uncovered bytes are not.
#[test]
fn padding_is_distinguished_from_code_without_information() {
    let elf =
        Elf::new().text(&[0x90; 300]).function(TEXT, 20, &[]).function(TEXT + 32, 18, &[]).function(TEXT + 200, 9, &[]);
    let code = audit(elf).tally.code;
    assert_eq!((code.padding, code.no_cfi), (12, 150 + 91));
}

/// Check that the decoder detects a write to the register where the rows say it is untouched.
#[test]
fn writes_against_the_rows_are_found() {
    // mov %rdi,%rbp; nop; ret, without rows for it: assembly.
    let audit = audit(Elf::new().text(&[0x48, 0x89, 0xfd, 0x90, 0xc3]).function(TEXT, 5, &[]));
    assert_eq!(audit.disassembled.unwrap().writes_untouched, 1);
}
