; A program without a library, without rows, with frame pointers in all functions but the leaf.
        global  _start
        section .text
_start: xor     ebp, ebp
        mov     r12d, 30
again:  mov     edi, 8
        call    fib
        dec     r12d
        jnz     again
        mov     eax, 60
        xor     edi, edi
        syscall
fib:    push    rbp
        mov     rbp, rsp
        mov     eax, edi
        cmp     edi, 2
        jb      done
        push    rbx
        push    rdi
        lea     edi, [rdi - 1]
        call    fib
        mov     ebx, eax
        mov     rdi, [rsp]
        lea     edi, [rdi - 2]
        call    fib
        call    add_up
        pop     rdi
        pop     rbx
done:   pop     rbp
        ret
add_up: add     eax, ebx
        ret
