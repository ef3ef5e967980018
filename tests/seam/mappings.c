// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Which locks the thread waits for that maps what was evicted, and what it does without them: uvm_rust_mappings.h as it
 * is, with GPUs that fault and with one that cannot. Upstream and Linux are made up here.
 */
#define SEAM_VA_SPACE_FIELDS	int lock; bool non_faultable;
#define SEAM_VA_BLOCK_FIELDS	int references, eviction_mappings_q_item; bool queued;
#include "shim.h"

struct mm_struct { int lock; };

static struct mm_struct memory;
/* What a VA space has once a sleep is over, if that is another one. */
static struct mm_struct *changes_to;
static uvm_va_space_t va_space;
static uvm_va_block_t va_block;
static struct { nv_kthread_q_t global_q; } g_uvm_global;
/* Whether somebody has the locks for good; how often the thread slept, waited, and slept with a lock. */
static bool mm_taken, space_taken;
static int slept, waited, slept_locked;

bool uvm_rust_fix_mappings, uvm_rust_fix_forked;

typedef enum { UVM_PROT_NONE, UVM_PROT_READ_ONLY, UVM_PROT_READ_WRITE } uvm_prot_t;
static bool is_ordinary;
#define uvm_va_block_is_hmm(block)		((void)(block), is_ordinary)

static bool has_fatal_engines;
/* The time in milliseconds, and from which sleep on the locks are free; until then that of the memory, too, is taken. */
static unsigned long jiffies = 1000;
static int free_after;

#define HZ					1000
#define NSEC_PER_MSEC				1000000
#define time_after(a, b)			((long)((b) - (a)) < 0)
#define ktime_get_ns()				((unsigned long long)jiffies * NSEC_PER_MSEC)
#define uvm_rust_has_fatal_engines()		has_fatal_engines
#define uvm_rust_has_non_faultable(space)	((space)->non_faultable)
#define uvm_va_block_retain(block)		((void)(block)->references++)
#define uvm_va_block_release_no_destroy(block)	((void)(block)->references--)

static void usleep_range(unsigned long least, unsigned long most)
{
	slept++;
	jiffies += most / 1000;
	if (free_after)
		mm_taken = slept < free_after;
	if (slept == free_after)
		space_taken = false;
	slept_locked += memory.lock || va_space.lock;
}

static int nv_kthread_q_schedule_q_item(nv_kthread_q_t *q, int *item)
{
	bool was_queued = va_block.queued;

	va_block.queued = true;
	return q == &g_uvm_global.global_q && item == &va_block.eviction_mappings_q_item && !was_queued;
}

static struct mm_struct *uvm_va_space_mm_retain_lock(uvm_va_space_t *space)
{
	waited += mm_taken;
	memory.lock++;
	return &memory;
}

static void uvm_va_space_mm_release_unlock(uvm_va_space_t *space, struct mm_struct *mm)
{
	if (mm)
		mm->lock--;
}

static void uvm_va_space_down_read(uvm_va_space_t *space)
{
	waited += space_taken;
	space->lock++;
}

static bool uvm_down_read_trylock(int *lock)
{
	*lock += !space_taken;
	return !space_taken;
}

_Bool uvm_seam_mm_lock(struct uvm_seam_space *space, _Bool waits, struct mm_struct **locked)
{
	*locked = slept && changes_to ? changes_to : &memory;
	waited += waits;
	(*locked)->lock += !mm_taken;
	return !mm_taken;
}

#include "uvm_rust_mappings.h"

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - mappings of what was evicted: %s\n", holds ? "ok" : "not ok", ++number, name);
}

/* What the hooks make of both; whether the va_block is looked at. All that is taken is given back then. */
static bool looks(bool fix, bool mm, bool space, bool non_faultable)
{
	struct mm_struct *locked = NULL;
	bool got = false;

	uvm_rust_fix_mappings = fix;
	mm_taken = mm;
	space_taken = space;
	va_space = (uvm_va_space_t){ .non_faultable = non_faultable };
	memory.lock = slept = waited = slept_locked = 0;
	if (uvm_rust_mappings_mm(&va_space, &va_block, &locked)) {
		got = uvm_rust_mappings_space(&va_space, &va_block, &locked);
		va_space.lock -= got;
	}
	uvm_va_space_mm_release_unlock(&va_space, locked);
	return got;
}

/* Nothing is left taken, and the va_block has so many references and is queued, or not. */
static bool leaves(int references, bool queued)
{
	bool so = !memory.lock && !va_space.lock && !slept_locked && va_block.references == references &&
		  va_block.queued == queued;

	va_block = (uvm_va_block_t){ 0 };
	return so;
}

#define TRIES	UVM_RUST_MAPPINGS_TRIES

/* Whether the thread sleeps no more than it may, however many refuse their locks in turns. */
static bool sleeps_seldom(void)
{
	int all = 0, i;

	jiffies += 1000;
	for (i = 0; i < 100; i++) {
		looks(true, i & 1, !(i & 1), false);
		all += slept;
	}
	jiffies += 1000;
	return all == UVM_RUST_MAPPINGS_SLEEPS;
}

int main(void)
{
	printf("TAP version 13\n");
	say("with both locks the va_block is looked at", looks(true, false, false, false) && !waited && leaves(0, false));
	say("nobody waits for the memory's", !looks(true, true, false, false) && !waited && slept == TRIES && leaves(0, false));
	say("nor for the VA space's", !looks(true, false, true, false) && !waited && slept == TRIES && leaves(0, false));
	say("many that refuse cost a part of the time", sleeps_seldom() && leaves(0, false));
	free_after = 3;
	say("who has the memory's for a moment costs no mapping", looks(true, true, false, false) && slept == 3 && leaves(0, false));
	say("nor who has the VA space's, and then the memory's", looks(true, false, true, false) && slept == 3 && leaves(0, false));
	changes_to = &(struct mm_struct){ 0 };
	say("but not for another memory than it was begun for", !looks(true, false, true, false) && slept == 3 &&
	    !changes_to->lock && leaves(0, false));
	changes_to = NULL;
	free_after = 0;
	say("where a GPU cannot fault it is looked at later", !looks(true, true, false, true) && !waited && leaves(1, true));
	jiffies += 10;
	say("after a sleep", !looks(true, false, true, true) && !waited && slept == TRIES + 1 && leaves(1, true));
	say("which is for all that a millisecond has", !looks(true, false, true, true) && slept == TRIES && leaves(1, true));
	has_fatal_engines = true;
	say("and where a copy engine's faults are fatal", !looks(true, true, false, false) && leaves(1, true));
	has_fatal_engines = false;
	va_block.queued = true;
	say("once, if it was queued meanwhile", !looks(true, true, false, true) && leaves(0, true));
	say("without the mend the thread waits for both", looks(false, true, true, false) && waited == 2 && leaves(0, false));
	uvm_rust_fix_forked = true;
	say("managed memory that nobody faulted for may be written to",
	    uvm_rust_unasked_prot(&va_block, UVM_PROT_READ_WRITE) == UVM_PROT_READ_WRITE);
	is_ordinary = true;
	say("ordinary memory may be read", uvm_rust_unasked_prot(&va_block, UVM_PROT_READ_WRITE) == UVM_PROT_READ_ONLY);
	say("if at all", uvm_rust_unasked_prot(&va_block, UVM_PROT_NONE) == UVM_PROT_NONE);
	uvm_rust_fix_forked = false;
	say("and written to without the mend", uvm_rust_unasked_prot(&va_block, UVM_PROT_READ_WRITE) == UVM_PROT_READ_WRITE);
	printf("1..%d\n", number);
	return failed;
}
