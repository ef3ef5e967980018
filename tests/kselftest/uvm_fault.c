// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* Faults of a GPU program. Only the software GPU runs one here. */
#include "kselftest_harness.h"
#include "uvm.h"

#define LENGTH	(2 * BLOCK)
#define PAGES	(LENGTH / 4096)

#define UVM_ENABLE_READ_DUPLICATION	44
struct uvm_read_duplication {
	uint64_t base, length;
	uint32_t status;
};

FIXTURE(fault)
{
	int fd, mm, vgpu;
	struct uuid gpu;
	uint32_t channel;
	uint64_t *p;
};

FIXTURE_SETUP(fault)
{
	struct uvm_mm_initialize mm = { 0 };

	UVM_OPEN_OR_SKIP(self->fd);
	VGPU_OPEN(self->vgpu);
	if (self->vgpu < 0)
		SKIP(return, "no /dev/vgpu, and a real GPU's programs need CUDA");
	ASSERT_EQ(0U, uvm_initialize(self->fd));
	self->mm = uvm_open();
	mm.fd = self->fd;
	ASSERT_EQ(0, ioctl(self->mm, UVM_MM_INITIALIZE, &mm));
	ASSERT_EQ(1, uvm_find_gpu(self->vgpu, &self->gpu));
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu));
	self->channel = uvm_channel(self->fd, self->vgpu, &self->gpu);
	ASSERT_NE(0U, self->channel);
	self->p = uvm_managed(self->fd, LENGTH);
	ASSERT_NE(MAP_FAILED, self->p);
}

FIXTURE_TEARDOWN(fault)
{
	close(self->vgpu);
	close(self->fd);
	close(self->mm);
}

/* An op on a word in every page. */
static struct vgpu_op every_page(uint32_t kind, uint64_t *p)
{
	return (struct vgpu_op){
		.kind = kind, .va = (uintptr_t)p, .stride = 4096, .count = PAGES,
		.width = 8, .warps = 8, .value = 7, .value_stride = 1,
	};
}

TEST_F(fault, read)
{
	struct vgpu_op op = every_page(VGPU_OP_READ, self->p);
	struct vgpu_wait wait;
	uint64_t i, sum = 0;

	for (i = 0; i < PAGES; i++)
		sum += self->p[i * 512] = i + 1;
	ASSERT_EQ(0, vgpu_run(self->vgpu, self->channel, &op, &wait));
	EXPECT_EQ(VGPU_KERNEL_DONE, wait.state);
	EXPECT_EQ(sum, wait.sum);
	EXPECT_LT(0U, wait.faults);
}

TEST_F(fault, write_is_seen_by_the_cpu)
{
	struct vgpu_op op = every_page(VGPU_OP_WRITE, self->p);
	struct vgpu_wait wait;
	uint64_t i;

	for (i = 0; i < LENGTH / 8; i++)
		self->p[i] = i;
	ASSERT_EQ(0, vgpu_run(self->vgpu, self->channel, &op, &wait));
	EXPECT_EQ(VGPU_KERNEL_DONE, wait.state);
	for (i = 0; i < PAGES; i++) {
		ASSERT_EQ(7 + i, self->p[i * 512]);
		ASSERT_EQ(i * 512 + 1, self->p[i * 512 + 1]);
	}
}

TEST_F(fault, atomic_adds)
{
	struct vgpu_op op = every_page(VGPU_OP_ATOMIC_ADD, self->p);
	struct vgpu_wait wait;
	uint64_t i;

	op.value_stride = 0;
	op.rows = 3;
	for (i = 0; i < PAGES; i++)
		self->p[i * 512] = i;
	ASSERT_EQ(0, vgpu_run(self->vgpu, self->channel, &op, &wait));
	for (i = 0; i < PAGES; i++)
		ASSERT_EQ(i + 3 * 7, self->p[i * 512]);
}

TEST_F(fault, ping_pong)
{
	struct vgpu_op op = every_page(VGPU_OP_ATOMIC_ADD, self->p);
	struct vgpu_wait wait;
	uint64_t round, i;

	op.count = 8;
	op.value = 1;
	op.value_stride = 0;
	for (round = 0; round < 10; round++) {
		ASSERT_EQ(0, vgpu_run(self->vgpu, self->channel, &op, &wait));
		for (i = 0; i < 8; i++)
			ASSERT_EQ(2 * round + 1, self->p[i * 512]++);
	}
}

