/* Handlers within handlers, on the same stack and on another, left by return and by siglongjmp. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static sigjmp_buf back;
static volatile long total;

__attribute__((noinline)) static int fib(int n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static void inner(int signal)
{
    total += fib(signal % 5 + 2);
}

static void outer(int signal)
{
    total += fib(4);
    raise(SIGUSR2);
    if (total % 3 == 0)
        siglongjmp(back, signal);
}

__attribute__((noinline)) static void raise_below(int depth)
{
    if (depth)
        raise_below(depth - 1);
    else
        raise(SIGUSR1);
    total++;
}

int main(void)
{
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&stack, NULL);
    struct sigaction on_inner = {.sa_handler = inner}, on_outer = {.sa_handler = outer, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR2, &on_inner, NULL);
    for (volatile int i = 0; i < 60; i++) {
        on_outer.sa_flags = i % 2 ? SA_ONSTACK : 0;
        sigaction(SIGUSR1, &on_outer, NULL);
        if (!sigsetjmp(back, 1))
            raise_below(i % 5);
    }
    printf("%ld\n", total);
}
