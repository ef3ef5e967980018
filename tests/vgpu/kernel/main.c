// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * vgpu.ko: a software GPU that stands where nvidia.ko stands. This file loads
 * and unloads it: parameters, spare PCI devices, memory, threads.
 */
#define pr_fmt(fmt) "vgpu: " fmt

#include "vgpu.h"

#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "uapi/vgpu.h"

static unsigned int gpus = 1;
module_param(gpus, uint, 0444);
MODULE_PARM_DESC(gpus, "number of GPUs, 1 to 8; each needs a spare PCI device (QEMU's edu or pci-testdev)");

static unsigned int vidmem_mb[VGPU_MAX_GPUS] = { 256 };
static unsigned int vidmem_mb_count;
module_param_array(vidmem_mb, uint, &vidmem_mb_count, 0444);
MODULE_PARM_DESC(vidmem_mb, "MiB of memory of each GPU, even, at least 8 (default 256); the last value goes for the rest");

static char *personality = "turing";
module_param(personality, charp, 0444);
MODULE_PARM_DESC(personality, "turing, volta, ampere, hopper or blackwell");

static char *link = "pcie";
module_param(link, charp, 0444);
MODULE_PARM_DESC(link, "by which GPUs reach each other's memory: none, pcie or nvlink, which blackwell does not have");

unsigned int vgpu_link;

bool vgpu_tlb = true;
module_param_named(tlb, vgpu_tlb, bool, 0444);
MODULE_PARM_DESC(tlb, "cache translations, so that a missing invalidate shows (default on)");

static bool drop_invalidates;
module_param(drop_invalidates, bool, 0444);
MODULE_PARM_DESC(drop_invalidates, "ignore all TLB invalidates: what a driver without them would see");

bool vgpu_poison = true;
module_param_named(poison, vgpu_poison, bool, 0444);
MODULE_PARM_DESC(poison, "fill freed vidmem with a pattern (default on)");

static bool pma_zero;
module_param(pma_zero, bool, 0444);
MODULE_PARM_DESC(pma_zero, "zero vidmem before UVM gets it, and say so; off, UVM zeroes it itself (default off)");

static unsigned int fault_entries = 1024;
module_param(fault_entries, uint, 0444);
MODULE_PARM_DESC(fault_entries, "entries of the replayable fault buffer, 4 to 65536");

static char *irq = "thread";
module_param(irq, charp, 0444);
MODULE_PARM_DESC(irq, "where UVM's top half runs: thread, or hard for interrupt context");

static char *order = "kind";
module_param(order, charp, 0444);
MODULE_PARM_DESC(order, "of channels and kernels: kind, each in turn as far as it comes, or adversarial, as a seed says");

/* Drawn at load if it is not given, and then to be read. */
static unsigned long long seed;
module_param(seed, ullong, 0444);
MODULE_PARM_DESC(seed, "of the adversarial order; 0 for one that is drawn (default), which the log says");

bool vgpu_adversarial;

static unsigned int copy_mib_s;
module_param(copy_mib_s, uint, 0444);
MODULE_PARM_DESC(copy_mib_s, "MiB that the copy engines of a GPU copy in a second, 0 for as many as they can (default)");

bool vgpu_is_simulated;
module_param_named(is_simulated, vgpu_is_simulated, bool, 0444);
MODULE_PARM_DESC(is_simulated, "report the GPU as simulated, which changes UVM's defaults");

static char *facts = VGPU_FACTS;
module_param(facts, charp, 0444);
MODULE_PARM_DESC(facts, "of the driver that this is built for, for programs to read; not to be set");

struct vgpu *vgpu_gpus[VGPU_MAX_GPUS];
unsigned int vgpu_count;
unsigned int vgpu_personality;

/* PCI devices that were free to take. Filled by probe, at load only. */
static struct pci_dev *spare[VGPU_MAX_GPUS];
static unsigned int spare_count;

struct vgpu *vgpu_find(const NvProcessorUuid *uuid)
{
	unsigned int i;

	for (i = 0; i < vgpu_count; i++) {
		if (!memcmp(uuid, &vgpu_gpus[i]->uuid, sizeof(*uuid)))
			return vgpu_gpus[i];
	}
	return NULL;
}

struct vgpu_mem *vgpu_c_alloc(u64 bytes)
{
	struct vgpu_mem *mem = kzalloc(sizeof(*mem), GFP_KERNEL);

	if (!mem)
		return NULL;
	mem->data = vzalloc(bytes);
	if (!mem->data) {
		kfree(mem);
		return NULL;
	}
	mem->bytes = bytes;
	refcount_set(&mem->refs, 1);
	return mem;
}

void vgpu_c_get(struct vgpu_mem *mem)
{
	refcount_inc(&mem->refs);
}

void vgpu_c_put(struct vgpu_mem *mem)
{
	if (refcount_dec_and_test(&mem->refs)) {
		vfree(mem->data);
		kfree(mem);
	}
}

