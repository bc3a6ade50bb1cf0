/*
 * Stops itself in a function whose callers it knows, and writes what a profiler would have recorded there to files.
 *
 * Every function on the way records its return address. `int3` in the last one raises SIGTRAP. Its handler runs on an
 * alternate stack, so that the interrupted stack is unchanged, and sees all registers.
 *
 * usage: program DIRECTORY CASE DEPTH
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <ucontext.h>
#include <unistd.h>

#define NOTE() (truth[truths++] = (uint64_t)__builtin_return_address(0))
#define INNERMOST __attribute__((noinline, noclone, noipa))

static uint64_t truth[4096];
static size_t truths;
static char alternate[1 << 16];
volatile int sink;

static void save(const char *name, const void *bytes, size_t len)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || write(fd, bytes, len) != (ssize_t)len || close(fd))
		_exit(10);
}

static uint64_t save_maps(uint64_t sp)
{
	static char text[1 << 20];
	int fd = open("/proc/self/maps", O_RDONLY);
	size_t len = 0;
	ssize_t got;
	uint64_t stack_end = 0;

	while ((got = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += got;
	save("maps", text, len);
	for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		char *rest;
		uint64_t start = strtoull(line, &rest, 16);
		uint64_t end = strtoull(rest + 1, NULL, 16);

		if (start <= sp && sp < end)
			stack_end = end;
		if (start == getauxval(AT_SYSINFO_EHDR))
			save("vdso", (void *)start, end - start);
	}
	return stack_end;
}

static void handler(int signo, siginfo_t *info, void *context)
{
	greg_t *gregs = ((ucontext_t *)context)->uc_mcontext.gregs;
	/* DWARF order: x86-64 psABI fig. 3.36 */
	static const int order[17] = {
		REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
		REG_R9,	 REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP,
	};
	uint64_t regs[17];
	uint64_t sp = gregs[REG_RSP];

	(void)signo, (void)info;
	for (int i = 0; i < 17; i++)
		regs[i] = gregs[order[i]];
	save("regs", regs, sizeof(regs));
	save("stack", (void *)sp, save_maps(sp) - sp);
	save("truth", truth, truths * sizeof(*truth));
	_exit(0);
}

INNERMOST void leaf(int n)
{
	NOTE();
	asm volatile("int3");
	sink = n;
}

INNERMOST void recurse(int n)
{
	/* A frame of changing shape: several registers saved, some of the stack used. */
	volatile char local[40];

	NOTE();
	local[n % 40] = n;
	if (n == 0)
		leaf(n);
	else
		recurse(n - 1);
	sink += local[n % 40];
}

/* The instruction after `ud2` is never reached: the handler of SIGILL stops in `leaf`. */
static void on_illegal(int signo)
{
	NOTE();
	leaf(signo);
	sink++;
}

INNERMOST void interrupted(int n)
{
	NOTE();
	asm volatile("lea 1f(%%rip), %%rax\n"
		     "	mov %%rax, %0\n"
		     "1:	ud2"
		     : "=m"(truth[4095])
		     :
		     : "rax");
	sink = n;
}

INNERMOST void into_nothing(int n)
{
	extern void no_information(int n);

	NOTE();
	no_information(n);
	sink = n;
}

INNERMOST void into_evil(int n)
{
	extern void evil(int n);

	NOTE();
	evil(n);
	sink = n;
}

asm(".text\n"
    ".globl no_information\n"
    ".type no_information, @function\n"
    "no_information:\n"
    "	sub $8, %rsp\n"
    "	call leaf\n"
    "	add $8, %rsp\n"
    "	ret\n"
    ".size no_information, . - no_information\n"
    /* DW_CFA_def_cfa_expression, 3 bytes: DW_OP_skip -3, which jumps to itself. */
    ".globl evil\n"
    ".type evil, @function\n"
    "evil:\n"
    "	.cfi_startproc\n"
    "	.cfi_escape 0x0f, 0x03, 0x2f, 0xfd, 0xff\n"
    "	sub $8, %rsp\n"
    "	call leaf\n"
    "	add $8, %rsp\n"
    "	ret\n"
    "	.cfi_endproc\n"
    ".size evil, . - evil\n");

int main(int argc, char **argv)
{
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof(alternate) };
	struct sigaction trap = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	struct sigaction illegal = { .sa_handler = on_illegal };
	const char *name = argc == 4 ? argv[2] : "";
	int depth = argc == 4 ? atoi(argv[3]) : 0;

	if (argc != 4 || chdir(argv[1]) || sigaltstack(&stack, NULL) || sigaction(SIGTRAP, &trap, NULL) ||
	    sigaction(SIGILL, &illegal, NULL))
		return 2;
	NOTE();
	if (!strcmp(name, "recursion"))
		recurse(depth);
	else if (!strcmp(name, "signal"))
		interrupted(depth);
	else if (!strcmp(name, "no_information"))
		into_nothing(depth);
	else if (!strcmp(name, "evil"))
		into_evil(depth);
	sink++;
	return 3;
}
