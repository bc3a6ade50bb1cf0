/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What profilers take from a program: runs it with all perf events of other processes enabled and disabled in turns,
 * and compares its CPU time for the same work. Turns of some milliseconds see the same clock rate and neighbours,
 * which runs one after the other do not.
 */
#define _GNU_SOURCE
#include "alternate.h"

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TURN_NS 20000000L
#define MAX_GROUPS 10000
#define MAX_EVENTS 256

volatile unsigned long *work_done;

static int events[MAX_EVENTS], n_events;

static void fail(const char *what)
{
	fprintf(stderr, "alternate: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Takes copies of the descriptors of a process that are perf events. */
static void find_events_of(const char *pid)
{
	char path[300], target[64];
	struct dirent *entry;
	int pidfd, event;
	ssize_t length;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	fds = opendir(path);
	if (!fds)
		return;
	while ((entry = readdir(fds))) {
		snprintf(path, sizeof(path), "/proc/%s/fd/%s", pid, entry->d_name);
		length = readlink(path, target, sizeof(target) - 1);
		if (length < 0)
			continue;
		target[length] = 0;
		if (strcmp(target, "anon_inode:[perf_event]"))
			continue;
		pidfd = syscall(SYS_pidfd_open, atoi(pid), 0);
		event = pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd, pidfd, atoi(entry->d_name), 0);
		if (event < 0 || n_events == MAX_EVENTS)
			fail("taking a perf event of another process");
		events[n_events++] = event;
		close(pidfd);
	}
	closedir(fds);
}

static void find_events(void)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;

	while (processes && (entry = readdir(processes)))
		if (atoi(entry->d_name) > 0 && atoi(entry->d_name) != getpid())
			find_events_of(entry->d_name);
	if (processes)
		closedir(processes);
}

static void enable_events(bool enabled)
{
	for (int i = 0; i < n_events; i++)
		if (ioctl(events[i], enabled ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0))
			fail("enabling or disabling a perf event");
}

static double cpu_s(clockid_t clock)
{
	struct timespec used;

	if (clock_gettime(clock, &used))
		fail("reading the program's CPU time");
	return used.tv_sec + used.tv_nsec / 1e9;
}

static int compare(const void *one, const void *other)
{
	double difference = *(double *)one - *(double *)other;

	return (difference > 0) - (difference < 0);
}

static double median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), compare);
	return (values[n / 2] + values[(n - 1) / 2]) / 2;
}

int alternate(double seconds, void (*program)(void *), void *argument)
{
	static double without[MAX_GROUPS], ratios[MAX_GROUPS];
	size_t n_groups = seconds * 1e9 / TURN_NS / 4;
	struct timespec turn = { .tv_nsec = TURN_NS };
	clockid_t clock;
	pid_t child;

	if (n_groups < 1 || n_groups > MAX_GROUPS) {
		fprintf(stderr, "alternate: %f seconds: a fraction of one, to some hundreds\n", seconds);
		return 2;
	}

	work_done = mmap(NULL, sizeof(*work_done), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (work_done == MAP_FAILED)
		fail("mmap");
	find_events();
	child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		/* It does not end by itself. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		program(argument);
		_exit(0);
	}
	if (clock_getcpuclockid(child, &clock))
		fail("finding the program's clock");
	/* The profiler learns about the program: the OpenTelemetry profiler needs 1.4 s. */
	sleep(2);
	for (size_t group = 0; group < n_groups; group++) {
		double used_s[2] = {}, work[2] = {};

		/* On, off, off, on: what changes steadily has no effect. */
		for (int n = 0; n < 4; n++) {
			bool is_on = n == 0 || n == 3;
			unsigned long before;
			double before_s;

			enable_events(is_on);
			before_s = cpu_s(clock);
			before = *work_done;
			nanosleep(&turn, NULL);
			used_s[is_on] += cpu_s(clock) - before_s;
			work[is_on] += *work_done - before;
		}
		without[group] = work[false] / used_s[false];
		ratios[group] = work[true] / used_s[true] / without[group];
	}
	enable_events(true);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	/* Medians, since now and then another machine of the host takes time from this one. */
	without[0] = median(without, n_groups);
	printf("%f IOPS, %f without %d perf events\n", median(ratios, n_groups) * without[0], without[0], n_events);
	return 0;
}
