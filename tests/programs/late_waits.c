/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A library that is loaded before others: poll() of a terminal returns 0.3 s late. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	static int (*next)(struct pollfd *, nfds_t, int);
	struct timespec left = { .tv_nsec = 300000000 };
	int ready;

	if (!next)
		next = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
	ready = next(fds, n, timeout);
	if (n && isatty(fds[0].fd))
		while (nanosleep(&left, &left))
			;
	return ready;
}
