// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * libuvmrust on the real /dev/nvidia-uvm, through its C header. Built twice, against
 * the shared and against the static library.
 *
 * The software GPU's programs fill the memory. A real GPU can be registered without CUDA, but its
 * address space only by the handles of NVIDIA's resource manager: there the host fills the memory,
 * which stays with it. What the GPU does is tested by what `scripts/gpu-check.sh` runs.
 */
#include <stdlib.h>

#include "kselftest_harness.h"
#include "uvm.h"
#include "uvmrust.h"

#define LENGTH	(4 * BLOCK)
#define WORDS	(LENGTH / 8)
#define OLD	0x1000000000000ULL
#define NEW	0x2000000000000ULL

FIXTURE(library)
{
	int fd, mm, vgpu;
	struct uuid gpu;
	uint32_t channel;
	uint64_t *p;
};

/* How the library comes by the descriptor. */
enum given { BY_CALL, BY_ENVIRONMENT, FOUND };

FIXTURE_VARIANT(library)
{
	enum given given;
};

FIXTURE_VARIANT_ADD(library, by_call) { .given = BY_CALL };
FIXTURE_VARIANT_ADD(library, by_environment) { .given = BY_ENVIRONMENT };
FIXTURE_VARIANT_ADD(library, found) { .given = FOUND };

FIXTURE_SETUP(library)
{
	struct uvm_mm_initialize mm = { 0 };
	char number[16];

	UVM_OPEN_OR_SKIP(self->fd);
	VGPU_OPEN(self->vgpu);
	if (self->vgpu < 0)
		uvm_open_devices();
	ASSERT_EQ(0U, uvm_initialize(self->fd));
	self->mm = uvm_open();
	mm.fd = self->fd;
	ASSERT_EQ(0, ioctl(self->mm, UVM_MM_INITIALIZE, &mm));
	if (!uvm_find_gpu(self->vgpu, &self->gpu))
		SKIP(return, "no GPU");
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu));
	if (self->vgpu >= 0) {
		self->channel = uvm_channel(self->fd, self->vgpu, &self->gpu);
		ASSERT_NE(0U, self->channel);
	}
	self->p = uvm_managed(self->fd, LENGTH);
	ASSERT_NE(MAP_FAILED, self->p);

	switch (variant->given) {
	case BY_CALL:
		UvmRustUseFd(self->fd);
		break;
	case BY_ENVIRONMENT:
		/* Read at the library's first call, which is below: each test is a process. */
		snprintf(number, sizeof(number), "%d", self->fd);
		setenv("UVMRUST_FD", number, 1);
		break;
	case FOUND:
		break;
	}
}

FIXTURE_TEARDOWN(library)
{
	close(self->vgpu);
	close(self->fd);
	close(self->mm);
}

#define SKIP_WITHOUT_DISCARD()							\
	do {									\
		if (UvmRustBackend() == UVMRUST_BACKEND_NONE)			\
			SKIP(return, "this driver cannot discard");		\
	} while (0)

/* Writes value + index to every word, on the GPU if it can run programs. */
static void fill(FIXTURE_DATA(library) *self, uint64_t value)
{
	struct vgpu_op op = {
		.kind = VGPU_OP_WRITE, .va = (uintptr_t)self->p, .stride = 8, .count = WORDS,
		.width = 8, .warps = 8, .value = value, .value_stride = 1,
	};
	struct vgpu_wait wait;
	uint64_t i;

	if (self->channel) {
		if (vgpu_run(self->vgpu, self->channel, &op, &wait) || wait.state != VGPU_KERNEL_DONE)
			abort();
		return;
	}
	for (i = 0; i < WORDS; i++)
		self->p[i] = value + i;
}

static bool all(const uint64_t *p, uint64_t value)
{
	uint64_t i;

	for (i = 0; i < WORDS && p[i] == value + i; i++)
		;
	return i == WORDS;
}

/* Whereto memory goes: the host, where nothing can be brought to the GPU. */
static const uint8_t *away(FIXTURE_DATA(library) *self)
{
	return self->channel ? self->gpu.byte : NULL;
}

