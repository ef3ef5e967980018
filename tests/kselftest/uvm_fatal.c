// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * After a fatal error of the driver no call does anything: EIO, and not a byte is written. The
 * driver has to be loaded anew afterwards, so that `make run` leaves this program out.
 */
#include "kselftest_harness.h"
#include "uvm.h"

#define NV_ERR_RC_ERROR	0x60

/* What fills the structures: nobody has such sizes, flags or pointers. */
#define UNTOUCHED	0xa5

/* Stops all channels of UVM's own, as hardware errors would. Returns how many there were. */
static int stop_channels(int vgpu)
{
	int n, stopped = 0;

	for (n = 0; n < 256; n++) {
		struct vgpu_inject inject = {
			.size = sizeof(inject), .kind = VGPU_INJECT_CHANNEL_ERROR, .handle = VGPU_UVM_CHANNEL | n,
		};

		stopped += !ioctl(vgpu, VGPU_INJECT, &inject);
	}
	return stopped;
}

static const unsigned int numbers[] = {
	UVM_RUST_GET_VERSION, UVM_RUST_GET_STATS, UVM_RUST_DISCARD_BATCH, UVM_RUST_ANNOUNCE,
	UVM_RUST_GET_PREFETCH_STATS, UVM_RUST_FLASH_ATTACH, UVM_RUST_FLASH_DETACH, UVM_RUST_FLASH_GET_STATS,
	UVM_RUST_FLASH_MOVE, UVM_RUST_FLASH_SUBMIT, UVM_RUST_FLASH_REAP,
};

FIXTURE(fatal)
{
	int fd, vgpu;
	struct uuid gpu;
	char *p;
};

FIXTURE_SETUP(fatal)
{
	struct uvm_rust_version version = { .size = sizeof(version) };

	UVM_OPEN_OR_SKIP(self->fd);
	VGPU_OPEN(self->vgpu);
	UVM_RUST_OR_SKIP(self->fd, &version);
	if (self->vgpu < 0)
		SKIP(return, "no /dev/vgpu, and nobody breaks a real GPU");
	if (!uvm_builtin_tests())
		SKIP(return, "load nvidia-uvm.ko with uvm_enable_builtin_tests=1");
	ASSERT_EQ(1, uvm_find_gpu(self->vgpu, &self->gpu));
	ASSERT_EQ(0U, uvm_initialize(self->fd));
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu));
	self->p = uvm_managed(self->fd, 2 * BLOCK);
	ASSERT_NE(MAP_FAILED, self->p);
	self->p[0] = self->p[BLOCK] = 1;
}

FIXTURE_TEARDOWN(fatal)
{
	close(self->vgpu);
	close(self->fd);
}

/* One test, as there is one error to a driver's life. */
TEST_F(fatal, nothing_is_done_any_more)
{
	uint8_t whole[4096], before[4096];
	struct uvm_rust_version version = { .size = sizeof(version), .version = ~0U, .features = ~0ULL };
	struct uvm_rust_discard_range range = { .base = (uintptr_t)self->p, .length = 2 * BLOCK };
	struct uvm_rust_discard_batch batch = {
		.size = sizeof(batch), .flags = UVM_RUST_DISCARD_EAGER, .ranges = (uintptr_t)&range,
		.range_count = 1, .range_size = sizeof(range), .first_failed = ~0U,
	};
	unsigned int i;

	ASSERT_LT(0, stop_channels(self->vgpu));
	ASSERT_NE(0U, uvm_migrate(self->fd, self->p, 2 * BLOCK, &self->gpu, UVM_MIGRATE_NO_GPU_VA_SPACE));
	/* NVIDIA's calls say the same. */
	ASSERT_EQ(NV_ERR_RC_ERROR, uvm_unregister_gpu(self->fd, &self->gpu));

	/* Before the structure is looked at: whatever is in it, and if there is none. */
	memset(before, UNTOUCHED, sizeof(before));
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		memcpy(whole, before, sizeof(whole));
		EXPECT_EQ(-1, ioctl(self->fd, numbers[i], whole));
		EXPECT_EQ(EIO, errno);
		EXPECT_EQ(0, memcmp(whole, before, sizeof(whole)));
		EXPECT_EQ(-1, ioctl(self->fd, numbers[i], NULL));
		EXPECT_EQ(EIO, errno);
	}
	/* And where all is well with it. */
	EXPECT_EQ(-1, ioctl(self->fd, UVM_RUST_GET_VERSION, &version));
	EXPECT_EQ(EIO, errno);
	EXPECT_EQ(~0U, version.version);
	EXPECT_EQ(~0ULL, version.features);
	EXPECT_EQ(-1, ioctl(self->fd, UVM_RUST_DISCARD_BATCH, &batch));
	EXPECT_EQ(EIO, errno);
	EXPECT_EQ(~0U, batch.first_failed);
	EXPECT_EQ(0U, batch.blocks_discarded + batch.blocks_skipped + batch.blocks_partial);
	/* A number that is nobody's is still that. */
	EXPECT_EQ(-1, ioctl(self->fd, 0x10ff, whole));
	EXPECT_EQ(EINVAL, errno);
}

TEST_HARNESS_MAIN
