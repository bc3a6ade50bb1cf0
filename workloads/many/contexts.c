/* Coroutines of ucontext.h that call each other's functions, each on a stack of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#define N 5
static ucontext_t back, contexts[N];
static long total;

__attribute__((noinline)) static int fib(int n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

__attribute__((noinline)) static void step(int which, int depth)
{
    if (depth) {
        step(which, depth - 1);
    } else {
        total += fib(6);
        swapcontext(&contexts[which], which % 2 ? &back : &contexts[(which + 1) % N]);
    }
    total += depth;
}

static void run(int which)
{
    for (;;)
        step(which, which + 1);
}

int main(void)
{
    for (int i = 0; i < N; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_size = 64 << 10;
        contexts[i].uc_stack.ss_sp = malloc(64 << 10);
        makecontext(&contexts[i], (void (*)(void))run, 1, i);
    }
    for (int i = 0; i < 100; i++)
        swapcontext(&back, &contexts[i % N]);
    printf("%ld\n", total);
}
