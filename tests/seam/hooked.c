// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * uvm_rust_seam.c where all hooks are in upstream: the order of what belongs to an eviction of a va_block's chunks.
 * What it calls besides is in native.c.
 */
#include "uvm_rust_hooks.h"
#include "uvm_rust_fixes.h"

#undef UVM_RUST_HOOKED
#define UVM_RUST_HOOKED	true

#define main native_main
#include "native.c"
#undef main

#include "uvm_rust_seam.c"

bool uvm_rust_announce, uvm_rust_fault;
NV_STATUS uvm_rust_notifier_init(void) { return NV_OK; }
void uvm_rust_notifier_exit(void) { }
NV_STATUS uvm_rust_files_init(void) { return NV_OK; }
void uvm_rust_files_exit(void) { }
NV_STATUS uvm_rust_orphans_init(void) { return NV_OK; }
void uvm_rust_orphans_exit(void) { }
void uvm_rust_nobodies_exit(void) { }
void uvm_rust_charge_exit(void) { }
__u32 uvm_rust_init(void) { return NV_OK; }
void uvm_rust_exit(void) { }
void uvm_rust_space_stop(struct uvm_rust_space *space) { }
void uvm_rust_on_block_destroy(UVM_RUST_EVENT_SPACE uvm_perf_event_t event_id, uvm_perf_event_data_t *data) { }
void uvm_rust_on_range_destroy(UVM_RUST_EVENT_SPACE uvm_perf_event_t event_id, uvm_perf_event_data_t *data) { }

static uvm_va_block_t block = { .start = 0x400000 };
static bool is_nobodys, dies;
static NV_STATUS drop_ends;

bool uvm_rust_is_nobody(const uvm_va_block_t *of) { return of == &block && is_nobodys; }

NV_STATUS uvm_rust_drop_needless(uvm_va_block_t *of, uvm_gpu_t *gpu, uvm_gpu_chunk_t *root_chunk)
{
	note("x");
	if (dies)
		of->va_space = NULL;
	return drop_ends;
}

/* Evicts, with these ends; whether the eviction ended like this, after so much was done. */
static bool evicts(NV_STATUS drop, NV_STATUS end, NV_STATUS what, const char *done)
{
	static uvm_va_space_t va_space = { .uvm_rust = (struct uvm_rust_space *)&did };
	uvm_gpu_chunk_t chunk = { .address = 3 * UVM_CHUNK_SIZE_MAX };

	did[0] = 0;
	block.va_space = &va_space;
	drop_ends = drop;
	eviction_ends = end;
	return uvm_va_block_evict_chunks(&block, &gpu, &chunk, NULL) == what && !strcmp(did, done);
}

static void tell(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - seam with all hooks: %s\n", holds ? "ok" : "not ok", ++number, name);
}

int main(void)
{
	printf("TAP version 13\n");
	tell("what nobody needs is dropped before the rest is evicted, and both are told of",
	     evicts(NV_OK, NV_OK, NV_OK, "nxct") && told_of == block.start);
	tell("what cannot be dropped is not evicted",
	     evicts(NV_ERR_NO_MEMORY, NV_OK, NV_ERR_NO_MEMORY, "nxt"));
	tell("an eviction that moved nothing is none that failed",
	     evicts(NV_OK, NV_WARN_MORE_PROCESSING_REQUIRED, NV_OK, "nxct") && told_of == block.start);
	dies = true;
	tell("a VA space that has gone meanwhile is told nothing", evicts(NV_OK, NV_OK, NV_OK, "nxc"));
	dies = false;
	is_nobodys = true;
	tell("of a va_block that is nobody's no VA space is asked for", evicts(NV_OK, NV_OK, NV_OK, ""));
	printf("1..%d\n", number);
	return failed;
}
