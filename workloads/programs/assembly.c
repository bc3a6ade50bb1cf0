/*
 * main < outer < CASE < burn, where CASE is a function in assembly. The last one is a leaf itself:
 *
 * no_cfi        without any information
 * wrong_cfi     its row says that the return address is where 0x4141414141414141 was pushed
 * endless_cfi   its CFA is a DWARF expression that jumps to itself
 * no_cfi_leaf   main < outer < no_cfi_leaf: without any information and without a frame
 */
#include "program.h"

void no_cfi(void), wrong_cfi(void), endless_cfi(void), no_cfi_leaf(void);

NOINLINE __attribute__((used)) void burn(void)
{
	work(FOREVER);
}

__asm__(".text\n"
	".type no_cfi, @function\n"
	"no_cfi:\n"
	"	sub $8, %rsp\n"
	"	call burn\n"
	"	add $8, %rsp\n"
	"	ret\n"
	".size no_cfi, . - no_cfi\n"

	".type wrong_cfi, @function\n"
	"wrong_cfi:\n"
	"	.cfi_startproc\n"
	"	movabs $0x4141414141414141, %rax\n"
	"	push %rax\n"
	/* The row still says CFA = rsp + 8. */
	"	call burn\n"
	"	pop %rax\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size wrong_cfi, . - wrong_cfi\n"

	".type endless_cfi, @function\n"
	"endless_cfi:\n"
	"	.cfi_startproc\n"
	/* DW_CFA_def_cfa_expression, 3 bytes: DW_OP_skip -3 (DWARF 5 sections 6.4.2.2 and 2.5.1.5). */
	"	.cfi_escape 0x0f, 0x03, 0x2f, 0xfd, 0xff\n"
	"	sub $8, %rsp\n"
	"	call burn\n"
	"	add $8, %rsp\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size endless_cfi, . - endless_cfi\n"

	".type no_cfi_leaf, @function\n"
	"no_cfi_leaf:\n"
	"	mov stop(%rip), %eax\n"
	"	test %eax, %eax\n"
	"	je no_cfi_leaf\n"
	"	ret\n"
	".size no_cfi_leaf, . - no_cfi_leaf\n");

NOINLINE void outer(const char *name)
{
	if (!strcmp(name, "no_cfi"))
		no_cfi();
	else if (!strcmp(name, "wrong_cfi"))
		wrong_cfi();
	else if (!strcmp(name, "endless_cfi"))
		endless_cfi();
	else if (!strcmp(name, "no_cfi_leaf"))
		no_cfi_leaf();
	else
		exit(2);
	NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	outer(argc > 2 ? argv[2] : "");
	return 0;
}
