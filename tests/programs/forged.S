/* main calls forge calls burn. A wrong row takes for the return address of forge what it has pushed: an address in main
   that no call stands before. */
.globl main
.text
.type main,@function
main:
	.cfi_startproc
	sub $8,%rsp
	.cfi_def_cfa_offset 16
	call forge
	xor %eax,%eax
	add $8,%rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
.size main,.-main
.type forge,@function
forge:
	.cfi_startproc
	lea main(%rip),%rax
	add $1,%rax
	push %rax
	/* The row does not know of the push: the return address is taken from it. */
	call burn
	pop %rax
	ret
	.cfi_endproc
.size forge,.-forge
.type burn,@function
burn:
	.cfi_startproc
	mov $3000000000,%rcx
1:	dec %rcx
	jnz 1b
	ret
	.cfi_endproc
.size burn,.-burn
.section .note.GNU-stack,"",@progbits
