// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Who isolates pages, and misses a va_block: uvm_rust_isolation.h as it is, but for the headers that it includes. Made
 * up are Linux's migrate_vma_setup() and migrate_device_range(), which call notifiers, and upstream's lock of a va_block.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PAGE_SHIFT		12
#define PAGE_SIZE		(1ul << PAGE_SHIFT)
#define PF_MEMALLOC		1
#define PF_KTHREAD		2
#define MMU_NOTIFY_UNMAP	0
#define MMU_NOTIFY_CLEAR	1
#define MMU_NOTIFY_MIGRATE	5
#define PAGES			4

struct task_struct { unsigned int flags; };
struct migrate_vma { unsigned long *src, *dst, cpages, npages, start, end; };
struct mmu_notifier_range { int event; unsigned long start, end; void *owner; };
typedef struct { int lock, references; bool is_others; } uvm_va_block_t;
struct context { void *ignore_hmm_invalidate_va_block; };
struct list_head { struct list_head *next, *prev; };

#define LIST_HEAD(name)		struct list_head name = { &name, &name }
#define DEFINE_SPINLOCK(name)	int name
#define DECLARE_WAIT_QUEUE_HEAD(name) int name
#define READ_ONCE(of)		(of)
#define WRITE_ONCE(of, value)	((of) = (value))
#define msecs_to_jiffies(ms)	(ms)
#define time_after(one, other)	((long)((other) - (one)) < 0)
/* The time is over, unless the turn comes meanwhile. */
#define wait_event_killable_timeout(queue, holds, time) ((queue) += 1, has_turn = comes ? NULL : has_turn, (holds))
#define wake_up_all(queue)	((void)(queue), woken++)
#define spin_lock(lock)		((void)(lock))
#define spin_unlock(lock)	((void)(lock))
#define list_empty(head)	((head)->next == (head))
/* Its list comes first. */
#define list_for_each_entry(at, head, list) \
	for (at = (void *)(head)->next; (void *)at != (head); at = (void *)at->list.next)

static void list_add(struct list_head *new, struct list_head *head)
{
	*new = (struct list_head) { head->next, head };
	head->next->prev = new;
	head->next = new;
}

static void list_del(struct list_head *entry)
{
	entry->next->prev = entry->prev;
	entry->prev->next = entry->next;
}

static struct task_struct this_thread, other_thread, *current = &this_thread;
static struct context context;
static int g_uvm_global, another_driver;
static bool uvm_rust_fix_two_spaces = true, uvm_rust_fix_mm_gone = true;
static bool uvm_rust_fix_isolation = true, uvm_rust_fix_held = true, uvm_rust_fix_strays = true;
static uvm_va_block_t first, second;
/* How often this thread slept, waited for a lock, only tried one, and isolated; and after how many of these it is to die. */
static int slept, waited, tried, isolated, dies_after;
/* How often it woke up others; turns is how often it waited for its turn. And whether that came. */
static int woken;
static bool comes;
static int tracking;
static unsigned long jiffies;
/* Of the last sleep: the least that it was to take, in microseconds. */
static unsigned long break_us;
static unsigned int chance;

static struct context *uvm_thread_context(void) { return &context; }
static void uvm_thread_context_lock_disable_tracking(void) { tracking--; }
static void uvm_thread_context_lock_enable_tracking(void) { tracking++; }
static void usleep_range(unsigned long min, unsigned long max) { slept += min < max; break_us = min; }
static unsigned int get_random_u32(void) { return chance; }
static void uvm_rust_test_isolates(void) { }
static bool fatal_signal_pending(struct task_struct *thread) { return thread == current && dies_after && isolated >= dies_after; }
static void uvm_va_block_retain(uvm_va_block_t *block) { block->references++; }
static void uvm_va_block_release(uvm_va_block_t *block) { block->references--; }
static void uvm_mutex_lock(int *lock) { waited++; ++*lock; }
static void uvm_mutex_unlock(int *lock) { --*lock; }

static bool uvm_mutex_trylock(int *lock)
{
	tried++;
	if (((uvm_va_block_t *)lock)->is_others)
		return false;
	++*lock;
	return true;
}

