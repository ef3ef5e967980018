// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Where upstream discards by itself and all of ours is in it: where a root chunk goes of which upstream says that
 * it is discarded. Upstream and Rust are made up here.
 */
#include <string.h>

#include "whole.h"

static const char *called;
static __u32 queue;

void uvm_pmm_gpu_mark_root_chunk_discarded__c(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk) { called = "upstream"; }

static void set_queue(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk, __u32 to, uvm_va_space_t *holder)
{
	called = holder ? "wrong" : "ours";
	queue = to;
}

/* Not asked for here. */
bool uvm_va_space_has_integrated_gpu(uvm_va_space_t *va_space) { return false; }
uvm_va_range_t *uvm_va_space_iter_first(uvm_va_space_t *va_space, NvU64 start, NvU64 end) { return NULL; }
NV_STATUS uvm_va_range_discard(uvm_va_range_managed_t *range, uvm_va_block_context_t *context, NvU64 start, NvU64 end,
			       NvU64 flags) { return NV_OK; }

bool uvm_rust_fix_no_chunk = true;

#include "uvm_rust_on_discard.h"
#include "uvm_rust_on_queues.h"

static bool marks(uvm_gpu_chunk_t *chunk, const char *who)
{
	called = "nobody";
	uvm_pmm_gpu_mark_root_chunk_discarded(NULL, chunk);
	return !strcmp(called, who);
}

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - all of ours in 580: %s\n", holds ? "ok" : "not ok", ++number, name);
}

int main(void)
{
	printf("TAP version 13\n");
	static uvm_gpu_chunk_t chunk;

	say("what upstream has discarded goes by our queues", marks(&chunk, "ours") && queue == UVM_RUST_QUEUE_DISCARDED);
	say("a chunk that is not there goes by none", marks(NULL, "nobody"));
	uvm_rust_evict = false;
	say("or by its own lists", marks(&chunk, "upstream"));
	say("and by none of them either", marks(NULL, "nobody"));
	uvm_rust_fix_no_chunk = false;
	say("without the mend upstream's lists get it", marks(NULL, "upstream"));
	printf("1..%d\n", number);
	return failed;
}
