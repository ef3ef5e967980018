/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The boundary between the C and the Rust of vgpu.ko; kernel/entry.rs is the
 * other side.
 *
 * Functions that return int give 0 or a negative errno, and change nothing when
 * they fail. All take the GPU's mutex inside and may sleep; none calls UVM. A
 * struct vgpu_rs * is what vgpu_rs_create gave, until vgpu_rs_destroy, which
 * nothing may run along with. Pointers are valid for the length of the call.
 */
#ifndef VGPU_RS_H
#define VGPU_RS_H

#include <linux/refcount.h>
#include <linux/types.h>

/* Offsets in the register page: core/gpu.rs, mod reg. */
#define VGPU_REG_TIME_LOW	0x00
#define VGPU_REG_TIME_HIGH	0x04
#define VGPU_REG_FAULT_GET	0x80
#define VGPU_REG_FAULT_PUT	0x84
#define VGPU_REG_COUNTER_GET	0xc0
#define VGPU_REG_COUNTER_PUT	0xc4
#define VGPU_REG_COPY_FAULT_GET	0xd0
#define VGPU_REG_COPY_FAULT_PUT	0xd4
#define VGPU_REG_PENDING	0xd8
#define VGPU_REG_SINK		0x100
#define VGPU_REG_COPY_FAULTS	0x800
#define VGPU_COPY_FAULTS	64

/* From there on, in words: the registers of interrupts and of the prefetch control. */
#define VGPU_SINK_FAULT_INTR		0
#define VGPU_SINK_FAULT_EN_SET		1
#define VGPU_SINK_FAULT_EN_CLEAR	2
#define VGPU_SINK_PREFETCH		3
#define VGPU_SINK_COUNTER_FULL		4
#define VGPU_SINK_COUNTER_INTR		5
#define VGPU_SINK_COUNTER_EN_SET	6
#define VGPU_SINK_COUNTER_EN_CLEAR	7

/* Offsets in a channel's control page. */
#define VGPU_CHANNEL_PUT	0
#define VGPU_CHANNEL_GET	4
#define VGPU_CHANNEL_NOTIFIER	64
#define VGPU_CHANNEL_DOORBELL	128
/* A channel's token is its number and this. */
#define VGPU_CHANNEL_TOKEN	0x80000000U
#define VGPU_NOTIFIER_STATUS	14

#define VGPU_FAULT_ENTRY_BYTES	32
#define VGPU_COUNTER_BYTES	(256 * 32)
#define VGPU_RESERVED_BYTES	(2ULL << 20)

/* A handle's bits below its GPU's number, which is counted from 1. */
#define VGPU_HANDLE_BITS	27

struct vgpu_rs;
struct vgpu_mem;
struct vgpu_op;
struct vgpu_wait;
struct vgpu_translate;

struct vgpu_rs_config {
	void *vidmem;		/* vidmem_bytes long, for the life of the GPU */
	u64 vidmem_bytes;
	u64 seed;		/* of the adversarial order */
	u32 index;
	u32 personality;
	u32 fault_entries;
	u8 tlb;
	u8 drop_invalidates;
	u8 poison;
	u8 zero;
	u8 adversarial;
};

/* What the chosen GPU is called and numbered. */
struct vgpu_rs_chip {
	u8 name[32];
	u32 architecture;
	u32 implementation;
	u32 host_class;
	u32 ce_class;
	u32 compute_class;
	u32 tpcs_per_gpc;
	u32 utlb_count;
	u32 utlb_faults;
	u32 nvlink;		/* generation, 0 without */
	u32 nvlink_mbps;	/* MB/s of one link, in a direction */
};

struct vgpu_rs_pma_request {
	u64 count;
	u64 page_bytes;
	u64 begin;
	u64 end;
	u8 contiguous;
	u8 partial;
	u8 pinned;
	u8 no_zero;
	/* out */
	u8 is_zero;
	u64 got;
};

struct vgpu_rs_counts {
	u64 total_2m;
	u64 free_64k;
	u64 free_2m;
};

int vgpu_rs_create(const struct vgpu_rs_config *config, struct vgpu_rs **out);
void vgpu_rs_destroy(struct vgpu_rs *rs);

/* The emulator's turn: 1 if anything was executed. */
int vgpu_rs_run(struct vgpu_rs *rs);
void vgpu_rs_count_interrupt(struct vgpu_rs *rs);

void vgpu_rs_chip(struct vgpu_rs *rs, struct vgpu_rs_chip *out);
void *vgpu_rs_registers(struct vgpu_rs *rs);
void *vgpu_rs_fault_buffer(struct vgpu_rs *rs);
void *vgpu_rs_counter_buffer(struct vgpu_rs *rs);

/* RM's part. Address spaces are named by number. */
int vgpu_rs_space_create(struct vgpu_rs *rs, u64 *space);
int vgpu_rs_space_dup(struct vgpu_rs *rs, u32 h_client, u32 h_vaspace, u64 *space);
int vgpu_rs_space_destroy(struct vgpu_rs *rs, u64 space);
int vgpu_rs_space_set_pdb(struct vgpu_rs *rs, u64 space, u64 at, bool vidmem);
int vgpu_rs_space_unset_pdb(struct vgpu_rs *rs, u64 space);
int vgpu_rs_buffer_alloc(struct vgpu_rs *rs, u64 space, u64 bytes, u64 align, u64 *va);
int vgpu_rs_buffer_free(struct vgpu_rs *rs, u64 space, u64 va);
int vgpu_rs_buffer_map(struct vgpu_rs *rs, u64 space, u64 va, u64 bytes, void **out);
/* The buffer that starts at @va, to be put; and its address elsewhere, which
 * takes the reference over unless it fails.
 */
