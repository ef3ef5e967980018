/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the C files of vgpu.ko share. */
#ifndef VGPU_INTERNAL_H
#define VGPU_INTERNAL_H

#include "nv_uvm_interface.h"
#include "nvmisc.h"

#include <linux/irq_work.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/wait.h>

#include "vgpu_rs.h"

#define VGPU_MAX_GPUS	8

/**
 * struct vgpu - one software GPU, as RM's side of UVM's interface has it
 * @rs:          the emulator; has a mutex of its own inside
 * @registers:   its register page, shared with UVM; see vgpu_rs.h
 * @evict_lock:  guards the four fields after it. Held for reading while UVM's
 *               eviction callbacks run, so that UVM cannot take them away
 *               meanwhile. Outside of all of UVM's locks and of the mutex of @rs
 * @pma_stats:   what UVM reads at any time; written after each change
 * @emulator:    executes what UVM and users queued
 * @isr:         calls UVM's top half
 * @isr_wait:    where @isr sleeps while nothing is pending
 *
 * Made at load, gone at unload; UVM and open files keep the module loaded.
 */
struct vgpu {
	u32 index;
	u64 vidmem_bytes;
	void *vidmem;
	NvProcessorUuid uuid;
	struct pci_dev *pci;
	struct vgpu_rs *rs;
	void *registers;
	struct vgpu_rs_chip chip;
	u32 fault_entries;

	struct rw_semaphore evict_lock;
	uvmPmaEvictPagesCallback evict_pages;
	uvmPmaEvictRangeCallback evict_range;
	void *evict_data;

	UvmPmaStatistics pma_stats;

	struct task_struct *emulator;
	struct task_struct *isr;
	wait_queue_head_t isr_wait;
	struct irq_work isr_work;
};

extern struct vgpu *vgpu_gpus[VGPU_MAX_GPUS];
extern unsigned int vgpu_count;
extern bool vgpu_is_simulated;
extern bool vgpu_tlb, vgpu_poison, vgpu_adversarial;
extern unsigned int vgpu_personality;

/* By what GPUs reach each other. */
enum vgpu_link { VGPU_LINK_NONE, VGPU_LINK_PCIE, VGPU_LINK_NVLINK };
extern unsigned int vgpu_link;

#define VGPU_PCIE_MBPS	15754	/* PCIe 3 x16 */

/* The copy engine that writes best to a peer: the one that system memory does not want. */
#define VGPU_PEER_ENGINE	2

struct vgpu *vgpu_find(const NvProcessorUuid *uuid);

static inline u32 *vgpu_register(struct vgpu *g, u32 offset)
{
	return g->registers + offset;
}

/* rm.c: an error of the emulator's as UVM knows it, and one it cannot be told. */
NV_STATUS vgpu_to_nv(int err);
void vgpu_expect_ok(struct vgpu *g, const char *what, int err);

/* rm.c, for bases.c */
NV_STATUS vgpu_set_page_directory(uvmGpuAddressSpaceHandle vaSpace, u64 at, bool in_vidmem);
void vgpu_counters_enable(uvmGpuDeviceHandle device, u32 granularity, u32 threshold);

/* bases.c: what only some drivers have of these. */
void vgpu_base_gpu_info(UvmGpuInfo *info);
void vgpu_base_channel(struct vgpu *g, UvmGpuChannelInstanceInfo *info);

/* pma.c */
void vgpu_update_pma_stats(struct vgpu *g);

/**
 * struct vgpu_uvm - what UVM has RM call; all NULL while it is not there
 * @top_half: looks at the buffers of a GPU, and says whether there was something
 * @suspend:  ends what UVM does, before the system sleeps
 * @resume:   lets it go on
 */
struct vgpu_uvm {
	uvmEventIsrTopHalf_t top_half;
	uvmEventSuspend_t suspend;
	uvmEventResume_t resume;
};

/* interrupt.c */
NV_STATUS vgpu_register_uvm(const struct vgpu_uvm *who);
void vgpu_deregister_uvm(void);
int vgpu_interrupt_start(struct vgpu *g, bool hard);
void vgpu_interrupt_stop(struct vgpu *g);
bool vgpu_interrupt_pending(struct vgpu *g);
u32 vgpu_copy_faults(struct vgpu *g);
extern struct rw_semaphore vgpu_awake;
int vgpu_suspend(unsigned int ms, u32 *status);

/* dev.c */
int vgpu_dev_register(void);
void vgpu_dev_unregister(void);

#endif
