// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include "explore.h"

#define POINTS 256
#define STACK (64 << 10)

struct thread {
	ucontext_t context;
	void (*run)(void);
	const bool *waits_for;
	bool done;
	char *stack;
};

static struct thread threads[EXPLORE_THREADS];
static ucontext_t scheduler;
static int self = -1;
static const char *wrong;

/* The choices of this order: which of how many possibilities. */
static struct { int chosen, of; } path[POINTS];
static int depth;

int explore_self(void)
{
	return self;
}

void explore_wrong(const char *why)
{
	if (!wrong)
		wrong = why;
}

void explore_wait(const bool *flag)
{
	struct thread *thread;

	if (self < 0) {
		if (flag && *flag)
			explore_wrong("nobody is there to end a wait");
		return;
	}
	thread = &threads[self];
	thread->waits_for = flag;
	swapcontext(&thread->context, &scheduler);
	thread->waits_for = NULL;
}

void explore_point(void)
{
	explore_wait(NULL);
}

static void entry(void)
{
	threads[self].run();
	threads[self].done = true;
}

static void start(const struct explore *what)
{
	int i;

	for (i = 0; i < EXPLORE_THREADS && what->threads[i]; i++) {
		struct thread *thread = &threads[i];

		if (!thread->stack)
			thread->stack = malloc(STACK);
		*thread = (struct thread){ .run = what->threads[i], .stack = thread->stack };
		getcontext(&thread->context);
		thread->context.uc_stack.ss_sp = thread->stack;
		thread->context.uc_stack.ss_size = STACK;
		thread->context.uc_link = &scheduler;
		makecontext(&thread->context, entry, 0);
	}
}

/* The threads that can go on; how many. */
static int runnable(const struct explore *what, int *out)
{
	int i, n = 0;

	for (i = 0; i < EXPLORE_THREADS && what->threads[i]; i++) {
		const struct thread *thread = &threads[i];

		if (!thread->done && !(thread->waits_for && *thread->waits_for))
			out[n++] = i;
	}
	return n;
}

static bool all_done(const struct explore *what)
{
	int i;

	for (i = 0; i < EXPLORE_THREADS && what->threads[i]; i++) {
		if (!threads[i].done)
			return false;
	}
	return true;
}

/* One order: the choices of path[] up to @depth, and the first possibility from there on. */
static void run_one(const struct explore *what)
{
	int step = 0;

	start(what);
	while (!all_done(what)) {
		int able[EXPLORE_THREADS], n = runnable(what, able);

		if (!n || step == POINTS) {
			explore_wrong(n ? "no end" : "a deadlock");
			break;
		}
		if (step == depth) {
			path[depth].chosen = 0;
			path[depth++].of = n;
		}
		self = able[path[step++].chosen];
		swapcontext(&scheduler, &threads[self].context);
		self = -1;
	}
}

unsigned long explore(const struct explore *what, const char **why)
{
	unsigned long orders = 0;

	depth = 0;
	wrong = NULL;
	for (;;) {
		what->begin();
		run_one(what);
		what->end();
		orders++;
		if (wrong)
			break;
		while (depth && path[depth - 1].chosen + 1 == path[depth - 1].of)
			depth--;
		if (!depth)
			break;
		path[depth - 1].chosen++;
	}
	*why = wrong;
	return orders;
}
