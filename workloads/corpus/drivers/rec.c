/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Recursion, the worst case for frame pointers: hardly anything but calls. Argument: repetitions. */
#include "planted.h"
#include <stdio.h>
#include <stdlib.h>

static __attribute__((noinline)) long fib(long n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static __attribute__((noinline)) long tak(long x, long y, long z)
{
	return y >= x ? z : tak(tak(x - 1, y, z), tak(y - 1, z, x), tak(z - 1, x, y));
}

struct node {
	struct node *left, *right;
};

static struct node *grow(int depth)
{
	struct node *node = malloc(sizeof(*node));

	if (!node)
		abort();
	node->left = depth ? grow(depth - 1) : NULL;
	node->right = depth ? grow(depth - 1) : NULL;
	return node;
}

static long fell(struct node *node)
{
	long n = 1;

	if (node->left)
		n += fell(node->left) + fell(node->right);
	free(node);
	return n;
}

int main(int argc, char **argv)
{
	long sum = 0;

	for (long i = planted(argc > 1 ? atol(argv[1]) : 1); i > 0; i--)
		sum += fib(24) + tak(14, 8, 3) + fell(grow(13));
	printf("%ld\n", sum);
	return 0;
}
