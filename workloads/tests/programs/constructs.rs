//! Tests that a program contains its construct, whatever the compiler's version.

use crate::binary::Binary;
use crate::program;

fn built(name: &str) -> Binary {
    Binary::build(program(name))
}

fn pushes_frame_pointer(instructions: &[String]) -> bool {
    instructions.iter().any(|instruction| instruction.starts_with("push") && instruction.ends_with("%rbp"))
}

/// Check that frame pointers are where the manifest relies on them, and missing only in leaf functions.
#[test]
fn frame_pointers_are_as_stated() {
    for name in ["leaf", "noreturn", "big_frame", "realigned", "tail_call", "no_cfi", "wrong_cfi", "endless_cfi"] {
        let binary = built(name);
        assert!(!pushes_frame_pointer(&binary.instructions("burn")), "{name}");
        assert!(pushes_frame_pointer(&binary.instructions("main")), "{name}");
    }
    for name in ["leaf_with_frame", "jit"] {
        let binary = built(name);
        for function in ["burn", "outer", "main"] {
            assert!(pushes_frame_pointer(&binary.instructions(function)), "{name} {function}");
        }
    }
    assert!(!pushes_frame_pointer(&built("no_eh_frame_hdr").instructions("mid")), "without the flag there are none");
}

/// Check that the call of a noreturn function is the last instruction, and that the next function begins after it.
#[test]
fn noreturn_call_is_last() {
    let binary = built("noreturn");
    assert!(binary.instructions("caller_ends_here").last().unwrap().contains("call"));
    let functions = binary.functions();
    let (this, next) = (functions["caller_ends_here"], functions["innocent_next"]);
    assert!(functions.values().all(|&address| address <= this || address >= next), "nothing between the two");
    let rows = binary.rows("caller_ends_here");
    assert!(rows.contains(&format!("..{next:016x}")), "no padding between the two: {rows}");
}

/// Check that `tailcaller` ends in a jump.
#[test]
fn tail_call_is_a_jump() {
    let instructions = built("tail_call").instructions("tailcaller");
    let is_jump = |instruction: &String| instruction.starts_with("jmp") && instruction.contains("<target>");
    assert!(instructions.iter().any(is_jump), "{instructions:?}");
    assert!(!instructions.iter().any(|instruction| instruction.contains("call")), "{instructions:?}");
}

/// Check that the CFA of `realigned` is an expression at its calls.
#[test]
fn realigned_has_an_expression() {
    let rows = built("realigned").rows("realigned");
    assert!(rows.lines().any(|row| row.split_whitespace().nth(1) == Some("exp")), "{rows}");
}

/// Check which assembly functions have rows, and that these are as stated.
#[test]
fn assembly_has_the_rows_stated() {
    let binary = built("no_cfi");
    assert!(!binary.has_rows("no_cfi", ".eh_frame") && !binary.has_rows("no_cfi_leaf", ".eh_frame"));
    assert!(binary.has_rows("burn", ".eh_frame") && binary.has_rows("outer", ".eh_frame"));
    let wrong = binary.rows("wrong_cfi");
    assert!(!wrong.contains("rsp+16"), "the row of the first instruction is that of all: {wrong}");
    assert!(binary.tool("readelf", &["--debug-dump=frames", "--wide"]).contains("DW_OP_skip: -3"));
}

/// Check which section has the rows, in the programs that are about that.
#[test]
fn rows_are_in_the_sections_stated() {
    let binary = built("no_eh_frame_hdr");
    assert!(!binary.headers().contains("GNU_EH_FRAME") && binary.has_rows("burn", ".eh_frame"));
    for name in ["debug_frame", "compressed_debug_frame"] {
        let binary = built(name);
        assert!(!binary.has_rows("burn", ".eh_frame") && binary.has_rows("burn", ".debug_frame"), "{name}");
        assert!(binary.headers().contains("GNU_EH_FRAME"), "{name}: the start files have rows");
    }
    let compressed = built("compressed_debug_frame").headers();
    let section = compressed.lines().find(|line| line.contains(".debug_frame")).unwrap();
    assert!(section.split_whitespace().any(|word| word == "C"), "{section}");
}

/// Check the file type of the programs that are about that.
#[test]
fn files_are_linked_as_stated() {
    let has = |name: &str, wanted: &[&str], unwanted: &[&str]| {
        let headers = built(name).headers();
        for text in wanted {
            assert!(headers.contains(text), "{name} has no {text}:\n{headers}");
        }
        for text in unwanted {
            assert!(!headers.contains(text), "{name} has {text}:\n{headers}");
        }
    };
    has("leaf", &["DYN (", "INTERP", ".symtab"], &[]);
    has("no_pie", &["EXEC (", "INTERP"], &[]);
    has("static_no_pie", &["EXEC (", ".eh_frame"], &["INTERP", "GNU_EH_FRAME"]);
    has("static_pie", &["DYN (", "Flags: PIE"], &["INTERP"]);
    // What the manifest states for musl depends on its start code having no rows.
    has("musl", &["INTERP", "ld-musl-x86_64.so.1"], &[]);
    has("musl_static", &[], &["INTERP", "GLIBC"]);
    has("stripped", &[".dynsym"], &[".symtab"]);
    has("plt", &["JMPREL"], &["BIND_NOW", "NOW "]);
    has("lazy_binding", &["JMPREL"], &["BIND_NOW", "NOW "]);
    assert!(built("lld").tool("readelf", &["--string-dump=.comment"]).contains("LLD"));
    assert!(built("lld").headers().lines().filter(|line| line.contains("LOAD ")).any(is_not_congruent));
}

/// Whether file offset and address of a program header differ.
fn is_not_congruent(line: &str) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    fields[1].trim_start_matches("0x").trim_start_matches('0')
        != fields[2].trim_start_matches("0x").trim_start_matches('0')
}
