/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How uvm_hmm.c has Linux isolate pages of ordinary memory, to move them: without waiting for another thread's va_block.
 * Only for uvm_rust_hmm.h.
 *
 * Linux isolates a page by replacing all that maps it. Meanwhile it holds the lock of the page, and the one that all
 * processes have in common that inherited the page by fork() (the rwsem of its anon_vma). It calls the driver for each
 * va_block that covers a mapping, and upstream waits there for the lock of the va_block. Whoever has that lock may be migrating,
 * and waits for Linux's: for reading, too, but a reader waits behind a writer, and every fork, exit or munmap() of one of these
 * processes is a writer. Then all three wait for ever; and two that isolate pages of each other's va_blocks need no third.
 *
 * So a thread that isolates only tries the lock. If it fails, the GPUs keep what they map, which is right only as long as
 * no page moves: all that has been isolated is put back, where it was, and the thread isolates anew. A thread
 * without a va_block of its own waits in between for the one that it missed, with no page and no anon_vma of Linux's locked; any
 * other sleeps for a moment. If it gives up, the caller finds that Linux has isolated no page, as where somebody holds them.
 *
 * The same holds for another VA space of this process, which has a va_block of its own for the same memory. Linux calls the driver
 * for it before it looks for pages, and for a page that one process alone maps it does so no second time. That va_block gives up what it
 * has there; or if somebody else has its lock, no page moves.
 *
 * A huge page that is to be isolated is split first, and what it consists of then may move: to the page of zeros. Linux splits
 * while it still looks for pages. So the lock is only tried once it has looked at all of them.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/migrate.h>
#include <linux/mmu_notifier.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "uvm_global.h"
#include "uvm_thread_context.h"
#include "uvm_va_block.h"

/* How often a thread isolates in all; one that has a va_block, for which others wait, and which its caller may let go. */
#define ISOLATE_TRIES		16
#define ISOLATE_TRIES_LOCKED	4
/* How long a thread waits for its turn, and for a thread that has it and does not go on. */
#define ISOLATE_TURN_MS		256
/* For how long about who gave up leaves its va_block to others, in microseconds; twice as long each time, up to 64 ms. */
#define ISOLATE_BREAK_US	500
#define ISOLATE_BREAK_DOUBLED	7

/* A thread that has Linux isolate pages. It lives on that thread's stack. */
struct uvm_rust_isolation {
	/* In isolating, under isolating_lock. */
	struct list_head list;
	struct task_struct *thread;
	/* What Linux is asked for, or NULL if that is pages of a GPU. */
	const struct migrate_vma *args;
	/* The thread has the lock of a va_block, and may wait for no other. */
	bool has_lock;
	/* The notifier that runs is for a page that is isolated, and may be skipped. */
	bool may_skip;
	/* A notifier was skipped. */
	bool is_missed;
	/* Its va_block, with a reference, unless the thread has_lock. */
	uvm_va_block_t *missed;
};

static LIST_HEAD(isolating);
static DEFINE_SPINLOCK(isolating_lock);
/*
 * Of threads that have given up, as each has a va_block that another one needs, one goes on at a time: this one, until it has
 * its pages. The others wait for that, and let their va_blocks go. Under isolating_lock; nobody follows the pointer.
 */
static struct task_struct *has_turn;
/* When it gave up last, in jiffies, and how often threads have taken a break since its turn began. Under isolating_lock. */
static unsigned long turn_since;
static unsigned int turn_breaks;
static DECLARE_WAIT_QUEUE_HEAD(turns);

/* This thread's, or NULL. A thread that evicts in the middle of one has begun another, which comes first. */
static struct uvm_rust_isolation *uvm_rust_isolation(void)
{
	struct uvm_rust_isolation *isolation, *found = NULL;

	/* This thread's would be seen. */
	if (list_empty(&isolating))
		return NULL;
	spin_lock(&isolating_lock);
	list_for_each_entry(isolation, &isolating, list) {
		if (isolation->thread == current) {
			found = isolation;
			break;
		}
	}
	spin_unlock(&isolating_lock);
	return found;
}

/* Has Linux looked at all pages, so that it now isolates those that it has found? */
static bool has_found_all(const struct migrate_vma *args)
{
	return !args || args->npages == (args->end - args->start) >> PAGE_SHIFT;
}

/*
 * Is @range what Linux says before it looks for the pages that this thread is to isolate? For a page that one process alone maps it
 * says nothing else. The thread's own va_block knows; others for the same memory do not. These are of other VA spaces of the same
 * process, or, where the thread has no va_block, of one whose mm has gone.
 */
