/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Runs threads one at a time, in every order in which they can follow each other.
 *
 * A thread goes on by itself until it comes to a point; there any thread may go on. An order
 * is remembered as the choices made at the points, and the next one differs in the last choice
 * that had another possibility, so that all are run once.
 */
#ifndef SEAM_EXPLORE_H
#define SEAM_EXPLORE_H

#include <stdbool.h>

#define EXPLORE_THREADS 4

struct explore {
	void (*begin)(void);		/* before the threads of each order */
	void (*end)(void);		/* after them */
	void (*threads[EXPLORE_THREADS])(void);	/* up to the first NULL */
};

/* Gives how many orders there are; ends at the first that is wrong, with @why, or NULL. */
unsigned long explore(const struct explore *what, const char **why);

/* Called by threads. Without explore() running they do nothing, and wait for nothing. */

/* Others may go on here. */
void explore_point(void);

/* The same, and until *@flag is false. */
void explore_wait(const bool *flag);

/* Which thread this is; -1 for none of them. */
int explore_self(void);

/* Something is wrong. Goes on, so that the stack is not left behind; the first one counts. */
void explore_wrong(const char *why);

#endif
