// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* What every nvidia-uvm.ko does, with any GPU. */
#include "kselftest_harness.h"
#include "uvm.h"

FIXTURE(uvm)
{
	int fd, vgpu, gpus;
	struct uuid gpu;
};

FIXTURE_SETUP(uvm)
{
	UVM_OPEN_OR_SKIP(self->fd);
	ASSERT_EQ(0U, uvm_initialize(self->fd));
	VGPU_OPEN(self->vgpu);
	self->gpus = uvm_find_gpu(self->vgpu, &self->gpu);
}

FIXTURE_TEARDOWN(uvm)
{
	if (self->fd >= 0)
		close(self->fd);
	if (self->vgpu >= 0)
		close(self->vgpu);
}

TEST_F(uvm, nothing_before_initialize)
{
	int fd = uvm_open();

	ASSERT_LE(0, fd);
	EXPECT_EQ(NV_ERR_ILLEGAL_ACTION, uvm_unregister_gpu(fd, &self->gpu));
	EXPECT_EQ(MAP_FAILED, uvm_managed(fd, BLOCK));
	EXPECT_EQ(EBADFD, errno);
	close(fd);
}

TEST_F(uvm, managed_memory_is_zero_and_keeps_what_is_written)
{
	uint64_t *p = uvm_managed(self->fd, 2 * BLOCK);
	size_t i, words = 2 * BLOCK / sizeof(*p);

	ASSERT_NE(MAP_FAILED, p);
	for (i = 0; i < words; i += 512)
		ASSERT_EQ(0U, p[i]);
	for (i = 0; i < words; i++)
		p[i] = i * 3;
	for (i = 0; i < words; i++)
		ASSERT_EQ(i * 3, p[i]);
	EXPECT_EQ(0, munmap(p, 2 * BLOCK));
}

TEST_F(uvm, mapping_must_be_shared_and_at_its_offset)
{
	void *at = (void *)0x300000000000;
	int rw = PROT_READ | PROT_WRITE;

	EXPECT_EQ(MAP_FAILED, mmap(at, BLOCK, rw, MAP_PRIVATE | MAP_FIXED, self->fd, (off_t)at));
	EXPECT_EQ(MAP_FAILED, mmap(at, BLOCK, rw, MAP_SHARED | MAP_FIXED, self->fd,
				   (off_t)at + BLOCK));
}

TEST_F(uvm, unknown_gpu_is_refused)
{
	struct uuid nobody = { { 0xde, 0xad } };

	EXPECT_NE(0U, uvm_register_gpu(self->fd, &nobody));
	EXPECT_NE(0U, uvm_unregister_gpu(self->fd, &nobody));
}

TEST_F(uvm, register_and_unregister)
{
	int round;

	if (!self->gpus)
		SKIP(return, "no GPU: neither /dev/vgpu nor /proc/driver/nvidia/gpus");
	for (round = 0; round < 10; round++) {
		ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu));
		ASSERT_EQ(0U, uvm_unregister_gpu(self->fd, &self->gpu));
	}
}

TEST_F(uvm, migrate_there_and_back)
{
	uint64_t *p = uvm_managed(self->fd, 2 * BLOCK);
	size_t i, words = 2 * BLOCK / sizeof(*p);

	if (!self->gpus)
		SKIP(return, "no GPU: neither /dev/vgpu nor /proc/driver/nvidia/gpus");
	ASSERT_NE(MAP_FAILED, p);
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu));
	for (i = 0; i < words; i++)
		p[i] = ~i;
	if (!uvm_builtin_tests())
		SKIP(return, "load nvidia-uvm.ko with uvm_enable_builtin_tests=1");
	ASSERT_EQ(0U, uvm_migrate(self->fd, p, 2 * BLOCK, &self->gpu,
				  UVM_MIGRATE_NO_GPU_VA_SPACE));
	ASSERT_EQ(0U, uvm_migrate(self->fd, p, BLOCK, &cpu_uuid, 0));
	for (i = 0; i < words; i++)
		ASSERT_EQ(~i, p[i]);
}

TEST_F(uvm, migrate_refuses_bad_ranges)
{
	char *p = uvm_managed(self->fd, BLOCK);

	if (!self->gpus)
		SKIP(return, "no GPU: neither /dev/vgpu nor /proc/driver/nvidia/gpus");
	ASSERT_NE(MAP_FAILED, p);
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu));
	EXPECT_NE(0U, uvm_migrate(self->fd, p + 1, 4096, &self->gpu, 0));
	EXPECT_NE(0U, uvm_migrate(self->fd, p, 0, &self->gpu, 0));
	EXPECT_NE(0U, uvm_migrate(self->fd, p, 4095, &self->gpu, 0));
	EXPECT_NE(0U, uvm_migrate(self->fd, (void *)-4096UL, 8192, &self->gpu, 0));
	EXPECT_NE(0U, uvm_migrate(self->fd, p, BLOCK, &self->gpu, 1U << 31));
}

TEST_HARNESS_MAIN