TEST_F(fault, fatal_fault_ends_only_its_program)
{
	struct vgpu_op wild = {
		.kind = VGPU_OP_READ, .va = 0x10000000, .stride = 8, .count = 1, .width = 8,
	};
	struct vgpu_op op = every_page(VGPU_OP_WRITE, self->p);
	struct vgpu_wait wait;

	ASSERT_EQ(0, vgpu_run(self->vgpu, self->channel, &wild, &wait));
	EXPECT_EQ(VGPU_KERNEL_FAULTED, wait.state);
	EXPECT_EQ(0x10000000U, wait.fault_va);
	ASSERT_EQ(0, vgpu_run(self->vgpu, self->channel, &op, &wait));
	EXPECT_EQ(VGPU_KERNEL_DONE, wait.state);
	EXPECT_EQ(7U, self->p[0]);
}

TEST_F(fault, migrated_memory_does_not_fault)
{
	struct vgpu_op op = every_page(VGPU_OP_READ, self->p);
	struct vgpu_wait wait;

	self->p[0] = 1;
	ASSERT_EQ(0U, uvm_migrate(self->fd, self->p, LENGTH, &self->gpu, 0));
	ASSERT_EQ(0, vgpu_run(self->vgpu, self->channel, &op, &wait));
	EXPECT_EQ(0U, wait.faults);
	EXPECT_EQ(1U, wait.sum);
}

/* A parameter of nvidia-uvm.ko, or ~0. */
static unsigned int parameter(const char *name)
{
	char path[128];
	unsigned int value;
	FILE *file;
	int found;

	snprintf(path, sizeof(path), "/sys/module/nvidia_uvm/parameters/%s", name);
	file = fopen(path, "r");
	if (!file)
		return ~0U;
	found = fscanf(file, "%u", &value);
	fclose(file);
	return found == 1 ? value : ~0U;
}

/* What was counted once the driver has looked at all that is in the fault buffer: nothing is added for a while. */
static int settled(int fd, const struct uuid *gpu, struct uvm_rust_stats *stats)
{
	struct uvm_rust_stats before;
	unsigned int tries;

	for (tries = 0; tries < 500; tries++) {
		before = *stats;
		*stats = (struct uvm_rust_stats){ .size = sizeof(*stats) };
		memcpy(stats->gpu_uuid, gpu, sizeof(*gpu));
		if (ioctl(fd, UVM_RUST_GET_STATS, stats))
			return errno;
		if (tries && !memcmp(&before, stats, sizeof(before)))
			return 0;
		usleep(50000);
	}
	return ETIMEDOUT;
}

#define ASKED	32

/*
 * Many warps ask for the same pages, more than a batch has room for. Whichever are still in the fault buffer once the
 * pages are mapped are duplicates: each page is missing once, for reading and, where it is mapped for that alone, for
 * writing. How the warps and the batches meet is not known, so the sum must not depend on it.
 */
TEST_F(fault, a_page_is_missing_once)
{
	struct uvm_read_duplication mostly = { (uintptr_t)self->p, BLOCK };
	struct uvm_rust_version version = { .size = sizeof(version) };
	struct uvm_rust_stats stats = { 0 }, before;
	struct vgpu_op op = every_page(VGPU_OP_READ, self->p);
	bool alone = parameter("uvm_perf_prefetch_enable") == 0;
	struct vgpu_wait wait;
	uint64_t i;

	UVM_RUST_OR_SKIP(self->fd, &version);
	ASSERT_EQ(0, ioctl(self->fd, UVM_ENABLE_READ_DUPLICATION, &mostly));
	ASSERT_EQ(0U, mostly.status);
	for (i = 0; i < ASKED; i++)
		self->p[i * 512] = i;
	op.count = ASKED;
	op.rows = 32;
	op.warps = 32;
	op.value_stride = 0;
	ASSERT_EQ(0, settled(self->fd, &self->gpu, &before));
	for (op.kind = VGPU_OP_READ; op.kind <= VGPU_OP_WRITE; op.kind++) {
		ASSERT_EQ(0, vgpu_run(self->vgpu, self->channel, &op, &wait));
		ASSERT_EQ(VGPU_KERNEL_DONE, wait.state);
		ASSERT_EQ(0, settled(self->fd, &self->gpu, &stats));
		stats.faults -= before.faults;
		stats.duplicates -= before.duplicates;
		before.faults += stats.faults;
		before.duplicates += stats.duplicates;
		TH_LOG("%llu faults, %llu duplicates", stats.faults, stats.duplicates);
		/* The tree prefetcher brings some before they are asked for. */
		if (alone)
			EXPECT_EQ(ASKED, stats.faults - stats.duplicates);
		EXPECT_LE(1U, stats.faults - stats.duplicates);
		EXPECT_GE(ASKED, stats.faults - stats.duplicates);
		/* In batches of one nothing is merged: what is a duplicate came when its page was mapped. */
		if (parameter("uvm_perf_fault_batch_count") == 1)
			EXPECT_LT(0U, stats.duplicates);
	}
	for (i = 0; i < ASKED; i++)
		ASSERT_EQ(7U, self->p[i * 512]);
}

TEST_HARNESS_MAIN
