/*
 * begin < coroutine < burn, on a stack that assembly went over to; `main` is on another. `begin_with_end` has rows that say
 * that it has no caller, `begin_without_rows` has none.
 */
#include "program.h"

static char stack[1 << 16] __attribute__((aligned(16)));

NOINLINE void burn(void)
{
	work(FOREVER);
}

void coroutine(void);
void coroutine(void)
{
	burn();
	NO_TAIL_CALL();
}

void begin_with_end(void);
void begin_without_rows(void);
void go_over(void *top, void (*begin)(void));

__asm__(".text\n"
	".type go_over, @function\n"
	"go_over: .cfi_startproc\n"
	"	push %rbp\n"
	"	.cfi_def_cfa_offset 16\n"
	"	.cfi_offset %rbp, -16\n"
	"	mov %rsp, %rbp\n"
	"	.cfi_def_cfa_register %rbp\n"
	"	mov %rdi, %rsp\n"
	"	call *%rsi\n"
	"	mov %rbp, %rsp\n"
	"	pop %rbp\n"
	"	.cfi_def_cfa %rsp, 8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size go_over, . - go_over\n"
	".type begin_with_end, @function\n"
	"begin_with_end: .cfi_startproc\n"
	"	.cfi_undefined %rip\n"
	"	sub $8, %rsp\n"
	"	.cfi_def_cfa_offset 16\n"
	"	call coroutine\n"
	"	add $8, %rsp\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size begin_with_end, . - begin_with_end\n"
	".type begin_without_rows, @function\n"
	"begin_without_rows:\n"
	"	sub $8, %rsp\n"
	"	call coroutine\n"
	"	add $8, %rsp\n"
	"	ret\n"
	".size begin_without_rows, . - begin_without_rows\n");

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	go_over(stack + sizeof(stack), argc > 2 ? begin_without_rows : begin_with_end);
	return 0;
}
