/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Prints how many BPF programs, maps and links the kernel holds, by asking it for all their numbers. */
#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int count(const char *name, int command)
{
	union bpf_attr attr;
	unsigned int id = 0;
	int n = 0;

	for (;;) {
		memset(&attr, 0, sizeof(attr));
		attr.start_id = id;
		if (syscall(SYS_bpf, command, &attr, sizeof(attr)))
			break;
		id = attr.next_id;
		n++;
	}
	if (errno != ENOENT) {
		perror(name);
		return 1;
	}
	printf("%s %d\n", name, n);
	return 0;
}

int main(void)
{
	return count("programs", BPF_PROG_GET_NEXT_ID) | count("maps", BPF_MAP_GET_NEXT_ID) |
	       count("links", BPF_LINK_GET_NEXT_ID);
}
