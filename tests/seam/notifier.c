// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A notifier must take pages from the GPU whether there is memory or not: it gets something to
 * work with always, and for itself alone.
 */
#include <string.h>

#include "shim.h"

#define CONTEXTS 64

struct uvm_va_block_context_struct {
	bool exists, used, fresh;
};

static struct uvm_va_block_context_struct contexts[CONTEXTS];
static int exist;
static bool no_memory;
int uvm_enable_builtin_tests = 1;

uvm_va_block_context_t *uvm_va_block_context_alloc(struct mm_struct *mm)
{
	size_t i;

	explore_point();
	for (i = 0; i < CONTEXTS && !no_memory; i++) {
		if (!contexts[i].exists) {
			contexts[i] = (struct uvm_va_block_context_struct){ .exists = true, .fresh = true };
			exist++;
			return &contexts[i];
		}
	}
	return NULL;
}

void uvm_va_block_context_free(uvm_va_block_context_t *context)
{
	if (!context->exists || context->used)
		explore_wrong("freed twice, or while it is used");
	context->exists = false;
	exist--;
}

void uvm_va_block_context_init(uvm_va_block_context_t *context, struct mm_struct *mm)
{
	context->fresh = true;
}

/* Locks, and waiting for others. */

static bool nothing_happened;

void spin_lock(spinlock_t *lock)
{
	explore_point();
	while (lock->held)
		explore_wait(&lock->held);
	lock->held = true;
}

void spin_unlock(spinlock_t *lock)
{
	lock->held = false;
	nothing_happened = false;
}

long schedule_timeout_uninterruptible(long timeout)
{
	nothing_happened = true;
	explore_wait(&nothing_happened);
	return 0;
}

static void notify(void)
{
	uvm_va_block_context_t *context = uvm_rust_notifier_context(NULL);

	if (!context) {
		explore_wrong("a notifier got no context");
		return;
	}
	if (context->used || !context->exists || !context->fresh)
		explore_wrong("a context that is another's, or as another left it");
	context->used = true;
	context->fresh = false;
	explore_point();
	context->used = false;
	uvm_rust_notifier_context_free(context);
}

static bool memory_ends;

static void begin(void)
{
	memset(contexts, 0, sizeof(contexts));
	exist = 0;
	no_memory = false;
	if (uvm_rust_notifier_init() != NV_OK)
		explore_wrong("no memory was there at first");
	no_memory = memory_ends;
}

static void end(void)
{
	uvm_rust_notifier_exit();
	if (exist)
		explore_wrong("contexts are left");
}

/* The same, with all but one of those that are kept in use elsewhere. */
static uvm_va_block_context_t *elsewhere[CONTEXTS];
static int taken;

static void begin_with_one(void)
{
	int kept;

	begin();
	kept = exist;
	for (taken = 0; taken < kept - 1; taken++)
		elsewhere[taken] = uvm_rust_notifier_context(NULL);
}

static void end_with_one(void)
{
	while (taken)
		uvm_rust_notifier_context_free(elsewhere[--taken]);
	end();
}

int notifier_tests(int first)
{
	static const struct {
		const char *name;
		bool memory_ends;
		struct explore what;
	} tests[NOTIFIER_TESTS] = {
		{ "notifiers with memory", false, { begin, end, { notify, notify } } },
		{ "notifiers without memory", true, { begin, end, { notify, notify } } },
		{ "more notifiers without memory than can be at a time", true,
		  { begin_with_one, end_with_one, { notify, notify } } },
	};
	int i, failed = 0;

	for (i = 0; i < NOTIFIER_TESTS; i++) {
		unsigned long orders;
		const char *why;

		memory_ends = tests[i].memory_ends;
		orders = explore(&tests[i].what, &why);
		failed |= why != NULL;
		printf("%s %d - seam: %s # %lu orders%s%s\n", why ? "not ok" : "ok", first + i, tests[i].name, orders,
		       why ? ", " : "", why ? why : "");
	}
	return failed;
}