void *vgpu_c_sysmem(u64 dma)
{
	unsigned long pfn = dma >> PAGE_SHIFT;
	struct page *page;

	/* No IOMMU: DMA addresses are physical ones. */
	if (!pfn_valid(pfn))
		return NULL;
	page = pfn_to_page(pfn);
	if (is_zone_device_page(page))
		return NULL;
	/* The zero page is reserved and RAM; holes and MMIO are reserved only. */
	if (PageReserved(page) && !page_is_ram(pfn))
		return NULL;
	return page_address(page);
}

/* What @g's copy engines have copied. */
static u64 copied_bytes(struct vgpu *g)
{
	struct vgpu_stats stats;

	vgpu_rs_stats(g->rs, &stats.ce_copies);
	return stats.h2d_bytes + stats.d2h_bytes + stats.d2d_bytes + stats.virtual_bytes + stats.peer_bytes;
}

/*
 * Copies take their time, if there is a rate: the GPU does nothing else until the time of what it has copied is
 * over. A copy is seen before its own time is over, and the next one only after that.
 */
static void take_time(struct vgpu *g, u64 *copied, u64 *until)
{
	u64 now = ktime_get_ns(), bytes = copied_bytes(g) - *copied;

	if (!bytes)
		return;
	*copied += bytes;
	*until = max(*until, now) + div_u64(bytes * NSEC_PER_SEC, copy_mib_s) / SZ_1M;
	if (*until - now > NSEC_PER_MSEC)
		fsleep(div_u64(*until - now, NSEC_PER_USEC));
}

/*
 * The emulator polls: UVM writes PUT and the doorbell without any call. It stays
 * awake while there is work, and sleeps longer the longer there is none: each timer
 * keeps a thread of QEMU's busy that takes turns with the CPU that waits for us.
 */
static int emulator(void *arg)
{
	struct vgpu *g = arg;
	u64 copied = 0, until = 0;
	unsigned int idle = 0;

	while (!kthread_should_stop()) {
		if (vgpu_rs_run(g->rs))
			idle = 0;
		else
			idle++;
		if (vgpu_interrupt_pending(g)) {
			wake_up(&g->isr_wait);
			/* Only a turn says whether it is pending once more. */
			idle = min(idle, 50u);
		}
		if (copy_mib_s)
			take_time(g, &copied, &until);
		if (idle < 50)
			cond_resched();
		else if (idle < 150)
			usleep_range(50, 100);
		else if (idle < 400)
			usleep_range(200, 400);
		else
			usleep_range(1000, 2000);
	}
	return 0;
}

static int probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	int err;

	/* Not wanted: "no match", which makes no noise. */
	if (spare_count == gpus)
		return -ENODEV;
	err = pci_enable_device(pci);
	if (err)
		return err;
	err = dma_set_mask_and_coherent(&pci->dev, DMA_BIT_MASK(47));
	if (err) {
		pci_disable_device(pci);
		return err;
	}
	pci_set_master(pci);
	spare[spare_count++] = pci;
	return 0;
}

static void remove(struct pci_dev *pci)
{
	pci_disable_device(pci);
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) },		/* QEMU's edu */
	{ PCI_DEVICE(0x1b36, 0x0005) },		/* QEMU's pci-testdev */
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver driver = {
	.name = "vgpu",
	.id_table = ids,
	.probe = probe,
	.remove = remove,
	/* UVM holds the device as long as it has the GPU. */
	.driver = { .suppress_bind_attrs = true },
};

static void gpu_stop(struct vgpu *g)
{
	if (g->emulator)
		kthread_stop(g->emulator);
	g->emulator = NULL;
}

static void gpu_destroy(struct vgpu *g)
{
	if (!g)
		return;
	gpu_stop(g);
	vgpu_interrupt_stop(g);
	if (g->rs)
		vgpu_rs_destroy(g->rs);
	vfree(g->vidmem);
	kfree(g);
}

/* All of them stop before the first one goes: each may be a peer of it that uses its memory. */
static void destroy_all(void)
{
	unsigned int i;

	for (i = 0; i < vgpu_count; i++)
		gpu_stop(vgpu_gpus[i]);
	while (vgpu_count)
		gpu_destroy(vgpu_gpus[--vgpu_count]);
}

static struct vgpu *gpu_create(u32 index, struct pci_dev *pci)
{
	struct vgpu_rs_config config = {
		.index = index,
		.personality = vgpu_personality,
		.fault_entries = fault_entries,
		.tlb = vgpu_tlb,
		.drop_invalidates = drop_invalidates,
		.poison = vgpu_poison,
		.zero = pma_zero,
		.adversarial = vgpu_adversarial,
		.seed = seed,
	};
	struct vgpu *g = kzalloc(sizeof(*g), GFP_KERNEL);
	unsigned int n = max(vidmem_mb_count, 1u);
	int err;