static int migrate_vma_setup(struct migrate_vma *args);
static void migrate_vma_finalize(struct migrate_vma *args);
static int migrate_device_range(unsigned long *src, unsigned long start, unsigned long npages);
static void migrate_device_finalize(unsigned long *src, unsigned long *dst, unsigned long npages);

#include "isolation.h"

/* What Linux calls the driver for, of which page, and of how many. */
static struct mmu_notifier_range calls = { MMU_NOTIFY_CLEAR, 0, PAGE_SIZE, NULL };
/* Called in the middle of the first notifier. */
static void (*within)(void);
static unsigned long back;
/* How many notifiers were left out as UVM's own. */
static int ignored;
/* The second va_block is free from this isolation on. */
static int free_from;
static bool looks_on;

/* As hmm_invalidate() does it, in Linux's notifier of a va_block. */
static void notifier(uvm_va_block_t *block)
{
	struct uvm_rust_isolation *isolation = uvm_rust_isolation();
	bool before = uvm_rust_notifies(isolation, &calls);
	void (*inner)(void) = within;

	within = NULL;
	if (inner)
		inner();
	if (calls.event == MMU_NOTIFY_MIGRATE && uvm_rust_is_ignored(&calls))
		ignored++;
	else if (uvm_rust_lock_to_invalidate(block))
		uvm_mutex_unlock(&block->lock);
	uvm_rust_notified(isolation, before);
}

static void isolate(unsigned long *src, unsigned long npages)
{
	isolated++;
	second.is_others = !free_from || isolated < free_from;
	for (unsigned long i = 0; i < npages; i++) {
		src[i] = 7;
		notifier(i == 1 ? &second : &first);
	}
}

static int migrate_vma_setup(struct migrate_vma *args)
{
	args->cpages = args->npages = looks_on ? PAGES - 1 : PAGES;
	isolate(args->src, PAGES);
	args->npages = PAGES;
	return 0;
}

static void migrate_device_finalize(unsigned long *src, unsigned long *dst, unsigned long npages)
{
	for (unsigned long i = 0; i < npages; i++)
		back += src[i] == 7 && !dst[i];
}

static void migrate_vma_finalize(struct migrate_vma *args)
{
	migrate_device_finalize(args->src, args->dst, args->npages);
}

static int migrate_device_range(unsigned long *src, unsigned long start, unsigned long npages)
{
	(void)start;
	isolate(src, npages);
	return 0;
}

static int number, failed;
static unsigned long src[PAGES], dst[PAGES];
static struct migrate_vma args;
static struct uvm_rust_isolation theirs;

static void say(const char *name, bool holds)
{
	holds &= list_empty(&isolating) && !tracking && !first.references && !second.references && !first.lock && !second.lock;
	failed |= !holds;
	printf("%s %d - isolation: %s\n", holds ? "ok" : "not ok", ++number, name);
}

static void begin(bool has_lock)
{
	slept = waited = tried = isolated = turns = woken = ignored = 0;
	back = 0;
	context.ignore_hmm_invalidate_va_block = has_lock ? &first : NULL;
	memset(dst, 9, sizeof(dst));
	args = (struct migrate_vma) { src, dst, 0, 0, 0, PAGES * PAGE_SIZE };
}

static unsigned long vma(bool has_lock)
{
	begin(has_lock);
	uvm_rust_isolate_vma(&args);
	return args.npages;
}

static unsigned long range(bool has_lock)
{
	unsigned long there = 0;

	begin(has_lock);
	uvm_rust_isolate_range(src, 0, PAGES);
	for (int i = 0; i < PAGES; i++)
		there += src[i] == 7;
	return there;
}

/* An eviction in the middle of a notifier. It has a va_block, misses the second one, and marks itself alone. */
static bool is_told_apart;

static void evicts(void)
{
	struct uvm_rust_isolation *around = uvm_rust_isolation();
	unsigned long pages[2];

	free_from = 0;
	context.ignore_hmm_invalidate_va_block = &first;
	uvm_rust_isolate_range(pages, 0, 2);
	context.ignore_hmm_invalidate_va_block = NULL;
	is_told_apart = !pages[0] && !pages[1] && !around->is_missed && uvm_rust_isolation() == around;
	second.is_others = false;
}

