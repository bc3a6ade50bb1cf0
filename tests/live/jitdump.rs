//! Names from jitdump files of code compiled at run time, each valid at its time. Loads the real BPF program.

use crate::support::{Ran, assert_balance, compile, fpprof, number, ran, record, report};
use std::path::{Path, PathBuf};

/// `jitdump unwinding` writes call frame information for code that moves its stack pointer. `jitdump KIND` compiles
/// `first`, runs it, compiles `second` at the same address, moves it, and runs it there. It writes this to a dump of a
/// KIND that should or should not be read, and ends before the recorder does.
const SOURCE: &str = r#"
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static FILE *dump;

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void put(const void *bytes, size_t n)
{
	if (fwrite(bytes, 1, n, dump) != n)
		exit(1);
}

static void prefix(uint32_t kind, size_t body)
{
	uint32_t words[] = { kind, 16 + body };
	uint64_t time = now();

	put(words, sizeof(words));
	put(&time, sizeof(time));
}

static void load(const char *code, size_t n, uint64_t index, const char *name)
{
	uint32_t ids[] = { getpid(), gettid() };
	uint64_t fields[] = { (uintptr_t)code, (uintptr_t)code, n, index };

	prefix(0, sizeof(ids) + sizeof(fields) + strlen(name) + 1 + n);
	put(ids, sizeof(ids));
	put(fields, sizeof(fields));
	put(name, strlen(name) + 1);
	put(code, n);
}

static void moved(const char *from, const char *to, size_t n, uint64_t index)
{
	uint32_t ids[] = { getpid(), gettid() };
	uint64_t fields[] = { (uintptr_t)to, (uintptr_t)from, (uintptr_t)to, n, index };

	prefix(1, sizeof(ids) + sizeof(fields));
	put(ids, sizeof(ids));
	put(fields, sizeof(fields));
}

/* A common entry (CFA = rsp + 8, return address at CFA - 8), and one for code that has 24 bytes more from its fifth on. */
static void unwinding(uint32_t n)
{
	uint32_t mapped = (n + 7) & ~7;
	uint64_t sizes[] = { 48, 0, 64 };
	unsigned char frames[48] = {
		20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
		16, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, n, 0, 0, 0, 0, 0x44, 0x0e, 32,
	};
	int32_t to_code = -(int32_t)(mapped + 32);

	memcpy(frames + 32, &to_code, sizeof(to_code));
	prefix(4, sizeof(sizes) + sizeof(frames));
	put(sizes, sizeof(sizes));
	put(frames, sizeof(frames));
}

static void run_with_unwinding(char *code)
{
	/* sub $24, %rsp; mov $1000000000, %ecx; 1: dec %ecx; jnz 1b; add $24, %rsp; ret */
	static const unsigned char bytes[] = {
		0x48, 0x83, 0xec, 24, 0xb9, 0x00, 0xca, 0x9a, 0x3b, 0xff, 0xc9, 0x75, 0xfc, 0x48, 0x83, 0xc4, 24, 0xc3,
	};

	memcpy(code, bytes, sizeof(bytes));
	unwinding(sizeof(bytes));
	load(code, sizeof(bytes), 1, "first");
	((void (*)(void))code)();
}

static void run(const char *code)
{
	((void (*)(void))code)();
}

/* Whether the recorder, which started this, has the file open. */
static int recorder_has(const char *path)
{
	char fds[64], fd[320], target[64];
	struct dirent *entry;
	int has = 0;
	DIR *dir;

	snprintf(fds, sizeof(fds), "/proc/%d/fd", getppid());
	if (!(dir = opendir(fds)))
		exit(1);
	while (!has && (entry = readdir(dir))) {
		snprintf(fd, sizeof(fd), "%s/%s", fds, entry->d_name);
		has = readlink(fd, target, sizeof(target)) > 0 && !strncmp(target, path, strlen(path));
	}
	closedir(dir);
	return has;
}

