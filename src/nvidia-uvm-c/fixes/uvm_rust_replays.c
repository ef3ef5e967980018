// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Of which batches of faults a VA space is to hear that they are replayed: uvm_rust_replays.h. */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "uvm_rust_replays.h"

/* A replay is told once its push is known to have ended, and a channel has this many of them under way. */
#define BATCHES	1024

/* Batches of one GPU's buffer of faults, by number; all are @newest or up to BATCHES before it. */
struct batches {
	NvU32 newest;
	/* The last that it heard of, which may be replayed more than once; valid if @has_heard. */
	NvU32 heard;
	bool has_heard;
	/* Those with faults of which no replay has been told. */
	DECLARE_BITMAP(due, BATCHES);
};

struct uvm_rust_replays {
	/* Of all that follows; nothing else is locked, and nobody sleeps with it. */
	spinlock_t lock;
	struct batches of[UVM_PARENT_ID_MAX_GPUS][UVM_FAULT_CLIENT_TYPE_COUNT];
};

bool uvm_rust_replays_listen(uvm_va_space_t *va_space, NvU64 events)
{
	struct uvm_rust_replays *replays;

	if (!uvm_rust_fix_replays || !(events & (1ULL << UvmEventTypeGpuFaultReplay)) || READ_ONCE(va_space->uvm_rust_replays))
		return true;
	replays = kvzalloc(sizeof(*replays), GFP_KERNEL_ACCOUNT);
	if (!replays)
		return false;
	spin_lock_init(&replays->lock);
	/* Another thread may have been first. */
	if (cmpxchg(&va_space->uvm_rust_replays, NULL, replays))
		kvfree(replays);
	return true;
}

void uvm_rust_replays_note(uvm_va_space_t *va_space, uvm_gpu_t *gpu, const uvm_fault_buffer_entry_t *fault, NvU32 batch)
{
	struct uvm_rust_replays *replays = READ_ONCE(va_space->uvm_rust_replays);
	/* What a copy engine's fault is replayed by tells its client; a replay of the others is always a GPC's. */
	uvm_fault_client_type_t client = fault->is_replayable ? UVM_FAULT_CLIENT_TYPE_GPC : fault->fault_source.client_type;
	struct batches *batches;
	NvS32 ahead;

	if (!replays)
		return;
	batches = &replays->of[uvm_parent_id_gpu_index(gpu->parent->id)][client];
	spin_lock(&replays->lock);
	ahead = (NvS32)(batch - batches->newest);
	if (ahead < 0 || ahead >= BATCHES)
		bitmap_zero(batches->due, BATCHES);
	for (; ahead > 0 && ahead < BATCHES; ahead--)
		__clear_bit((batch - ahead + 1) % BATCHES, batches->due);
	batches->newest = batch;
	__set_bit(batch % BATCHES, batches->due);
	spin_unlock(&replays->lock);
}

/* Takes what is due in @batch and before; whether there was any. Caller holds the lock. */
static bool take_due(struct batches *batches, NvU32 batch)
{
	NvU32 after = batches->newest - batch, i;
	bool any = false;

	if (bitmap_empty(batches->due, BATCHES))
		return false;
	if ((NvS32)after < 0)
		after = 0;
	for (i = after; i < BATCHES; i++)
		any |= __test_and_clear_bit((batches->newest - i) % BATCHES, batches->due);
	return any;
}

bool uvm_rust_replays_hears(uvm_va_space_t *va_space, NvU32 parent, uvm_fault_client_type_t client, NvU32 batch)
{
	struct uvm_rust_replays *replays = READ_ONCE(va_space->uvm_rust_replays);
	struct batches *batches;
	bool hears;

	if (!uvm_rust_fix_replays)
		return true;
	if (!replays)
		return false;
	batches = &replays->of[parent][client];
	spin_lock(&replays->lock);
	hears = take_due(batches, batch);
	if (hears) {
		batches->heard = batch;
		batches->has_heard = true;
	} else {
		hears = batches->has_heard && batches->heard == batch;
	}
	spin_unlock(&replays->lock);
	return hears;
}

void uvm_rust_replays_forget(uvm_va_space_t *va_space, uvm_gpu_t *gpu)
{
	struct uvm_rust_replays *replays = READ_ONCE(va_space->uvm_rust_replays);

	if (!replays)
		return;
	spin_lock(&replays->lock);
	memset(replays->of[uvm_parent_id_gpu_index(gpu->parent->id)], 0, sizeof(replays->of[0]));
	spin_unlock(&replays->lock);
}

void uvm_rust_replays_end(uvm_va_space_t *va_space)
{
	kvfree(va_space->uvm_rust_replays);
	va_space->uvm_rust_replays = NULL;
}
