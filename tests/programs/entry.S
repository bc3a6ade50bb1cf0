/* _start calls outer calls mid calls burn, with frame pointers and without rows, in less than 128 bytes. */
.globl _start
.text
.type _start,@function
_start:
	xor %ebp,%ebp
	call outer
	mov $60,%eax
	xor %edi,%edi
	syscall
.type outer,@function
outer:	push %rbp
	mov %rsp,%rbp
	call mid
	pop %rbp
	ret
.type mid,@function
mid:	push %rbp
	mov %rsp,%rbp
	call burn
	pop %rbp
	ret
.type burn,@function
burn:	push %rbp
	mov %rsp,%rbp
	mov $4000000000,%rcx
1:	dec %rcx
	jnz 1b
	pop %rbp
	ret
.section .note.GNU-stack,"",@progbits