int main(int argc, char **argv)
{
	/* mov $200000000, %ecx; 1: dec %ecx; jnz 1b; ret */
	static const unsigned char bytes[] = { 0xb9, 0x00, 0xc2, 0xeb, 0x0b, 0xff, 0xc9, 0x75, 0xfc, 0xc3 };
	char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const char *kind = argc == 2 ? argv[1] : "";
	uint32_t header[] = { 0x4a695444, 1, 40, 62, 0, getpid(), 0, 0, 0, 0 };
	char path[64];
	void *mark;

	snprintf(path, sizeof(path), "/tmp/jit-%d.dump", getpid());
	if (code == MAP_FAILED || !(dump = fopen(path, "w+")))
		return 1;
	if (!strcmp(kind, "owner") && fchown(fileno(dump), 65534, 65534))
		return 1;
	if (!strcmp(kind, "magic"))
		header[0]++;
	if (!strcmp(kind, "ticks"))
		header[8] = 1;
	if (strcmp(kind, "empty"))
		put(header, sizeof(header));
	if (fflush(dump))
		return 1;
	mark = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0);
	if (mark == MAP_FAILED)
		return 1;
	if (!strcmp(kind, "fifo") && (munmap(mark, 4096) || unlink(path) || mkfifo(path, 0666)))
		return 1;
	if (!strcmp(kind, "deleted") && unlink(path))
		return 1;
	if (!strcmp(kind, "empty") || !strcmp(kind, "fifo")) {
		if (!strcmp(kind, "fifo") && ftruncate(fileno(dump), 0))
			return 1;
		run(memcpy(code, bytes, sizeof(bytes)));
		puts(path);
		return 0;
	}
	if (!strcmp(kind, "unwinding")) {
		run_with_unwinding(code);
		puts(path);
		return fclose(dump) != 0;
	}
	memcpy(code, bytes, sizeof(bytes));
	if (!strcmp(kind, "huge") || !strcmp(kind, "short")) {
		uint32_t words[] = { 0, kind[0] == 'h' ? UINT32_MAX : 15 };

		load(code, sizeof(bytes), 1, "told_before");
		put(words, sizeof(words));
	}
	load(code, sizeof(bytes), 1, "first; of all");
	run(code);
	load(code, sizeof(bytes), 2, "second");
	run(code);
	memcpy(code + 1024, bytes, sizeof(bytes));
	moved(code, code + 1024, sizeof(bytes), 2);
	load(code, sizeof(bytes), 3, "third");
	run(code + 1024);
	if (!strcmp(kind, "cut"))
		put("cut", 3);
	if (fclose(dump))
		return 1;
	/* Nobody could open it any more. */
	while (!strcmp(kind, "deleted") && !recorder_has(path))
		usleep(10000);
	puts(path);
	return 0;
}
"#;

fn program(dir: &Path) -> PathBuf {
    let (source, program) = (dir.join("jitdump.c"), dir.join("jitdump"));
    std::fs::write(&source, SOURCE).expect("a temporary file is written");
    compile("gcc", &["-D_GNU_SOURCE", "-O1"], &program, &source);
    program
}

/// A recording of the program, whose dump is deleted, and its report. Frame pointers are not followed, since C
/// libraries differ in whether they keep them.
fn recorded(dir: &Path, kind: &str) -> (Ran, serde_json::Value) {
    let (program, file) = (program(dir), dir.join("jit.fpprof"));
    let recorded = record(&file, &["-F", "999"], &[program.to_str().expect("a path in UTF-8"), kind]);
    let path = recorded.stdout.lines().find(|line| line.starts_with("/tmp/jit-"));
    let removed = std::fs::remove_file(path.unwrap_or_else(|| panic!("{}", recorded.stderr)));
    assert_eq!(removed.is_err(), kind == "deleted", "the dump is there");
    let report = report(&file, &["--fallback", "none"]);
    assert_balance(&report);
    (recorded, report)
}

/// Samples of the function with that name.
fn samples(report: &serde_json::Value, name: &str) -> u64 {
    let hottest = report["hottest"].as_array().expect("functions");
    let of_name = hottest.iter().filter(|function| function["name"] == name && function["module"] == "[jit]");
    of_name.map(|function| number(function, "self_samples")).sum()
}

/// Check that functions at one address at different times each have their name and their samples, that a moved function
/// has its name at both places, and that one that never ran has no samples; also if the file is deleted while it is
/// written; and that a name cannot break a line of the folded stacks.
#[test]
fn names_are_those_of_the_time() {
    for kind in ["file", "deleted"] {
        let dir = tempfile::tempdir().unwrap();
        let (ran_, report) = recorded(dir.path(), kind);
        assert!(!ran_.stderr.contains("JIT symbols") && !ran_.stderr.contains("jitdump"), "{kind}: {}", ran_.stderr);
        let (first, second) = (samples(&report, "first; of all"), samples(&report, "second"));
        let all = number(&report, "recorded");
        assert!(first * 5 > all && second * 5 > all * 2 && second > first, "{kind}: {report}");
        assert_eq!(samples(&report, "third"), 0, "{kind}: {report}");
        let folded = ran(fpprof().args(["export", "--strategy", "fp"]).arg(dir.path().join("jit.fpprof"))).stdout;
        assert!(folded.lines().any(|line| line.contains(";first: of all ")), "{kind}: {folded}");
        assert!(folded.lines().any(|line| line.contains(";second ")), "{kind}: {folded}");
    }
}

