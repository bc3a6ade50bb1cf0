# Two stacks and a switch between them by hand: push what a caller keeps, exchange stack pointers, return. With rows.
        .text
        .globl  main
        .type   main, @function
main:
        .cfi_startproc
        push    %rbx
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbx, -16
        lea     stack_end(%rip), %rax
        lea     coroutine(%rip), %rcx
        movq    $0, -8(%rax)
        mov     %rcx, -16(%rax)
        sub     $64, %rax
        mov     %rax, other(%rip)
        mov     $400, %ebx
1:      mov     $7, %edi
        call    fib
        call    switch_stacks
        dec     %ebx
        jnz     1b
        xor     %eax, %eax
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size   main, . - main

        .type   coroutine, @function
coroutine:
        .cfi_startproc
        .cfi_undefined %rip
        sub     $8, %rsp
        .cfi_adjust_cfa_offset 8
1:      mov     $5, %edi
        call    fib
        call    switch_stacks
        jmp     1b
        .cfi_endproc
        .size   coroutine, . - coroutine

        .type   switch_stacks, @function
switch_stacks:
        .cfi_startproc
        push    %rbp
        .cfi_adjust_cfa_offset 8
        push    %rbx
        .cfi_adjust_cfa_offset 8
        push    %r12
        .cfi_adjust_cfa_offset 8
        push    %r13
        .cfi_adjust_cfa_offset 8
        push    %r14
        .cfi_adjust_cfa_offset 8
        push    %r15
        .cfi_adjust_cfa_offset 8
        .cfi_rel_offset %rbp, 40
        .cfi_rel_offset %rbx, 32
        .cfi_rel_offset %r12, 24
        .cfi_rel_offset %r13, 16
        .cfi_rel_offset %r14, 8
        .cfi_rel_offset %r15, 0
        xchg    other(%rip), %rsp
        pop     %r15
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r15
        pop     %r14
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r14
        pop     %r13
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r13
        pop     %r12
        .cfi_adjust_cfa_offset -8
        .cfi_restore %r12
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbx
        pop     %rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore %rbp
        ret
        .cfi_endproc
        .size   switch_stacks, . - switch_stacks

        .type   fib, @function
fib:
        .cfi_startproc
        cmp     $2, %edi
        mov     %edi, %eax
        jb      1f
        push    %rdi
        .cfi_adjust_cfa_offset 8
        dec     %edi
        call    fib
        mov     (%rsp), %rdi
        mov     %rax, (%rsp)
        sub     $2, %edi
        call    fib
        pop     %rdi
        .cfi_adjust_cfa_offset -8
        add     %edi, %eax
1:      ret
        .cfi_endproc
        .size   fib, . - fib

        .bss
        .balign 16
        .skip   65536
stack_end:
other:  .skip   8
        .section .note.GNU-stack, "", @progbits