static bool uvm_rust_is_announced(const struct mmu_notifier_range *range)
{
	struct uvm_rust_isolation *isolation;

	if (range->event != MMU_NOTIFY_MIGRATE || range->owner != &g_uvm_global)
		return false;
	isolation = uvm_rust_isolation();
	return isolation && (isolation->has_lock ? uvm_rust_fix_two_spaces : uvm_rust_fix_mm_gone);
}

/*
 * Called by the hook in hmm_invalidate(), for another va_block than this thread's own: whether @range is left out as UVM's own. Linux
 * also says so before it maps new pages in place of none, when the thread has isolated already. There was nothing that another
 * va_block could have had, unless it is Linux's page of zeros in memory for reading only, which stays.
 */
static bool uvm_rust_is_ignored(const struct mmu_notifier_range *range)
{
	return range->owner == &g_uvm_global && !uvm_rust_is_announced(range);
}

/*
 * Called before a notifier of @range runs. Returns whether its predecessor in this thread might be skipped, for
 * uvm_rust_notified(): a notifier that reclaims memory calls others.
 */
static bool uvm_rust_notifies(struct uvm_rust_isolation *isolation, const struct mmu_notifier_range *range)
{
	bool before;

	if (!isolation)
		return false;
	before = isolation->may_skip;
	/* Upstream keeps track of locks by their kind, so that this thread's own va_block would be unlocked to it afterwards. */
	if (isolation->has_lock)
		uvm_thread_context_lock_disable_tracking();
	/* What reclaim or compaction takes, called in the middle, does move. */
	isolation->may_skip = (uvm_rust_fix_isolation && range->event == MMU_NOTIFY_CLEAR &&
			       range->end - range->start == PAGE_SIZE && has_found_all(isolation->args) &&
			       !(current->flags & PF_MEMALLOC)) || uvm_rust_is_announced(range);
	return before;
}

static void uvm_rust_notified(struct uvm_rust_isolation *isolation, bool before)
{
	if (!isolation)
		return;
	if (isolation->has_lock)
		uvm_thread_context_lock_enable_tracking();
	isolation->may_skip = before;
}

/*
 * Called by the hook in hmm_invalidate(). False if somebody else has the lock and the notifier is to be skipped, as this
 * thread will put the page back.
 */
static bool uvm_rust_lock_to_invalidate(uvm_va_block_t *va_block)
{
	struct uvm_rust_isolation *isolation = uvm_rust_isolation();

	if (!isolation || !isolation->may_skip) {
		uvm_mutex_lock(&va_block->lock);
		return true;
	}
	/* All pages are put back in any case after the first miss; the sooner, the sooner this thread's va_block is free. */
	if (!isolation->is_missed && uvm_mutex_trylock(&va_block->lock))
		return true;
	if (!isolation->has_lock && !isolation->missed) {
		uvm_va_block_retain(va_block);
		isolation->missed = va_block;
	}
	isolation->is_missed = true;
	return false;
}

static void isolation_begins(struct uvm_rust_isolation *isolation, const struct migrate_vma *args)
{
	*isolation = (struct uvm_rust_isolation) {
		.thread = current,
		.args = args,
		.has_lock = uvm_thread_context()->ignore_hmm_invalidate_va_block,
	};
	spin_lock(&isolating_lock);
	list_add(&isolation->list, &isolating);
	spin_unlock(&isolating_lock);
}

/* Whether a notifier was skipped, so that all pages have to be put back. */
static bool isolation_missed(struct uvm_rust_isolation *isolation)
{
	spin_lock(&isolating_lock);
	list_del(&isolation->list);
	spin_unlock(&isolating_lock);
	return isolation->is_missed;
}

/* Called once the pages are put back. False if the @tries so far are enough. */
static bool isolates_anew(struct uvm_rust_isolation *isolation, unsigned int tries)
{
	if (isolation->missed) {
		uvm_mutex_lock(&isolation->missed->lock);
		uvm_mutex_unlock(&isolation->missed->lock);
		uvm_va_block_release(isolation->missed);
	} else if (tries < ISOLATE_TRIES_LOCKED) {
		usleep_range(100, 500);
	}
	return tries < (isolation->has_lock ? ISOLATE_TRIES_LOCKED : ISOLATE_TRIES) && !fatal_signal_pending(current);
}

