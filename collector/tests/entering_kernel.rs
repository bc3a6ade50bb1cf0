//! Which registers of a thread in the kernel are trusted when a non-maskable interrupt reads them.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

/// Makes the BPF program's check for stack pointers around the registers saved at the end of a thread's kernel stack;
/// prints those that are misjudged.
const PROGRAM: &str = r#"
#include <stdbool.h>
#include <stdio.h>
#define __attribute__(attributes)
typedef long long __s64;
typedef unsigned long long __u64;
#include "arch_x86.bpf.h"

int main(void)
{
    __u64 saved = 0xffffc90000003f58;
    struct { const char *what; __u64 sp; bool is_unsaved; } cases[] = {
        {"on the user's stack, at the start of a system call", 0x7ffc12345678, true},
        {"nothing pushed yet", saved + sizeof(struct user_regs), true},
        {"r11 pushed", saved + 6 * 8, true},
        {"all but r15 pushed", saved + 8, true},
        {"all pushed", saved, false},
        {"deep in a system call", saved - 0x800, false},
        {"above all of this stack", saved + 0x1000, false},
        {"on the stack on which an interrupt begins", 0xfffffe0000002fd8, true},
        {"on the stack of a CPU's interrupts", 0xffffc900001c8f80, false},
    };
    for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        if (ARE_REGS_UNSAVED(cases[i].sp, saved) != cases[i].is_unsaved)
            printf("%s\n", cases[i].what);
    return 0;
}
"#;

/// Check that registers are taken if the kernel has saved all of them, and not otherwise.
#[test]
fn registers_are_believed_once_they_are_saved() {
    let dir = tempfile::tempdir().expect("a folder");
    let (source, program) = (dir.path().join("program.c"), dir.path().join("program"));
    std::fs::write(&source, PROGRAM).expect("the folder is there");
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bpf");
    let mut compiler = Command::new("cc");
    compiler.arg("-I").arg(headers).arg("-o").arg(&program).arg(&source);
    assert!(compiler.status().expect("a C compiler").success());
    let ran = Command::new(&program).output().expect("it was just built");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "");
    assert!(ran.status.success());
}
