/*
 * A process whose memory cannot all be read: its second thread sleeps on a stack whose pages are missing, and whoever reads
 * them waits for this program to provide them, which it never does (userfaultfd(2)). Prints "ready" when that is so.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STACK_BYTES = 1 << 20 };

static volatile int runs;

static void *sleep_on_stack(void *unused)
{
	runs = 1;
	for (;;)
		pause();
	return unused;
}

static void require(int is_done, const char *what)
{
	if (is_done)
		return;
	perror(what);
	exit(1);
}

int main(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	pthread_attr_t attributes;
	pthread_t thread;
	char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	require(stack != MAP_FAILED, "mmap");
	require(fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0, "userfaultfd");
	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, stack, STACK_BYTES);
	require(pthread_create(&thread, &attributes, sleep_on_stack, NULL) == 0, "pthread_create");
	/* If it is not asleep yet, it will soon wait for its own stack, like everybody else. */
	while (!runs)
		usleep(1000);
	range.range.start = (uintptr_t)stack;
	range.range.len = STACK_BYTES;
	require(ioctl(fd, UFFDIO_REGISTER, &range) == 0, "UFFDIO_REGISTER");
	require(madvise(stack, STACK_BYTES, MADV_DONTNEED) == 0, "madvise");
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
