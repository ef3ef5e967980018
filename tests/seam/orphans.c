// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Which process' memory that UVM keeps is given back by ours, when, and once: uvm_rust_orphans.c as it is. Linux's work items run when a test says
 * so, and upstream's file is closed by close_mm().
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define HZ				100
#define WQ_UNBOUND			0
#define container_of(at, type, member)	((type *)((char *)(at) - offsetof(type, member)))

typedef enum { NV_OK, NV_ERR_NO_MEMORY } NV_STATUS;
struct file { int references; };
struct task_struct { int dummy; };
struct mm_struct { struct task_struct *owner; int users; };
struct work_struct { void (*run)(struct work_struct *); bool is_queued; };
struct workqueue_struct { bool is_there; };
typedef struct { struct mm_struct *mm; int lock; bool is_alive; } uvm_va_space_mm_t;
typedef struct uvm_va_space {
	uvm_va_space_mm_t va_space_mm;
	int lock;
	struct uvm_va_space *next;
	struct file *uvm_rust_kept;
	int uvm_rust_orphan;
	struct work_struct uvm_rust_ends;
	bool uvm_rust_pm_locked;
} uvm_va_space_t;

static bool uvm_rust_fix_orphans, uvm_rust_fix_mm_gone = true, uvm_rust_fix_resume = true, has_memory;
static struct { struct { int lock; uvm_va_space_t *list; } va_spaces; struct { int lock; } pm; } g_uvm_global;
static struct workqueue_struct the_queue;
static int unregistered, wrong;
static bool locked_without_mm, stayed_awake;

#define DECLARE_DEFERRABLE_WORK(name, f)	struct work_struct name = { f, false }
#define INIT_WORK(work, f)			((work)->run = (f))
#define UVM_ENTRY_VOID(call)			call
#define list_for_each_entry(at, head, member)	for ((at) = *(head); (at); (at) = (at)->next)
#define uvm_spin_lock(taken)			((*(taken))++)
#define uvm_spin_unlock(taken)			((*(taken))--)
#define uvm_mutex_lock(taken)			((*(taken))++)
#define uvm_mutex_unlock(taken)			((*(taken))--)
#define uvm_down_read(taken)			((*(taken))++)
#define uvm_up_read(taken)			((*(taken))--)
#define get_file(file)				((file)->references++)
#define queue_work(queue, work)			((work)->is_queued = (queue)->is_there)
#define queue_delayed_work(queue, work, later)	((work)->is_queued = (queue)->is_there && (later) > HZ)
#define cancel_delayed_work_sync(work)		((work)->is_queued = false)
#define alloc_workqueue(...)			(has_memory ? the_queue.is_there = true, &the_queue : NULL)
#define destroy_workqueue(queue)		((queue)->is_there = false)
#define uvm_rust_is_owned(mm)			((mm)->owner)

static uvm_va_space_t space, other;
static struct file file, others_file;
static struct mm_struct memory, others_memory;
static struct task_struct task;

static void uvm_rust_mm_shut_down(uvm_va_space_t *of);

/* As upstream's: no lock is held, but that of the system's sleep until it waits for others, and the memory and the file are there. */
static void uvm_va_space_mm_unregister(uvm_va_space_t *of)
{
	wrong += of->va_space_mm.lock || g_uvm_global.va_spaces.lock || !of->va_space_mm.is_alive || !of->va_space_mm.mm->users || file.references < 1;
	stayed_awake = g_uvm_global.pm.lock;
	uvm_rust_mm_shut_down(of);
	wrong += g_uvm_global.pm.lock;
	of->va_space_mm.is_alive = false;
	unregistered++;
}

/* For whoever has the VA space's lock, the mm has gone before it may be another process'. */
static void mmput(struct mm_struct *mm)
{
	wrong += mm != &memory || g_uvm_global.pm.lock || locked_without_mm != uvm_rust_fix_mm_gone;
	mm->users--;
}

/* Until this lock is let go, others have found the mm. */
static void uvm_va_space_up_write(uvm_va_space_t *of)
{
	wrong += --of->lock != 0;
	locked_without_mm = !of->va_space_mm.mm;
}

static void uvm_va_space_down_write(uvm_va_space_t *of)
{
	wrong += of->lock++ || !of->va_space_mm.mm;
}

static void fput(struct file *of)
{
	of->references--;
}

#include "orphans.h"

