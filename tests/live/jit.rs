//! Names of code that a program compiles at run time. Loads the real BPF program.

use crate::support::{
    Ended, Ran, compile, copy_program, cpu_time, fpprof, number, ran, record, report, until_enough, wait_until,
};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// `jit KIND NAME` counts down in code generated at run time. It writes the name as compilers do, to a table that is a
/// file, or something of another KIND that must not be read; if KIND is `none`, it writes no table and runs repeatedly.
/// It ends before the recorder does.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	/* mov $1000000000, %ecx; 1: dec %ecx; jnz 1b; ret: longer than the recorder looks away, which is 0.1 s */
	static const unsigned char bytes[] = { 0xb9, 0x00, 0xca, 0x9a, 0x3b, 0xff, 0xc9, 0x75, 0xfc, 0xc3 };
	char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char path[64], elsewhere[] = "/tmp/table-XXXXXX";
	const char *kind = argv[1];
	FILE *map;

	if (argc != 3 || code == MAP_FAILED)
		return 1;
	memcpy(code, bytes, sizeof(bytes));
	if (mprotect(code, 4096, PROT_READ | PROT_EXEC))
		return 1;
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	if (!strcmp(kind, "fifo")) {
		if (mkfifo(path, 0666))
			return 1;
	} else if (strcmp(kind, "none")) {
		if (!strcmp(kind, "link") && symlink(mktemp(elsewhere), path))
			return 1;
		if (!(map = fopen(path, "w")))
			return 1;
		if (!strcmp(kind, "long")) {
			fprintf(map, "%lx %zx ", (unsigned long)code, sizeof(bytes));
			for (int i = 0; i < 10000000; i++)
				fputc('x', map);
			fputc('\n', map);
		}
		fprintf(map, "%lx %zx moved\n%lx %zx %s\nnonsense\n", (unsigned long)code, sizeof(bytes),
			(unsigned long)code, sizeof(bytes), argv[2]);
		if (fclose(map) || (!strcmp(kind, "owner") && chown(path, 65534, 65534)) ||
		    (!strcmp(kind, "huge") && truncate(path, 65L << 20)) ||
		    (!strcmp(kind, "sparse") && truncate(path, 10L << 30)))
			return 1;
	}
	do
		((void (*)(void))code)();
	while (!strcmp(kind, "none"));
	puts(path);
	if (!strcmp(kind, "link"))
		puts(elsewhere);
	return 0;
}
"#;

pub(crate) fn program(dir: &Path) -> PathBuf {
    let (source, program) = (dir.join("jit.c"), dir.join("jit"));
    std::fs::write(&source, SOURCE).expect("a temporary file is written");
    compile("gcc", &["-O1"], &program, &source);
    program
}

/// Removes the files that the program says it created.
fn remove_tables(recorded: &Ran) {
    let mut tables = recorded.stdout.lines().filter(|line| line.starts_with("/tmp/")).peekable();
    assert!(tables.peek().is_some(), "the program printed its table: {}", recorded.stderr);
    tables.for_each(|path| std::fs::remove_file(path).expect("the table is there"));
}