/* What a read after a discard gives; on a real GPU NVIDIA's driver promises nothing. */
static bool zeros_or_old(FIXTURE_DATA(library) *self)
{
	const uint64_t *p = self->p;
	uint64_t i;

	if (!self->channel && UvmRustBackend() != UVMRUST_BACKEND_UVMRUST)
		return true;
	for (i = 0; i < WORDS && (!p[i] || p[i] == OLD + i); i++)
		;
	return i == WORDS;
}

/* Bytes that this process moved between the host and the GPU, or -1. */
static int64_t moved(FIXTURE_DATA(library) *self)
{
	struct uvm_rust_stats stats = { .size = sizeof(stats) };
	int64_t bytes = 0;
	int cause;

	memcpy(stats.gpu_uuid, &self->gpu, sizeof(self->gpu));
	if (ioctl(self->fd, UVM_RUST_GET_STATS, &stats))
		return -1;
	for (cause = 0; cause < UVM_RUST_CAUSE_MAX; cause++)
		bytes += stats.host_to_gpu[cause].bytes + stats.gpu_to_host[cause].bytes;
	return bytes;
}

TEST_F(library, says_who_discards)
{
	struct uvm_rust_version version = { .size = sizeof(version) };
	int backend = UvmRustBackend();

	TH_LOG("discard by %s", UvmRustBackendName(backend));
	if (!ioctl(self->fd, UVM_RUST_GET_VERSION, &version) &&
	    version.features & UVM_RUST_FEATURE_DISCARD) {
		EXPECT_EQ(UVMRUST_BACKEND_UVMRUST, backend);
	} else {
		EXPECT_NE(UVMRUST_BACKEND_UVMRUST, backend);
	}
}

TEST_F(library, without_discard_nothing_changes)
{
	struct uvmrust_range range = { (uintptr_t)self->p, LENGTH };
	struct uvmrust_result result;

	if (UvmRustBackend() != UVMRUST_BACKEND_NONE)
		SKIP(return, "this driver can discard");
	fill(self, OLD);
	EXPECT_EQ(UVMRUST_ENOTSUPPORTED, UvmDiscard(self->p, LENGTH));
	EXPECT_EQ(UVMRUST_ENOTSUPPORTED, UvmDiscardLazy(self->p, LENGTH));
	EXPECT_EQ(UVMRUST_ENOTSUPPORTED, UvmDiscardBatch(&range, 1, 0, &result));
	EXPECT_EQ(UVMRUST_ENOTSUPPORTED, UvmDiscardAndPrefetch(self->p, LENGTH, NULL));
	EXPECT_EQ(0, UvmPrefetch(self->p, LENGTH, NULL));
	EXPECT_TRUE(all(self->p, OLD));
}

TEST_F(library, eager)
{
	SKIP_WITHOUT_DISCARD();
	fill(self, OLD);
	ASSERT_EQ(0, UvmDiscard(self->p, LENGTH));
	EXPECT_TRUE(zeros_or_old(self));
	fill(self, NEW);
	EXPECT_TRUE(all(self->p, NEW));
}

TEST_F(library, eager_written_without_prefetch)
{
	SKIP_WITHOUT_DISCARD();
	fill(self, OLD);
	ASSERT_EQ(0, UvmDiscard(self->p, LENGTH));
	fill(self, NEW);
	EXPECT_TRUE(all(self->p, NEW));
}

TEST_F(library, lazy)
{
	int64_t before, after;

	SKIP_WITHOUT_DISCARD();
	fill(self, OLD);
	ASSERT_EQ(0, UvmDiscardLazy(self->p, LENGTH));
	before = moved(self);
	ASSERT_EQ(0, UvmPrefetch(self->p, LENGTH, away(self)));
	after = moved(self);
	EXPECT_EQ(before, after);
	EXPECT_TRUE(zeros_or_old(self));
	fill(self, NEW);
	EXPECT_TRUE(all(self->p, NEW));
}