/* Both VA spaces' memory is kept, each by a file that has a reference on that of the VA space. */
static void begin(void)
{
	uvm_rust_orphans_exit();
	looks.is_queued = false;
	memory = others_memory = (struct mm_struct){ &task, 1 };
	file = others_file = (struct file){ 1 };
	space = (uvm_va_space_t){ .va_space_mm = { .mm = &memory, .is_alive = true }, .next = &other };
	other = (uvm_va_space_t){ .va_space_mm = { .mm = &others_memory, .is_alive = true } };
	g_uvm_global.va_spaces.list = &space;
	uvm_rust_fix_orphans = has_memory = true;
	unregistered = wrong = 0;
	locked_without_mm = stayed_awake = false;
	wrong += uvm_rust_orphans_init() != NV_OK;
	uvm_rust_orphans_keep(&space, &file);
	uvm_rust_orphans_keep(&other, &others_file);
}

static void run(struct work_struct *work)
{
	bool is_queued = work->is_queued;

	work->is_queued = false;
	if (is_queued)
		work->run(work);
}

/* As upstream's, with our hooks. */
static void close_mm(void)
{
	struct mm_struct *mm = space.va_space_mm.mm;

	if (!uvm_rust_orphans_taken(&space)) {
		uvm_rust_mm_unregister(&space, uvm_rust_fix_resume);
		uvm_rust_mm_gone(&space);
		mmput(mm);
		space.va_space_mm.mm = NULL;
	}
	fput(&file);
}

/* Whether the memory and the file were given back, once. */
static bool all_back(void)
{
	return unregistered == 1 && !memory.users && !file.references && !wrong && !space.va_space_mm.mm && !space.va_space_mm.lock && !g_uvm_global.pm.lock &&
	       !g_uvm_global.va_spaces.lock;
}

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - orphans: %s\n", holds ? "ok" : "not ok", ++number, name);
}

int main(void)
{
	printf("TAP version 13\n");
	begin();
	for (int i = 0; i < 3; i++)
		run(&looks);
	say("memory of a process stays, and is looked at again", looks.is_queued && !space.uvm_rust_ends.is_queued && !unregistered);
	memory.owner = NULL;
	run(&looks);
	say("that of none stays for a while, as who ends may be about to close the file", !space.uvm_rust_ends.is_queued);
	run(&looks);
	say("then it is given back", space.uvm_rust_ends.is_queued && !other.uvm_rust_ends.is_queued && file.references == 2);
	run(&looks);
	space.uvm_rust_ends.run(&space.uvm_rust_ends);
	say("with the reference that was taken for it", unregistered == 1 && file.references == 1 && !memory.users);
	say("and while the system does not sleep", stayed_awake);
	close_mm();
	say("and once, when the file is closed then", all_back());
	run(&looks);
	say("while others are looked at", looks.is_queued && !other.uvm_rust_ends.is_queued && others_memory.users == 1);

	begin();
	memory.owner = NULL;
	run(&looks);
	run(&looks);
	close_mm();
	say("who closes the file before that leaves it as well", !unregistered && file.references == 1);
	run(&space.uvm_rust_ends);
	say("and keeps the VA space from going", all_back());

	begin();
	uvm_rust_orphans_taken(&other);
	run(&looks);
	say("one that is kept is enough", looks.is_queued);

	begin();
	memory.owner = NULL;
	run(&looks);
	close_mm();
	say("who closes the file in time gives it back", all_back() && stayed_awake);
	run(&looks);
	say("and ours does not", !space.uvm_rust_ends.is_queued);
	uvm_rust_orphans_taken(&other);
	run(&looks);
	say("when nothing is kept any more, nobody looks", !looks.is_queued);

	begin();
	uvm_rust_orphans_exit();
	say("nor when the module goes", !looks.is_queued && !the_queue.is_there);
	has_memory = false;
	say("it does not come without memory", uvm_rust_orphans_init() == NV_ERR_NO_MEMORY);
	uvm_rust_orphans_exit();

	begin();
	looks.is_queued = false;
	space.uvm_rust_kept = NULL;
	uvm_rust_fix_orphans = false;
	uvm_rust_orphans_keep(&space, &file);
	close_mm();
	say("without the mend upstream gives it back alone", !looks.is_queued && !space.uvm_rust_kept && all_back());

	begin();
	uvm_rust_fix_mm_gone = false;
	close_mm();
	say("without mm_gone the mm goes without the VA space's lock", all_back());
	uvm_rust_fix_mm_gone = true;

	begin();
	uvm_rust_fix_resume = false;
	close_mm();
	say("without resume who closes the file does so while the system sleeps", all_back() && !stayed_awake);
	begin();
	memory.owner = NULL;
	run(&looks);
	run(&looks);
	space.uvm_rust_ends.run(&space.uvm_rust_ends);
	say("and ours does not", stayed_awake && unregistered == 1 && !wrong);
	printf("1..%d\n", number);
	return failed;
}