/* Does the thread that has the turn go on? It isolates, or is about to. Called with isolating_lock. */
static bool turn_goes_on(void)
{
	struct uvm_rust_isolation *isolation;

	if (!time_after(jiffies, turn_since + msecs_to_jiffies(ISOLATE_TURN_MS)))
		return true;
	list_for_each_entry(isolation, &isolating, list)
		if (isolation->thread == has_turn)
			return true;
	return false;
}

/* Whether this thread has the turn; it takes one that nobody has, or whose thread has ended otherwise. */
static bool takes_turn(void)
{
	bool is_mine;

	spin_lock(&isolating_lock);
	if (!has_turn || (has_turn != current && !turn_goes_on())) {
		WRITE_ONCE(has_turn, current);
		turn_breaks = 0;
	}
	is_mine = has_turn == current;
	if (is_mine)
		turn_since = jiffies;
	spin_unlock(&isolating_lock);
	return is_mine;
}

static void ends_turn(void)
{
	bool was_mine;

	if (!READ_ONCE(has_turn))
		return;
	spin_lock(&isolating_lock);
	was_mine = has_turn == current;
	if (was_mine)
		WRITE_ONCE(has_turn, NULL);
	spin_unlock(&isolating_lock);
	if (was_mine)
		wake_up_all(&turns);
}

/*
 * Sleeps, for a random time. Threads that service faults do not wait for a turn, as other processes' faults wait for them; and two
 * of them, or one and a thread that has the turn, could miss each other for ever if isolating took as long as their breaks, and
 * these were alike.
 */
static void takes_break(void)
{
	unsigned long most;

	spin_lock(&isolating_lock);
	most = ISOLATE_BREAK_US << turn_breaks;
	if (turn_breaks < ISOLATE_BREAK_DOUBLED)
		turn_breaks++;
	spin_unlock(&isolating_lock);
	most = most / 4 + get_random_u32() % most;
	usleep_range(most, most + ISOLATE_BREAK_US / 4);
}

/*
 * Called by a thread that gave up, and is to isolate the same pages anew, with its va_block let go. Whose turn does not come goes
 * on without: who has it may need long.
 */
static void uvm_rust_isolation_turn(void)
{
	if (takes_turn() || current->flags & PF_KTHREAD)
		takes_break();
	else
		wait_event_killable_timeout(turns, takes_turn(), msecs_to_jiffies(ISOLATE_TURN_MS));
	if (fatal_signal_pending(current))
		ends_turn();
}

/* As Linux's, for a range that is within 2 MiB. If this thread gives up, @args say that there were no pages. */
static int uvm_rust_isolate_vma(struct migrate_vma *args)
{
	unsigned long pages = (args->end - args->start) >> PAGE_SHIFT;
	struct uvm_rust_isolation isolation;
	unsigned int tries = 0;
	int ret;

	if (!uvm_rust_fix_isolation && !uvm_rust_fix_two_spaces && !uvm_rust_fix_mm_gone) {
		uvm_rust_test_isolates();
		return migrate_vma_setup(args);
	}
	do {
		isolation_begins(&isolation, args);
		uvm_rust_test_isolates();
		ret = migrate_vma_setup(args);
		if (!isolation_missed(&isolation)) {
			ends_turn();
			return ret;
		}
		/* Linux puts back what has no new page. */
		memset(args->dst, 0, pages * sizeof(*args->dst));
		migrate_vma_finalize(args);
		memset(args->src, 0, pages * sizeof(*args->src));
		args->cpages = args->npages = 0;
	} while (isolates_anew(&isolation, ++tries));
	return ret;
}

/*
 * The same for @npages pages of a GPU. An eviction comes back to its pages by itself, and asks for them one by one: but only with
 * the fixes held and strays. NVIDIA's lines take a page that is not isolated for one that is gone.
 */
static int uvm_rust_isolate_range(unsigned long *src, unsigned long start, unsigned long npages)
{
	struct uvm_rust_isolation isolation;
	unsigned int tries = 0;
	int ret;

	if (!uvm_rust_fix_isolation || !uvm_rust_fix_held || !uvm_rust_fix_strays)
		return migrate_device_range(src, start, npages);
	do {
		isolation_begins(&isolation, NULL);
		ret = migrate_device_range(src, start, npages);
		if (!isolation_missed(&isolation))
			return ret;
		for (unsigned long i = 0; i < npages; i++) {
			unsigned long none = 0;

			migrate_device_finalize(src + i, &none, 1);
			src[i] = 0;
		}
	} while (!isolation.has_lock && isolates_anew(&isolation, ++tries));
	return ret;
}
