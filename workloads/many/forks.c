/* Children that fork again, run something and end, and their parent, which works between: `forks [namespaces]`. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static int fib(int n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

int main(int argc, char **argv)
{
    (void)argv;
    long total = 0;
    if (argc > 1 && unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET))
        return 1;
    for (int i = 0; i < 40; i++) {
        pid_t child = i % 2 ? fork() : vfork();
        if (child == 0 && i % 2)
            _exit(fork() == 0 ? 0 : fib(5));
        if (child == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(1);
        }
        int status;
        waitpid(child, &status, 0);
        total += fib(9) + WEXITSTATUS(status);
    }
    printf("%ld\n", total);
}