/* Reclaim in the middle of a notifier, which takes another page. */
static void reclaims(void)
{
	this_thread.flags = PF_MEMALLOC;
	notifier(&first);
	this_thread.flags = 0;
}

/* What Linux says of all pages, before it looks for them. */
static void announced(void)
{
	calls = (struct mmu_notifier_range) { MMU_NOTIFY_MIGRATE, 0, PAGES * PAGE_SIZE, &g_uvm_global };
	looks_on = true;
	free_from = 1;
	say("another VA space's va_block is told of what is to move", vma(true) == PAGES && tried == PAGES && !waited && !ignored);
	this_thread.flags = PF_MEMALLOC;
	say("in any thread", vma(true) == PAGES && tried == PAGES && !waited && !ignored);
	this_thread.flags = 0;
	free_from = 0;
	say("nothing moves if somebody has that", vma(true) == 0 && isolated == 4 && back == 4 * PAGES && !waited);
	free_from = 2;
	say("who has no va_block waits for it with no page", vma(false) == PAGES && isolated == 2 && back == PAGES && waited == 1);
	uvm_rust_fix_isolation = false;
	say("also without isolation", vma(true) == PAGES && isolated == 2 && !waited);
	uvm_rust_fix_isolation = true;
	uvm_rust_fix_mm_gone = false;
	say("without mm_gone who has none tells nobody", vma(false) == PAGES && ignored == PAGES && !tried && !waited);
	say("but who has one does", vma(true) == PAGES && !ignored && isolated == 2);
	uvm_rust_fix_mm_gone = true;
	uvm_rust_fix_two_spaces = false;
	say("without two_spaces who has one tells nobody", vma(true) == PAGES && ignored == PAGES && !tried && !waited);
	say("but who has none does", vma(false) == PAGES && !ignored && isolated == 2);
	uvm_rust_fix_two_spaces = true;
	say("nobody is told of pages that are new", uvm_rust_is_ignored(&calls));
	calls.owner = &another_driver;
	say("another driver's pages are waited for", vma(true) == PAGES && !ignored && !tried && waited == PAGES);
	looks_on = false;
}

