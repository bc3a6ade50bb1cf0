/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* More work by PLANTED per cent: a slow-down whose size is known, for `planted.toml`. */
#ifndef PLANTED
#define PLANTED 0
#endif

static inline long planted(long repetitions)
{
	return repetitions + repetitions * PLANTED / 100;
}
