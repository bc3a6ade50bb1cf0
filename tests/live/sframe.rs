//! The strategy `sframe` on programs for which the assembler wrote `.sframe` sections. Loads the real BPF program.

use crate::support::{assert_balance, compile, number, record, report};
use serde_json::Value;
use std::path::Path;

/// Ten frames without frame pointers, and its own start code: there is no library below.
const SOURCE: &str = r#"
static volatile long sum;

__attribute__((noinline)) static long leaf(long n)
{
	for (long i = 0; i < n; i++)
		sum += i;
	return sum;
}

__attribute__((noinline)) static long down(long depth)
{
	return depth ? down(depth - 1) + 1 : leaf(1000);
}

#ifdef HAS_LIBRARY
int main(void)
#else
__asm__(".globl _start\n_start:\n\tcall run\n\tmov %eax, %edi\n\tmov $60, %eax\n\tsyscall\n");

__attribute__((used)) static int run(void)
#endif
{
	for (long i = 0; i < 3000000; i++)
		down(10);
	return 0;
}
"#;

/// A report of the program, by call frame information and by `.sframe`.
fn by_both(dir: &Path, flags: &[&str]) -> Value {
    let (source, program, file) = (dir.join("down.c"), dir.join("down"), dir.join("down.fpprof"));
    std::fs::write(&source, SOURCE).expect("a temporary file is written");
    let flags = [&["-O2", "-fno-inline", "-fno-optimize-sibling-calls", "-Wa,--gsframe"], flags].concat();
    compile("gcc", &flags, &program, &source);
    record(&file, &["-F", "999", "--call-graph", "dwarf,16K"], &[program.to_str().expect("a path in UTF-8")]);
    let report = report(&file, &["--strategies", "dwarf,sframe"]);
    assert_balance(&report);
    report
}

/// Check that a program whose code all has `.sframe` rows is unwound by them to its root, with the same frames as by
/// call frame information.
#[test]
fn rows_give_the_same_stacks() {
    let dir = tempfile::tempdir().unwrap();
    let report = by_both(dir.path(), &["-nostdlib", "-static"]);
    let [dwarf, sframe] = ["dwarf", "sframe"].map(|name| &report["strategies"][name]);
    let samples = number(dwarf, "samples");
    assert!(samples > 100, "{report}");
    let complete = number(dwarf, "complete");
    assert!(complete * 100 >= samples * 99, "{dwarf}");
    assert_eq!(number(sframe, "complete"), complete, "{sframe}");
    let agreement = &report["agreements"][0];
    assert_eq!((&agreement["reference"], &agreement["other"]), (&"dwarf".into(), &"sframe".into()));
    assert_eq!(agreement["relations"], serde_json::json!({ "same": samples }), "{agreement}");
}

/// Check that stacks are truncated, with the reason, at a library without the section.
#[test]
fn stacks_end_in_libraries_without_the_section() {
    let dir = tempfile::tempdir().unwrap();
    let report = by_both(dir.path(), &["-DHAS_LIBRARY"]);
    let [dwarf, sframe] = ["dwarf", "sframe"].map(|name| &report["strategies"][name]);
    let samples = number(sframe, "samples");
    assert!(samples > 100 && number(dwarf, "complete") * 100 >= samples * 99, "{report}");
    assert!(number(&sframe["truncated"], "no_sframe") * 100 >= samples * 99, "{sframe}");
}