int main(void)
{
	printf("TAP version 13\n");
	free_from = 1;
	say("nobody has the va_blocks: all is isolated, once", vma(true) == PAGES && isolated == 1 && !back && tried == PAGES && !waited);
	free_from = 3;
	say("who has a va_block sleeps, and isolates anew", vma(true) == PAGES && isolated == 3 && back == 2 * PAGES && slept == 2 && !waited);
	say("who has none waits for the one that it missed", vma(false) == PAGES && isolated == 3 && !slept && waited == 2);
	say("after a miss no other va_block is tried", (vma(true), tried) == 2 * 2 + PAGES);
	free_from = 0;
	say("who has a va_block gives up after four tries, with no page", vma(true) == 0 && isolated == 4 && slept == 3 && args.cpages == 0 &&
	    back == 4 * PAGES && !src[0] && !dst[0]);
	say("who has none after sixteen", vma(false) == 0 && isolated == 16 && waited == 16);
	dies_after = 2;
	say("who is to die at once", vma(false) == 0 && isolated == 2);
	dies_after = 0;
	say("an eviction that has a va_block tries once", range(true) == 0 && isolated == 1 && back == PAGES && !slept);
	free_from = 2;
	say("one that has none as the others", range(false) == PAGES && isolated == 2 && waited == 1);

	free_from = 0;
	has_turn = NULL;
	say("who gives up has the turn if nobody has it", (vma(true), uvm_rust_isolation_turn(), has_turn) == current);
	say("and has it as long as it gives up, but sleeps", (vma(true), uvm_rust_isolation_turn(), has_turn) == current && !turns && !woken &&
	    slept == 4);
	free_from = 1;
	say("until it isolates, and the others go on", vma(true) == PAGES && !has_turn && woken == 1);
	say("who isolates at once tells nobody", vma(true) == PAGES && !has_turn && !woken);
	has_turn = &other_thread;
	say("nor does who isolates in another thread's turn", vma(true) == PAGES && has_turn == &other_thread && !woken);
	free_from = 0;
	comes = true;
	say("who gives up meanwhile waits for it", (vma(true), uvm_rust_isolation_turn(), has_turn) == current && turns == 1);
	comes = false;
	has_turn = &other_thread;
	turn_since = jiffies = 1000;
	say("and goes on without, if that takes long", (vma(true), uvm_rust_isolation_turn(), has_turn) == &other_thread && turns == 1);
	jiffies += ISOLATE_TURN_MS + 1;
	isolation_begins(&theirs, NULL);
	theirs.thread = &other_thread;
	uvm_rust_isolation_turn();
	isolation_missed(&theirs);
	say("also if who has it isolates for all of that time", has_turn == &other_thread);
	say("and takes it from who has ended", (vma(true), uvm_rust_isolation_turn(), has_turn) == current && turn_since == jiffies);
	dies_after = 1;
	say("who is to die gives it up", (vma(true), uvm_rust_isolation_turn(), has_turn) == NULL && woken == 1);
	dies_after = 0;

	say("a break is short at first", (vma(true), uvm_rust_isolation_turn(), break_us) == ISOLATE_BREAK_US / 4);
	say("and twice as long each time", (uvm_rust_isolation_turn(), break_us) == ISOLATE_BREAK_US / 2);
	for (int i = 0; i < 20; i++)
		uvm_rust_isolation_turn();
	say("but not for ever", break_us == (ISOLATE_BREAK_US << ISOLATE_BREAK_DOUBLED) / 4);
	chance = (ISOLATE_BREAK_US << ISOLATE_BREAK_DOUBLED) - 1;
	say("up to five times that, by chance", (uvm_rust_isolation_turn(), break_us) == (ISOLATE_BREAK_US << ISOLATE_BREAK_DOUBLED) / 4 + chance);
	chance = 0;
	free_from = 1;
	vma(true);
	free_from = 0;
	say("and begins anew with a turn", (vma(true), uvm_rust_isolation_turn(), break_us) == ISOLATE_BREAK_US / 4);
	has_turn = &other_thread;
	this_thread.flags = PF_KTHREAD;
	turns = 0;
	say("a thread that services faults waits for no turn", (vma(true), uvm_rust_isolation_turn(), has_turn) == &other_thread && !turns && slept == 4);
	this_thread.flags = 0;
	has_turn = NULL;
	calls.event = MMU_NOTIFY_UNMAP;
	say("no notifier is skipped of what munmap() takes", vma(true) == PAGES && !tried && waited == PAGES);
	calls = (struct mmu_notifier_range) { MMU_NOTIFY_CLEAR, 0, 2 * PAGE_SIZE, NULL };
	say("none is of more than a page", vma(true) == PAGES && !tried && waited == PAGES);
	calls.end = PAGE_SIZE;
	looks_on = true;
	say("none is while Linux looks for pages", vma(true) == PAGES && !tried && waited == PAGES);
	looks_on = false;
	this_thread.flags = PF_MEMALLOC;
	say("none is of what reclaim takes", vma(true) == PAGES && !tried && waited == PAGES);
	this_thread.flags = 0;
	within = reclaims;
	say("the one in whose middle that is may be", vma(true) == 0 && waited == 1);

	free_from = 1;
	within = evicts;
	say("an eviction within is marked, and not the isolation around it", vma(false) == PAGES && is_told_apart);

	free_from = 0;
	uvm_rust_fix_held = false;
	say("without held an eviction waits", range(true) == PAGES && !tried && waited == PAGES);
	uvm_rust_fix_held = true;
	uvm_rust_fix_strays = false;
	say("without strays, too", range(true) == PAGES && !tried && waited == PAGES);
	uvm_rust_fix_strays = true;
	uvm_rust_fix_isolation = false;
	say("without the mend all wait", vma(true) == PAGES && range(true) == PAGES && !tried && waited == PAGES);
	uvm_rust_fix_two_spaces = uvm_rust_fix_mm_gone = false;
	say("without all three nobody looks", vma(true) == PAGES && !tried && waited == PAGES);
	uvm_rust_fix_isolation = uvm_rust_fix_two_spaces = uvm_rust_fix_mm_gone = true;
	announced();
	printf("1..%d\n", number);
	return failed;
}
