// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The statistics of uvm_rust_ioctl.h, and bad input to its calls. */
#include "kselftest_harness.h"
#include "uvm.h"

FIXTURE(stats)
{
	int fd, vgpu;
	struct uuid gpu;
};

FIXTURE_SETUP(stats)
{
	struct uvm_rust_version version = { .size = sizeof(version) };

	UVM_OPEN_OR_SKIP(self->fd);
	VGPU_OPEN(self->vgpu);
	UVM_RUST_OR_SKIP(self->fd, &version);
	if (!uvm_find_gpu(self->vgpu, &self->gpu))
		SKIP(return, "no GPU: neither /dev/vgpu nor /proc/driver/nvidia/gpus");
	ASSERT_EQ(0U, uvm_initialize(self->fd));
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu));
}

FIXTURE_TEARDOWN(stats)
{
	close(self->fd);
	close(self->vgpu);
}

static int get_stats(int fd, const struct uuid *gpu, struct uvm_rust_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->size = sizeof(*stats);
	memcpy(stats->gpu_uuid, gpu, sizeof(*gpu));
	return ioctl(fd, UVM_RUST_GET_STATS, stats) ? errno : 0;
}

TEST_F(stats, version)
{
	struct uvm_rust_version version = { .size = sizeof(version) };

	ASSERT_EQ(0, ioctl(self->fd, UVM_RUST_GET_VERSION, &version));
	EXPECT_EQ(sizeof(version), version.size);
	EXPECT_LE(1U, version.version);
	EXPECT_TRUE(version.features & UVM_RUST_FEATURE_STATS);
}

TEST_F(stats, start_at_zero)
{
	struct uvm_rust_stats stats, zero = { 0 };

	ASSERT_EQ(0, get_stats(self->fd, &self->gpu, &stats));
	EXPECT_EQ(sizeof(stats), stats.size);
	EXPECT_EQ(0, memcmp(stats.host_to_gpu, zero.host_to_gpu, sizeof(zero.host_to_gpu)));
	EXPECT_EQ(0, memcmp(stats.gpu_to_host, zero.gpu_to_host, sizeof(zero.gpu_to_host)));
	EXPECT_EQ(0U, stats.faults);
}

TEST_F(stats, count_a_migration)
{
	struct uvm_rust_traffic *there, *back;
	char *p = uvm_managed(self->fd, BLOCK);
	struct uvm_rust_stats stats;

	ASSERT_NE(MAP_FAILED, p);
	memset(p, 1, BLOCK);
	if (!uvm_builtin_tests())
		SKIP(return, "load nvidia-uvm.ko with uvm_enable_builtin_tests=1");
	ASSERT_EQ(0U, uvm_migrate(self->fd, p, BLOCK, &self->gpu, UVM_MIGRATE_NO_GPU_VA_SPACE));
	ASSERT_EQ(0, get_stats(self->fd, &self->gpu, &stats));
	there = &stats.host_to_gpu[UVM_RUST_CAUSE_API];
	EXPECT_EQ(BLOCK, there->bytes);
	EXPECT_EQ(BLOCK / 4096, there->pages);
	ASSERT_EQ(0U, uvm_migrate(self->fd, p, BLOCK, &cpu_uuid, 0));
	ASSERT_EQ(0, get_stats(self->fd, &self->gpu, &stats));
	back = &stats.gpu_to_host[UVM_RUST_CAUSE_API];
	EXPECT_EQ(BLOCK, back->bytes);
	EXPECT_EQ(0U, stats.gpu_to_host[UVM_RUST_CAUSE_FAULT].bytes);
}

TEST_F(stats, are_this_process_s_own)
{
	struct uvm_rust_stats stats;
	int other = uvm_open();

	ASSERT_LE(0, other);
	EXPECT_EQ(EPERM, get_stats(other, &self->gpu, &stats));
	ASSERT_EQ(0U, uvm_initialize(other));
	EXPECT_EQ(ENODEV, get_stats(other, &self->gpu, &stats));
	close(other);
}

TEST_F(stats, bad_input)
{
	struct uvm_rust_stats stats;
	struct uuid nobody = { { 0xff } };
	unsigned int bit;

	EXPECT_EQ(-1, ioctl(self->fd, UVM_RUST_GET_STATS, NULL));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-1, ioctl(self->fd, UVM_RUST_GET_STATS, (void *)-8UL));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(ENODEV, get_stats(self->fd, &nobody, &stats));
	for (bit = 1; bit < 32; bit++) {
		memset(&stats, 0, sizeof(stats));
		stats.size = sizeof(stats);
		stats.flags = 1U << bit;
		memcpy(stats.gpu_uuid, &self->gpu, sizeof(self->gpu));
		EXPECT_EQ(-1, ioctl(self->fd, UVM_RUST_GET_STATS, &stats));
		EXPECT_EQ(EINVAL, errno);
	}
}

TEST_F(stats, sizes)
{
	struct { struct uvm_rust_stats stats; uint64_t more; } longer = { 0 };

	memcpy(longer.stats.gpu_uuid, &self->gpu, sizeof(self->gpu));
	longer.stats.size = UVM_RUST_STATS_SIZE_V1 - 1;
	EXPECT_EQ(-1, ioctl(self->fd, UVM_RUST_GET_STATS, &longer));
	EXPECT_EQ(EINVAL, errno);
	longer.stats.size = sizeof(longer);
	EXPECT_EQ(0, ioctl(self->fd, UVM_RUST_GET_STATS, &longer));
	longer.stats.size = sizeof(longer);
	longer.more = 1;
	EXPECT_EQ(-1, ioctl(self->fd, UVM_RUST_GET_STATS, &longer));
	EXPECT_EQ(E2BIG, errno);
	EXPECT_EQ(sizeof(longer.stats), longer.stats.size);
	longer.stats.size = 1 << 20;
	EXPECT_EQ(-1, ioctl(self->fd, UVM_RUST_GET_STATS, &longer));
	EXPECT_EQ(E2BIG, errno);
}

TEST_F(stats, unknown_numbers)
{
	uint64_t zero[64] = { sizeof(zero) };

	EXPECT_EQ(-1, ioctl(self->fd, 0x10ff, zero));
	EXPECT_EQ(EINVAL, errno);
}

TEST_HARNESS_MAIN