	if (!g)
		return ERR_PTR(-ENOMEM);
	g->index = index;
	g->pci = pci;
	g->fault_entries = fault_entries;
	g->vidmem_bytes = (u64)vidmem_mb[min(index, n - 1)] << 20;
	memcpy(g->uuid.uuid, "vgpu", 4);
	g->uuid.uuid[15] = index + 1;
	init_rwsem(&g->evict_lock);
	init_waitqueue_head(&g->isr_wait);

	err = -ENOMEM;
	g->vidmem = vzalloc(g->vidmem_bytes);
	if (!g->vidmem)
		goto fail;
	config.vidmem = g->vidmem;
	config.vidmem_bytes = g->vidmem_bytes;
	err = vgpu_rs_create(&config, &g->rs);
	if (err) {
		g->rs = NULL;
		goto fail;
	}
	g->registers = vgpu_rs_registers(g->rs);
	vgpu_rs_chip(g->rs, &g->chip);
	vgpu_update_pma_stats(g);

	err = vgpu_interrupt_start(g, !strcmp(irq, "hard"));
	if (err)
		goto fail;
	g->emulator = kthread_run(emulator, g, "vgpu%u", index);
	if (IS_ERR(g->emulator)) {
		err = PTR_ERR(g->emulator);
		g->emulator = NULL;
		goto fail;
	}
	pr_info("GPU %u: %s, %llu MiB, at %s\n", index, g->chip.name, g->vidmem_bytes >> 20,
		pci_name(pci));
	return g;
fail:
	gpu_destroy(g);
	return ERR_PTR(err);
}

/* Refuses parameters by name, before anything is made. */
static int check_parameters(void)
{
	static const char *const names[] = { "turing", "volta", "ampere", "hopper", "blackwell" };
	/* By their numbers, enum vgpu_link. */
	static const char *const links[] = { "none", "pcie", "nvlink" };
	int i;

	i = match_string(names, ARRAY_SIZE(names), personality);
	if (i < 0) {
		pr_err("personality=%s: use turing, volta, ampere, hopper or blackwell\n", personality);
		return -EINVAL;
	}
	vgpu_personality = i;
	if (gpus < 1 || gpus > VGPU_MAX_GPUS) {
		pr_err("gpus=%u: use 1 to %d\n", gpus, VGPU_MAX_GPUS);
		return -EINVAL;
	}
	i = match_string(links, ARRAY_SIZE(links), link);
	if (i < 0) {
		pr_err("link=%s: use none, pcie or nvlink\n", link);
		return -EINVAL;
	}
	vgpu_link = i;
	if (vgpu_link == VGPU_LINK_NVLINK && vgpu_personality == VGPU_PERSONALITY_BLACKWELL) {
		pr_err("link=nvlink: GB202 has none, use none or pcie\n");
		return -EINVAL;
	}
	if (fault_entries < 4 || fault_entries > 65536) {
		pr_err("fault_entries=%u: use 4 to 65536\n", fault_entries);
		return -EINVAL;
	}
	if (strcmp(irq, "thread") && strcmp(irq, "hard")) {
		pr_err("irq=%s: use thread or hard\n", irq);
		return -EINVAL;
	}
	if (strcmp(order, "kind") && strcmp(order, "adversarial")) {
		pr_err("order=%s: use kind or adversarial\n", order);
		return -EINVAL;
	}
	for (i = 0; i < max(vidmem_mb_count, 1u); i++) {
		if (vidmem_mb[i] < 8 || vidmem_mb[i] % 2) {
			pr_err("vidmem_mb=%u: use an even number, at least 8\n", vidmem_mb[i]);
			return -EINVAL;
		}
	}
	return 0;
}

static int __init vgpu_init(void)
{
	int err = check_parameters();

	if (err)
		return err;
	vgpu_adversarial = !strcmp(order, "adversarial");
	/* Short enough to be typed again. */
	while (vgpu_adversarial && !seed)
		seed = get_random_u32();
	if (vgpu_adversarial)
		pr_info("adversarial order, seed=%llu\n", seed);
	err = pci_register_driver(&driver);
	if (err)
		return err;
	if (spare_count < gpus) {
		pr_err("%u spare PCI device(s) found, %u needed: start QEMU with more of -device edu\n",
		       spare_count, gpus);
		err = -ENODEV;
		goto fail;
	}
	while (vgpu_count < gpus) {
		struct vgpu *g = gpu_create(vgpu_count, spare[vgpu_count]);

		if (IS_ERR(g)) {
			err = PTR_ERR(g);
			pr_err("GPU %u could not be made: error %d\n", vgpu_count, -err);
			goto fail;
		}
		vgpu_gpus[vgpu_count++] = g;
	}
	err = vgpu_dev_register();
	if (err)
		goto fail;
	return 0;
fail:
	destroy_all();
	pci_unregister_driver(&driver);
	return err;
}

static void __exit vgpu_exit(void)
{
	vgpu_dev_unregister();
	destroy_all();
	pci_unregister_driver(&driver);
}

module_init(vgpu_init);
module_exit(vgpu_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Software GPU for nvidia-uvm");
