/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef ALTERNATE_H
#define ALTERNATE_H

/* Units of work that the program has done. */
extern volatile unsigned long *work_done;

/*
 * Runs `program`, which does not return and increments *work_done, for some seconds, and prints its work per second of
 * CPU time with and without profilers, and the number of their perf events. Returns the exit status.
 */
int alternate(double seconds, void (*program)(void *), void *argument);

#endif
