// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Where upstream discards by itself and all of ours is in it: which discard a program gets, and where a root
 * chunk goes of which upstream says that it is discarded. Here are upstream and Rust.
 */
#include <string.h>

#include "whole.h"

static const char *called;
static __u64 base, length;
static bool was_eager;
static __u32 result, queue;

NV_STATUS uvm_api_discard__c(UVM_DISCARD_PARAMS *params, struct file *file)
{
	called = "upstream";
	return result;
}

void uvm_pmm_gpu_mark_root_chunk_discarded__c(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk) { called = "upstream"; }

static uvm_va_space_t the_space;
uvm_va_space_t *uvm_va_space_get(struct file *file) { return &the_space; }

__u32 uvm_seam_discard(struct uvm_seam_space *space, __u64 at, __u64 bytes, bool eager, struct uvm_seam_discarded *counts)
{
	called = space == (struct uvm_seam_space *)&the_space && counts && !counts->discarded ? "ours" : "wrong";
	base = at;
	length = bytes;
	was_eager = eager;
	return result;
}

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

#include "uvm_rust_on_discard.h"
#include "uvm_rust_on_queues.h"

/* Who answered a call, and what. */
static bool answers(__u64 flags, const char *who, NV_STATUS what)
{
	UVM_DISCARD_PARAMS params = { .base = 0x200000, .length = 0x1000, .flags = flags };

	called = "nobody";
	return uvm_api_discard(&params, NULL) == what && !strcmp(called, who);
}

static bool marks(const char *who)
{
	called = "nobody";
	uvm_pmm_gpu_mark_root_chunk_discarded(NULL, NULL);
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
	result = NV_ERR_INVALID_ADDRESS;
	say("the lazy discard is ours", answers(0, "ours", result) && base == 0x200000 && length == 0x1000 && !was_eager);
	say("and the eager one", answers(UVM_DISCARD_FLAGS_UNMAP, "ours", result) && was_eager);
	say("and there is no other", answers(2, "nobody", NV_ERR_INVALID_ARGUMENT) &&
	    answers(1ull << 40 | 1, "nobody", NV_ERR_INVALID_ARGUMENT));
	uvm_rust_discard = false;
	say("with uvm_rust_discard=0 it is upstream's, whatever it is",
	    answers(0, "upstream", result) && answers(2, "upstream", result));
	say("which then goes by our queues", marks("ours") && queue == UVM_RUST_QUEUE_DISCARDED);
	uvm_rust_evict = false;
	say("or by its own lists", marks("upstream"));
	printf("1..%d\n", number);
	return failed;
}
