use super::explain;
use crate::modules::{FileModules, LoneModule, Missing};
use crate::test_support::TestDir;
use fpprof_unwind::Error;

/// A function that saves rbx, one without a caller, one whose CFA is an expression and which is a signal frame, and one
/// without information.
const SOURCE: &str = "
        .text
        .globl saves
        .type saves, @function
saves:  .cfi_startproc
        push %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbx, 0
        nop
        pop %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size saves, . - saves
        .globl _start
        .type _start, @function
_start: .cfi_startproc
        .cfi_undefined rip
        nop
        .cfi_endproc
        .size _start, . - _start
        .type computed, @function
computed: .cfi_startproc
        .cfi_signal_frame
        .cfi_escape 0x0f, 3, 0x77, 8, 0x06
        nop
        .cfi_endproc
        .size computed, . - computed
        .type bare, @function
bare:   nop
        ret
        .size bare, . - bare
        .section .note.GNU-stack,\"\",@progbits
";

fn open() -> (TestDir, LoneModule) {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.s", SOURCE, &["-nostdlib", "-static"]);
    let file = LoneModule::open(&FileModules::new(), &path).unwrap().unwrap();
    (dir, file)
}

/// Check that each row of a function is explained, with the instructions it covers.
#[test]
fn rows_are_explained() {
    let (_dir, file) = open();
    let saves = file.function("saves").unwrap();
    let first = explain(&file, saves.svma).unwrap();
    assert_eq!((first.place.as_deref(), first.cfa.as_str()), (Some("saves"), "rsp+8"));
    assert_eq!((first.return_address.as_str(), first.registers.len()), ("saved at CFA-8", 0));
    assert_eq!((first.row_start, first.row_end), (saves.svma, saves.svma + 1));
    assert_eq!((first.entry_start, first.entry_end), (saves.svma, saves.svma + saves.bytes));
    let second = explain(&file, saves.svma + 1).unwrap();
    assert_eq!((second.place.as_deref(), second.cfa.as_str()), (Some("saves+0x1"), "rsp+16"));
    let [rbx] = &second.registers[..] else { panic!("{:?}", second.registers) };
    assert_eq!((rbx.name.as_str(), rbx.rule.as_str()), ("rbx", "saved at CFA-16"));
    assert_eq!((second.section.as_str(), second.arch.as_str()), (".eh_frame", "x86-64"));
    assert!(second.readelf.starts_with("CFA=rsp+16, rbx=c-16"), "{}", second.readelf);

    let start = explain(&file, file.function("_start").unwrap().svma).unwrap();
    assert_eq!(start.return_address, "undefined");
    let computed = explain(&file, file.function("computed").unwrap().svma).unwrap();
    // breg7 8; deref
    assert_eq!(computed.cfa, "result of expression 770806");
    assert!(computed.is_signal_frame);
}

/// Check that an address without a row and a file that is not ELF give different errors.
#[test]
fn what_is_missing_is_named() {
    let (dir, file) = open();
    let bare = file.function("bare").unwrap();
    assert_eq!(explain(&file, bare.svma), Err(Error::NoRow(bare.svma)));
    assert_eq!(file.function("nothing"), None);
    assert_eq!(file.function_at(bare.svma + 1), Some(bare));
    let text = dir.path("text");
    std::fs::write(&text, "no ELF file").unwrap();
    let open = |path: &std::path::Path| LoneModule::open(&FileModules::new(), path).map(|file| file.is_some());
    assert_eq!(open(&text), Err(Missing::NotElf));
    assert_eq!(open(&dir.path("nothing")), Err(Missing::NotFound));
    assert_eq!(open(&dir.path(".")), Err(Missing::NotRegular));
}