TEST_F(library, batch_counts)
{
	struct uvmrust_range ranges[] = {
		{ (uintptr_t)self->p, BLOCK },
		{ (uintptr_t)self->p + 2 * BLOCK, 2 * BLOCK },
	};
	struct uvmrust_result result;
	uint64_t i;

	SKIP_WITHOUT_DISCARD();
	fill(self, OLD);
	ASSERT_EQ(0, UvmDiscardBatch(ranges, 2, 0, &result));
	EXPECT_EQ(2U, result.done);
	if (UvmRustBackend() == UVMRUST_BACKEND_UVMRUST) {
		EXPECT_NE(0, result.counted);
		EXPECT_EQ(3U, result.blocks_discarded);
		EXPECT_EQ(0U, result.blocks_skipped);
		EXPECT_EQ(0U, result.blocks_partial);
	}
	/* What lies between them stays. */
	for (i = WORDS / 4; i < WORDS / 2; i++)
		ASSERT_EQ(OLD + i, self->p[i]);
}

TEST_F(library, batch_stops_at_what_is_not_managed)
{
	char *other = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uvmrust_range ranges[] = {
		{ (uintptr_t)self->p, BLOCK }, { (uintptr_t)other, BLOCK }, { (uintptr_t)self->p, BLOCK },
	};
	struct uvmrust_result result;

	SKIP_WITHOUT_DISCARD();
	ASSERT_NE(MAP_FAILED, (void *)other);
	memset(other, 7, BLOCK);
	fill(self, OLD);
	EXPECT_EQ(UVMRUST_ENOTMANAGED, UvmDiscardBatch(ranges, 3, 0, &result));
	EXPECT_EQ(1U, result.done);
	EXPECT_EQ(7, other[0]);
	EXPECT_EQ(UVMRUST_EINVALID, UvmDiscardBatch(ranges, 1, 2, NULL));
	EXPECT_EQ(UVMRUST_EINVALID, UvmDiscard(self->p, SIZE_MAX));
	EXPECT_EQ(0, UvmDiscardBatch(NULL, 0, 0, NULL));
}

TEST_F(library, only_whole_pages)
{
	uint64_t i;

	SKIP_WITHOUT_DISCARD();
	fill(self, OLD);
	/* Less than a page at both ends, and no page at all. */
	ASSERT_EQ(0, UvmDiscard((char *)self->p + 8, LENGTH - 16));
	EXPECT_EQ(0, UvmDiscard((char *)self->p + 8, 4096));
	for (i = 0; i < 512; i++) {
		ASSERT_EQ(OLD + i, self->p[i]);
		ASSERT_EQ(OLD + WORDS - 1 - i, self->p[WORDS - 1 - i]);
	}
	EXPECT_TRUE(zeros_or_old(self));
}

TEST_F(library, discard_and_prefetch_moves_nothing)
{
	struct uvmrust_range halves[] = {
		{ (uintptr_t)self->p, LENGTH / 2 }, { (uintptr_t)self->p + LENGTH / 2, LENGTH / 2 },
	};
	int64_t before, after;
	uint64_t i;

	SKIP_WITHOUT_DISCARD();
	/* On the host: a prefetch alone would copy it. */
	for (i = 0; i < WORDS; i++)
		self->p[i] = OLD + i;
	before = moved(self);
	ASSERT_EQ(0, UvmDiscardAndPrefetch(self->p, LENGTH, away(self)));
	after = moved(self);
	EXPECT_EQ(before, after);
	fill(self, NEW);
	ASSERT_EQ(0, UvmDiscardAndPrefetchBatch(halves, 2, away(self)));
	fill(self, OLD);
	EXPECT_TRUE(all(self->p, OLD));
}

TEST_F(library, gpu_or_driver_that_is_not_there)
{
	struct uuid none = { { 1, 2, 3 } };

	SKIP_WITHOUT_DISCARD();
	fill(self, OLD);
	EXPECT_EQ(UVMRUST_ENODEVICE, UvmPrefetch(self->p, LENGTH, none.byte));
	EXPECT_TRUE(all(self->p, OLD));
	/* Once the descriptor is gone there is nobody to discard. */
	munmap(self->p, LENGTH);
	close(self->fd);
	close(self->mm);
	EXPECT_GT(0, UvmDiscard(self->p, LENGTH));
	EXPECT_EQ(UVMRUST_BACKEND_NONE, UvmRustBackend());
}

TEST_HARNESS_MAIN