/// Check that stacks continue through code for which its program wrote call frame information, and end in code without.
#[test]
fn call_frame_information_of_dumps_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (_, report) = recorded(dir.path(), "unwinding");
    let dwarf = &report["strategies"]["dwarf"];
    let (samples, complete) = (number(dwarf, "samples"), number(dwarf, "complete"));
    assert!(samples > 50 && complete * 100 >= samples * 98 && number(dwarf, "fp_in_jit") == 0, "{dwarf}");
    let folded = ran(fpprof().args(["export"]).arg(dir.path().join("jit.fpprof"))).stdout;
    assert!(folded.lines().any(|line| line.contains(";main;") && line.contains(";first ")), "{folded}");
    let dir = tempfile::tempdir().unwrap();
    let (_, report) = recorded(dir.path(), "file");
    let dwarf = &report["strategies"]["dwarf"];
    assert!(number(dwarf, "complete") * 2 < number(dwarf, "samples"), "{dwarf}");
}

/// Check that the kernel does not follow frame pointers in code of a dump: its walks are given up, and the copied stacks
/// are complete by the dump's call frame information.
#[test]
fn code_of_dumps_is_not_walked_by_frame_pointers() {
    let dir = tempfile::tempdir().unwrap();
    let (program, file) = (program(dir.path()), dir.path().join("jit.fpprof"));
    let command = [program.to_str().expect("a path in UTF-8"), "unwinding"];
    let ran = record(&file, &["-F", "1999", "--call-graph", "cfi,verify=1"], &command);
    std::fs::remove_file(ran.stdout.trim()).expect("the dump is there");
    let report = report(&file, &[]);
    assert_balance(&report);
    let (cfi, walks) = (&report["strategies"]["cfi"], &report["kernel_walks"]);
    let (samples, complete) = (number(cfi, "samples"), number(cfi, "complete"));
    assert!(samples > 50 && complete * 100 >= samples * 98 && number(cfi, "fp_in_jit") == 0, "{report}");
    assert!(number(walks, "different") == 0 && number(&walks["misses"], "no_file") * 2 > samples, "{report}");
}

/// Check that a dump with an incomplete last record has all names before it, that one with a record of impossible
/// length has the names before that, and that both are reported.
#[test]
fn broken_dumps_have_names_up_to_there() {
    for (kind, has_names) in [("cut", true), ("huge", false), ("short", false)] {
        let dir = tempfile::tempdir().unwrap();
        let (ran, report) = recorded(dir.path(), kind);
        assert!(ran.stderr.contains("1 jitdumps (jit-PID.dump) were read in part"), "{}", ran.stderr);
        let name = if has_names { "second" } else { "told_before" };
        assert!(samples(&report, name) * 5 > number(&report, "recorded") * 2, "{kind}: {report}");
        assert_eq!(samples(&report, "first; of all") > 0, has_names, "{kind}: {report}");
    }
}

/// Check that a file that is not a dump, or does not belong to its program's user or root, is not read, does not block,
/// and is reported; the code then has no name.
#[test]
fn strange_dumps_are_refused() {
    for kind in ["owner", "magic", "empty", "fifo"] {
        let dir = tempfile::tempdir().unwrap();
        let (ran, report) = recorded(dir.path(), kind);
        // The look for a perf map may take too long on a busy machine, and then it counts as well.
        let is_counted = |n: u64| ran.stderr.contains(&format!("{n} files with JIT symbols"));
        assert!(is_counted(1) || is_counted(2), "{kind}: {}", ran.stderr);
        let all = number(&report, "recorded");
        assert!(samples(&report, "[unnamed]") * 2 > all && samples(&report, "first; of all") == 0, "{kind}: {report}");
        let dwarf = &report["strategies"]["dwarf"];
        assert!(number(&dwarf["truncated"], "no_module") * 2 > number(&report, "recorded"), "{kind}: {dwarf}");
    }
}

/// Check that timestamps of a hardware counter are not mistaken for times of the recording, with a message: the last
/// name of an address is used.
#[test]
fn times_of_other_clocks_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (_, report) = recorded(dir.path(), "ticks");
    assert!(report["warnings"].to_string().contains("uses an unknown clock"), "{report}");
    assert_eq!(samples(&report, "first; of all"), 0, "{report}");
    assert!(samples(&report, "third") > samples(&report, "second"), "{report}");
}