/// Check that compiled code has the last name its program wrote for it, after the program and its table are gone, and
/// that the name cannot break a line of the folded stacks.
#[test]
fn compiled_code_has_names() {
    let dir = tempfile::tempdir().unwrap();
    let (program, file) = (program(dir.path()), dir.path().join("jit.fpprof"));
    let recorded = record(&file, &["-F", "999"], &[program.to_str().unwrap(), "file", "LazyCompile:*count; down"]);
    remove_tables(&recorded);
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

/// Check that hostile names with terminal sequences, line breaks or markup are harmless in every report.
#[test]
fn hostile_names_are_only_names() {
    let dir = tempfile::tempdir().unwrap();
    let (program, file) = (program(dir.path()), dir.path().join("jit.fpprof"));
    let hostile = "\u{1b}[31m</script><img src=x onerror=1>\u{202e};[truncated: no]\u{7} 42";
    let recorded = record(&file, &["-F", "999"], &[program.to_str().unwrap(), "file", hostile]);
    remove_tables(&recorded);
    assert_eq!(report(&file, &[])["hottest"][0]["name"], hostile, "JSON has the name itself");
    let printed = |args: &[&str]| {
        let ran = ran(fpprof().args(args).arg(&file));
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        ran.stdout
    };
    let (text, folded) = (printed(&["report"]), printed(&["export", "--strategy", "fp"]));
    for text in [&text, &folded] {
        assert!(text.contains("onerror=1") && !text.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{text}");
    }
    let named = |line: &&str| line.contains("onerror=1");
    for line in folded.lines().filter(named) {
        let (frames, n) = line.rsplit_once(' ').expect("a count");
        assert!(n.parse::<u64>().is_ok() && !frames.contains(";[truncated: no]"), "{line}");
    }
    for page in [printed(&["flamegraph", "-o", "-"]), printed(&["report", "--html", "-"])] {
        assert!(page.contains("onerror=1") && !page.contains("<img") && !page.contains(['\u{1b}', '\u{202e}']));
    }
}

/// Check that reading a table stops at a name of ten megabytes, with a message, and that every report has its usual
/// size.
#[test]
fn a_name_of_ten_megabytes_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (program, file) = (program(dir.path()), dir.path().join("jit.fpprof"));
    let recorded = record(&file, &["-F", "999"], &[program.to_str().unwrap(), "long", "behind"]);
    remove_tables(&recorded);
    assert!(recorded.stderr.contains("1 files with JIT symbols"), "{}", recorded.stderr);
    for args in [&["report"][..], &["export"], &["flamegraph", "-o", "-"], &["report", "--html", "-"]] {
        let ran = ran(fpprof().args(args).arg(&file));
        assert_eq!(ran.status, 0, "{args:?}: {}", ran.stderr);
        assert!(ran.stdout.len() < 2_000_000 && !ran.stdout.contains("xxxx"), "{args:?}: {} bytes", ran.stdout.len());
    }
}

/// Check that a table that is not a file of its program's user, or is too large, is not read, does not block, and is
/// reported; the code then has no name.
#[test]
fn strange_tables_are_refused() {
    for kind in ["owner", "fifo", "link", "huge", "sparse"] {
        let dir = tempfile::tempdir().unwrap();
        let (program, file) = (program(dir.path()), dir.path().join("jit.fpprof"));
        let recorded = record(&file, &["-F", "999"], &[program.to_str().unwrap(), kind, "stranger"]);
        remove_tables(&recorded);
        assert!(recorded.stderr.contains("1 files with JIT symbols"), "{kind}: {}", recorded.stderr);
        let report = report(&file, &["--fallback", "none"]);
        let hottest = report["hottest"].to_string();
        assert!(!hottest.contains("stranger"), "{kind}: {hottest}");
        let dwarf = &report["strategies"]["dwarf"];
        assert!(number(&dwarf["truncated"], "no_module") * 2 > number(&report, "recorded"), "{kind}: {dwarf}");
    }
}

/// Check that a user who mounts a file over his program's table, as he can in a user namespace, cannot make the
/// recorder read it: neither a file of root's, nor any other.
#[test]
fn files_mounted_over_a_table_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (program, file) = (program(dir.path()), dir.path().join("jit.fpprof"));
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "1000 10 secret\n").unwrap();
    let set_mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    set_mode(dir.path(), 0o755);
    set_mode(&secret, 0o600);
    let script = format!(
        "touch /tmp/perf-$$.map && mount --bind {} /tmp/perf-$$.map && exec {} none x",
        secret.display(),
        program.display()
    );
    for user in ["65534", "0"] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups", "unshare", "-Urm", "sh", "-c", &script]);
        let running = Ended(command.spawn().expect("setpriv is there"));
        let pid = running.id().to_string();
        let comm = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        wait_until("compiled code runs", || comm() == "jit\n" && cpu_time(&pid) > Duration::from_millis(50));
        let recorded = until_enough("samples", |seconds| {
            let seconds = seconds.to_string();
            let recorded =
                ran(fpprof().args(["record", "-F", "999", "-p", &pid, "--duration", &seconds, "-o"]).arg(&file));
            (number(&report(&file, &[]), "recorded") > 0).then_some(recorded)
        });
        drop(running);
        std::fs::remove_file(format!("/tmp/perf-{pid}.map")).expect("the table is there");
        assert!(recorded.stderr.contains("1 files with JIT symbols"), "{user}: {}", recorded.stderr);
    }
}

/// Check that a program in a pid and mount namespace, with another pid inside, gets its names from the table of that
/// pid in its own `/tmp`.
#[test]
fn tables_in_namespaces_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let (program, file) = (program(dir.path()), dir.path().join("jit.fpprof"));
    let inner = dir.path().join("tmp");
    std::fs::create_dir(&inner).unwrap();
    copy_program(&program, &inner.join("jit"));
    let script = format!("mount --bind {} /tmp && /tmp/jit file inside_namespace; true", inner.display());
    record(&file, &["-F", "999"], &["unshare", "-p", "-f", "-m", "--mount-proc", "sh", "-c", &script]);
    let report = report(&file, &[]);
    assert_eq!(report["hottest"][0]["name"], "inside_namespace", "{report}");
}
