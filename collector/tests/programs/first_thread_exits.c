/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* first_thread_exits MS FILE: its first thread exits; another waits for that, creates FILE, and burns. */
#include "burn.h"
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static char **arguments;

static void *work(void *first)
{
	pthread_join(*(pthread_t *)first, NULL);
	close(open(arguments[2], O_CREAT | O_WRONLY, 0600));
	burn_ms(atol(arguments[1]));
	_exit(0);
}

int main(int argc, char **argv)
{
	static pthread_t first;
	pthread_t other;

	if (argc != 3)
		return 1;
	arguments = argv;
	first = pthread_self();
	if (pthread_create(&other, NULL, work, &first))
		return 1;
	pthread_exit(NULL);
}
