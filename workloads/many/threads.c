/* Threads that end soon, a hundred at a time. */
#include <pthread.h>
#include <stdio.h>

#ifndef THREADS
#define THREADS 10000
#endif
#define AT_A_TIME 100

__attribute__((noinline)) static int fib(int n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static void *work(void *n)
{
    return (void *)(long)fib((int)(long)n % 7);
}

int main(void)
{
    long total = 0;
    for (int made = 0; made < THREADS; made += AT_A_TIME) {
        pthread_t threads[AT_A_TIME];
        for (long i = 0; i < AT_A_TIME; i++)
            if (pthread_create(&threads[i], NULL, work, (void *)i))
                return 1;
        for (int i = 0; i < AT_A_TIME; i++) {
            void *value;
            if (pthread_join(threads[i], &value))
                return 1;
            total += (long)value;
        }
    }
    printf("%ld\n", total);
}
