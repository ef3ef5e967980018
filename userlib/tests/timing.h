/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What programs that measure have in common: the time, and the order of times. */
#ifndef TIMING_H
#define TIMING_H

#include <time.h>

static double now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return 1e6 * time.tv_sec + time.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

#endif
