/* Libraries that are loaded and unloaded all the time, often at another's address: `dlopens DIR/a.so DIR/b.so ...`. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    long total = 0;
    void *held = NULL;
    for (int round = 0; round < 12; round++) {
        void *library = dlopen(argv[1 + round % (argc - 1)], RTLD_NOW);
        int (*work)(int) = library ? (int (*)(int))dlsym(library, "work") : NULL;
        if (!work)
            return 1;
        total += work(10);
        if (held)
            dlclose(held);
        held = library;
    }
    printf("%ld\n", total);
}
