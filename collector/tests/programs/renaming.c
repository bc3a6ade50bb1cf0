/* Renames its thread N times as fast as it can, the last time to "last-name", then makes FILE, and burns CPU.
 * renaming N FILE */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (long i = 1, n = atol(argv[1]); i < n; i++)
		prctl(PR_SET_NAME, i % 2 ? "one" : "other");
	prctl(PR_SET_NAME, "last-name");
	fclose(fopen(argv[2], "w"));
	for (volatile unsigned long n = 0;;)
		++n;
}
