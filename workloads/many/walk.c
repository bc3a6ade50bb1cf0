/* What compilers lay out in many ways: recursion, callbacks of libc, frames of variable size, many arguments, switches, tail
 * calls, cold paths, functions without a frame, structures by value. */
#include <alloca.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

struct tree {
    struct tree *left, *right;
    int key;
};
struct big {
    long values[24];
};

static unsigned state = 1;
static jmp_buf back;

NOINLINE static unsigned next(void)
{
    state = state * 1103515245 + 12345;
    return state >> 16;
}

NOINLINE static struct tree *insert(struct tree *tree, int key)
{
    if (!tree) {
        tree = calloc(1, sizeof *tree);
        tree->key = key;
    } else if (key < tree->key) {
        tree->left = insert(tree->left, key);
    } else {
        tree->right = insert(tree->right, key);
    }
    return tree;
}

NOINLINE static long sum(const struct tree *tree)
{
    return tree ? sum(tree->left) + tree->key + sum(tree->right) : 0;
}

NOINLINE static void clear(struct tree *tree)
{
    if (!tree)
        return;
    clear(tree->left);
    clear(tree->right);
    free(tree);
}

static int by_value(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

NOINLINE static long variable_frame(int n)
{
    int *numbers = alloca(n * sizeof *numbers);
    for (int i = 0; i < n; i++)
        numbers[i] = (int)next();
    qsort(numbers, n, sizeof *numbers, by_value);
    return numbers[n / 2];
}

NOINLINE static long many_arguments(long a, long b, long c, long d, long e, long f, long g, long h, double x, double y)
{
    return a + b * c - d + e * f - g + h * next() + (long)(sin(x) * cos(y) * 100);
}

NOINLINE static struct big by_copy(struct big big, int n)
{
    for (int i = 0; i < 24; i++)
        big.values[i] += n * i;
    return n ? by_copy(big, n - 1) : big;
}

NOINLINE static int variadic(char *text, size_t size, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text, size, format, list);
    va_end(list);
    return n;
}

NOINLINE __attribute__((cold)) static void cold(int n)
{
    if (n % 2)
        longjmp(back, n);
}

NOINLINE static long chosen(int n)
{
    switch (n % 8) {
    case 0: return variable_frame(17 + n % 40);
    case 1: return many_arguments(n, 1, 2, 3, 4, 5, 6, 7, n, 0.5);
    case 2: return by_copy((struct big){{n}}, 6).values[3];
    case 3: cold(n); return 3;
    case 4: { char text[64]; return variadic(text, sizeof text, "%d %s %.3f", n, "walk", n / 3.0); }
    case 5: { __attribute__((aligned(64))) char aligned[128]; memset(aligned, n, sizeof aligned); return aligned[next() % 128]; }
    case 6: return next() % 7 ? next() : n;
    default: return labs(-n);
    }
}

int main(int argc, char **argv)
{
    volatile long total = 0;
    int rounds = argc > 1 ? atoi(argv[1]) : 40;
    for (volatile int round = 0; round < rounds; round++) {
        struct tree *volatile tree = NULL;
        for (int i = 0; i < 40; i++)
            tree = insert(tree, (int)(next() % 1000));
        total += sum(tree);
        clear(tree);
        for (volatile int i = 0; i < 16; i++)
            if (!setjmp(back))
                total += chosen(round + i);
    }
    printf("%ld\n", total);
    return 0;
}
