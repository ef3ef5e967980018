// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A process' memory that UVM keeps, and that no process has any more.
 *
 * By UVM_MM_INITIALIZE a file keeps the memory of a process (mm_users) until it is closed. If that memory refers to the file it never is: so it is
 * where a ring of io_uring's is mapped, with which the file is registered. Nobody is left then whom an administrator could kill, and
 * what the VA space has of GPUs and of the host stays until the system is started anew. Or another process has the file, and kernels of a
 * process that has gone go on.
 *
 * Once no process has the memory none will have it again, and Linux notes that (mm_update_next_owner()). So a work item looks for it every few
 * seconds, as long as any memory is kept, and another one gives it back as if the file were closed. A process that ends leaves its memory a moment
 * before it closes its files: so that only is done the second time that the memory is found. Whoever closes the file after that leaves the
 * memory alone.
 *
 * Linux notes it for memory cgroups: without CONFIG_MEMCG none is found.
 */
#include <linux/file.h>
#include <linux/sched/mm.h>
#include <linux/workqueue.h>

#include "uvm_api.h"
#include "uvm_common.h"
#include "uvm_global.h"
#include "uvm_lock.h"
#include "uvm_va_space.h"
#include "uvm_va_space_mm.h"

#include "uvm_rust_charge.h"
#include "uvm_rust_fixes.h"
#include "uvm_rust_resume.h"

#define EVERY (5 * HZ)

/* What becomes of memory that is kept: a VA space's uvm_rust_orphan. */
enum {
	KEPT,
	/* No process has it. */
	FOUND,
	/* Ours gives it back. */
	TAKEN,
};

static void look(struct work_struct *work);

/* Of the latter, and of what it finds: each of these may wait for as long as others use the memory. */
static struct workqueue_struct *queue;
static DECLARE_DEFERRABLE_WORK(looks, look);

/*
 * CPUs fault on what has been on a GPU, also beside whoever gives the memory back: another thread of the process, or one that reads its
 * memory. They look at the mm more than once with the VA space's lock, so it does not go meanwhile.
 */
void uvm_rust_mm_gone(uvm_va_space_t *va_space)
{
	if (!uvm_rust_fix_mm_gone)
		return;
	uvm_va_space_down_write(va_space);
	va_space->va_space_mm.mm = NULL;
	uvm_va_space_up_write(va_space);
}

/* Does what uvm.c does when the file is closed that keeps the memory. The VA space is kept by a reference on its own file. */
static void give_back(uvm_va_space_t *va_space)
{
	struct file *uvm_file = va_space->uvm_rust_kept;
	struct mm_struct *mm = va_space->va_space_mm.mm;

	/* Nobody is called by RM while the system sleeps. */
	uvm_rust_mm_unregister(va_space, true);
	uvm_rust_mm_gone(va_space);
	mmput(mm);
	va_space->va_space_mm.mm = NULL;
	/* By which the VA space may go. */
	fput(uvm_file);
}

static void give_back_entry(struct work_struct *work)
{
	UVM_ENTRY_VOID(give_back(container_of(work, uvm_va_space_t, uvm_rust_ends)));
}

/* Looks at @va_space; whether its memory is kept, and may become what look() is after. Caller holds the list's lock. */
static bool look_at(uvm_va_space_t *va_space)
{
	uvm_va_space_mm_t *va_space_mm = &va_space->va_space_mm;
	bool is_kept;

	uvm_spin_lock(&va_space_mm->lock);
	/* Until this lock is let go that has a reference on the file, and on the mm. */
	is_kept = va_space->uvm_rust_kept && va_space->uvm_rust_orphan != TAKEN;
	if (is_kept && !uvm_rust_is_owned(va_space_mm->mm) && va_space->uvm_rust_orphan++ == FOUND) {
		get_file(va_space->uvm_rust_kept);
		queue_work(queue, &va_space->uvm_rust_ends);
	}
	uvm_spin_unlock(&va_space_mm->lock);
	return is_kept;
}

static void look_at_all(void)
{
	uvm_va_space_t *va_space;
	bool is_any_kept = false;

	uvm_mutex_lock(&g_uvm_global.va_spaces.lock);
	list_for_each_entry(va_space, &g_uvm_global.va_spaces.list, list_node)
		is_any_kept |= look_at(va_space);
	uvm_mutex_unlock(&g_uvm_global.va_spaces.lock);
	if (is_any_kept)
		queue_delayed_work(queue, &looks, EVERY);
}

static void look(struct work_struct *work)
{
	UVM_ENTRY_VOID(look_at_all());
}

void uvm_rust_orphans_keep(uvm_va_space_t *va_space, struct file *uvm_file)
{
	if (!uvm_rust_fix_orphans)
		return;
	va_space->uvm_rust_kept = uvm_file;
	INIT_WORK(&va_space->uvm_rust_ends, give_back_entry);
	queue_delayed_work(queue, &looks, EVERY);
}

bool uvm_rust_orphans_taken(uvm_va_space_t *va_space)
{
	bool is_taken;

	uvm_spin_lock(&va_space->va_space_mm.lock);
	is_taken = va_space->uvm_rust_orphan == TAKEN;
	if (!is_taken)
		va_space->uvm_rust_kept = NULL;
	uvm_spin_unlock(&va_space->va_space_mm.lock);
	return is_taken;
}

NV_STATUS uvm_rust_orphans_init(void)
{
	queue = alloc_workqueue("uvm_rust_orphans", WQ_UNBOUND, 0);
	return queue ? NV_OK : NV_ERR_NO_MEMORY;
}

void uvm_rust_orphans_exit(void)
{
	if (!queue)
		return;
	cancel_delayed_work_sync(&looks);
	destroy_workqueue(queue);
	queue = NULL;
}