int vgpu_rs_buffer_share(struct vgpu_rs *rs, u64 space, u64 va, struct vgpu_mem **out);
int vgpu_rs_buffer_adopt(struct vgpu_rs *rs, u64 space, struct vgpu_mem *mem, u64 align, u64 *va);
int vgpu_rs_channel_create(struct vgpu_rs *rs, u64 space, u32 engine, u32 entries,
			   u32 *channel, void **ring, void **control);
int vgpu_rs_channel_destroy(struct vgpu_rs *rs, u32 channel);
int vgpu_rs_faults_reset(struct vgpu_rs *rs);
int vgpu_rs_counters_reset(struct vgpu_rs *rs);
void vgpu_rs_counters_enable(struct vgpu_rs *rs, u32 granularity, u32 threshold);
void vgpu_rs_counters_disable(struct vgpu_rs *rs);
int vgpu_rs_user_channel_retain(struct vgpu_rs *rs, u64 space, u32 h_client, u32 h_channel,
				u64 *instance);
int vgpu_rs_user_channel_stop(struct vgpu_rs *rs, u32 h_channel);
int vgpu_rs_user_channel_release(struct vgpu_rs *rs, u32 h_channel);

/*
 * Makes the GPU of index @gpu, whose memory is @vidmem, a peer, with the number @id here, or parts with it.
 * The memory is there until then. -EBUSY if it is a peer.
 */
int vgpu_rs_peer_add(struct vgpu_rs *rs, u32 gpu, void *vidmem, u64 bytes, bool has_atomics, u32 *id);
int vgpu_rs_peer_remove(struct vgpu_rs *rs, u32 gpu);

/* @pages has count entries, or 1 if contiguous. */
int vgpu_rs_pma_alloc(struct vgpu_rs *rs, struct vgpu_rs_pma_request *ask, u64 *pages);
int vgpu_rs_pma_free(struct vgpu_rs *rs, const u64 *pages, u64 count, u64 page_bytes,
		     bool contiguous);
int vgpu_rs_pma_pin(struct vgpu_rs *rs, const u64 *pages, u64 count, u64 page_bytes);
void vgpu_rs_pma_counts(struct vgpu_rs *rs, struct vgpu_rs_counts *out);
int vgpu_rs_eviction_begin(struct vgpu_rs *rs, u64 begin, u64 end);
/* Gives the number of 2 MiB pages taken, at most @max. */
u64 vgpu_rs_eviction_end(struct vgpu_rs *rs, u64 begin, u64 end, u64 *pages, u64 max);

/* The part of /dev/vgpu. */
int vgpu_rs_vaspace_create(struct vgpu_rs *rs, u32 h_client, u32 *h_vaspace);
/* @user: who opened the file, or VGPU_ADMIN, who has CAP_SYS_ADMIN. */
#define VGPU_ADMIN U32_MAX
int vgpu_rs_user_channel_create(struct vgpu_rs *rs, u32 h_client, u32 h_vaspace, u32 user,
				u32 *h_channel);
int vgpu_rs_handle_destroy(struct vgpu_rs *rs, u32 h_client, u32 handle);
void vgpu_rs_client_close(struct vgpu_rs *rs, u32 h_client);
int vgpu_rs_submit(struct vgpu_rs *rs, u32 h_client, u32 h_channel, const struct vgpu_op *ops,
		   u32 op_count, u32 utlb_faults, u64 *fence);
/* Waits up to @jiffies, fills the out fields. */
int vgpu_rs_wait(struct vgpu_rs *rs, u32 h_client, struct vgpu_wait *wait, unsigned long jiffies);
/* @counters: those of struct vgpu_stats, in order. */
void vgpu_rs_stats(struct vgpu_rs *rs, u64 *counters);
int vgpu_rs_inject(struct vgpu_rs *rs, u32 kind, u64 count, u64 skip, u32 handle);
/* Has a channel's copy engine access @va. */
int vgpu_rs_copy(struct vgpu_rs *rs, u32 h_channel, u64 va);
/* @counts: the accesses that such an engine has made, and their faults. */
int vgpu_rs_copies(struct vgpu_rs *rs, u32 h_channel, u64 counts[2]);
int vgpu_rs_translate(struct vgpu_rs *rs, u32 h_client, struct vgpu_translate *translate);

/* What C does for Rust. */

/*
 * Memory that buffers stand on: zeroed, page-aligned, counted, since two GPUs may
 * share it. NULL if there is none.
 */
struct vgpu_mem {
	void *data;
	u64 bytes;
	refcount_t refs;
};

struct vgpu_mem *vgpu_c_alloc(u64 bytes);
void vgpu_c_get(struct vgpu_mem *mem);
void vgpu_c_put(struct vgpu_mem *mem);
/* The page of RAM at a DMA address, NULL if there is none. */
void *vgpu_c_sysmem(u64 dma);

#endif
