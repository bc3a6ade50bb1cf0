//! Code that a program compiles while it runs has names in the report. Loads the real BPF program.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use support::{fpprof, number, ran, record, report};

/// Counts down in code made at run time, and says its name as compilers do; ends before the recorder does.
const SOURCE: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void)
{
	/* mov $200000000, %ecx; 1: dec %ecx; jnz 1b; ret */
	static const unsigned char bytes[] = { 0xb9, 0x00, 0xc2, 0xeb, 0x0b, 0xff, 0xc9, 0x75, 0xfc, 0xc3 };
	char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char path[64];
	FILE *map;

	if (code == MAP_FAILED)
		return 1;
	memcpy(code, bytes, sizeof(bytes));
	if (mprotect(code, 4096, PROT_READ | PROT_EXEC))
		return 1;
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	if (!(map = fopen(path, "w")))
		return 1;
	fprintf(map, "%lx %zx moved\n%lx %zx LazyCompile:*count; down\nnonsense\n",
		(unsigned long)code, sizeof(bytes), (unsigned long)code, sizeof(bytes));
	fclose(map);
	((void (*)(void))code)();
	puts(path);
	return 0;
}
"#;

fn program(dir: &Path) -> PathBuf {
    let (source, program) = (dir.join("jit.c"), dir.join("jit"));
    std::fs::write(&source, SOURCE).expect("a temporary file is written");
    let status = Command::new("gcc").args(["-O1", "-o"]).arg(&program).arg(&source).status().expect("gcc runs");
    assert!(status.success());
    program
}

/// Check that compiled code is named by the last line its program wrote for it, after the program and its table are
/// gone, and that the name cannot break a line of the folded stacks.
#[test]
fn compiled_code_has_names() {
    let dir = tempfile::tempdir().unwrap();
    let (program, file) = (program(dir.path()), dir.path().join("jit.fpprof"));
    let recorded = record(&file, &["-F", "999"], &[program.to_str().unwrap()]);
    let path =
        recorded.stdout.lines().find(|line| line.starts_with("/tmp/perf-")).expect("the program printed its table");
    std::fs::remove_file(path).unwrap();
    let report = report(&file, &[]);
    let hottest = &report["hottest"][0];
    assert_eq!(
        (&hottest["name"], &hottest["module"]),
        (&"LazyCompile:*count; down".into(), &"[jit]".into()),
        "{report}"
    );
    assert!(number(hottest, "self_samples") * 2 > number(&report, "recorded"), "{report}");
    let folded = ran(fpprof().args(["export", "--strategy", "fp"]).arg(&file)).stdout;
    assert!(folded.lines().any(|line| line.contains(";LazyCompile:*count: down ")), "{folded}");
}
