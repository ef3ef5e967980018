// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What all processes together did is for CAP_SYS_ADMIN, or for all with the module parameter
 * uvm_rust_stats_public. A process's own counters are its own.
 */
#include <grp.h>
#include <sys/stat.h>

#include "kselftest_harness.h"
#include "uvm.h"

FIXTURE(privacy)
{
	int fd, vgpu;
	struct uuid gpu;
};

FIXTURE_SETUP(privacy)
{
	struct uvm_rust_version version = { .size = sizeof(version) };

	if (geteuid())
		SKIP(return, "not root: there is no privilege to lose");
	self->fd = uvm_open();
	self->vgpu = open("/dev/vgpu", O_RDWR | O_CLOEXEC);
	if (self->fd < 0)
		SKIP(return, "nvidia-uvm.ko is not loaded");
	if (ioctl(self->fd, UVM_RUST_GET_VERSION, &version))
		SKIP(return, "this nvidia-uvm.ko has no Rust in it");
	if (!uvm_find_gpu(self->vgpu, &self->gpu))
		SKIP(return, "no GPU: neither /dev/vgpu nor /proc/driver/nvidia/gpus");
	ASSERT_EQ(0U, uvm_initialize(self->fd));
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu));
}

FIXTURE_TEARDOWN(privacy)
{
	close(self->fd);
	close(self->vgpu);
}

static int get_stats(int fd, const struct uuid *gpu, unsigned int flags, struct uvm_rust_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->size = sizeof(*stats);
	stats->flags = flags;
	memcpy(stats->gpu_uuid, gpu, sizeof(*gpu));
	memset(stats->queued, 0xa5, sizeof(stats->queued));
	return ioctl(fd, UVM_RUST_GET_STATS, stats) ? errno : 0;
}

static int is_public(void)
{
	int fd = open("/sys/module/nvidia_uvm/parameters/uvm_rust_stats_public", O_RDONLY);
	char answer = 'N';

	if (fd >= 0 && read(fd, &answer, 1) != 1)
		answer = 'N';
	close(fd);
	return answer == 'Y';
}

/* Becomes nobody, who has no capabilities, for the rest of this test's process. */
static int become_nobody(void)
{
	return setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534);
}

TEST_F(privacy, root_sees_the_whole_gpu)
{
	struct uvm_rust_stats stats, zero = { 0 };

	ASSERT_EQ(0, get_stats(self->fd, &self->gpu, UVM_RUST_STATS_WHOLE_GPU, &stats));
	ASSERT_EQ(0, get_stats(self->fd, &self->gpu, 0, &stats));
	EXPECT_EQ(0, memcmp(&stats.queued[5], zero.queued, sizeof(stats.queued[0]) * 3));
}

TEST_F(privacy, others_see_their_own_only)
{
	struct uvm_rust_stats stats, zero = { 0 };

	if (is_public())
		SKIP(return, "uvm_rust_stats_public is set");
	ASSERT_EQ(0, become_nobody());
	EXPECT_EQ(EPERM, get_stats(self->fd, &self->gpu, UVM_RUST_STATS_WHOLE_GPU, &stats));
	ASSERT_EQ(0, get_stats(self->fd, &self->gpu, 0, &stats));
	/* The lengths of a GPU's queues are all processes'. */
	EXPECT_EQ(0, memcmp(stats.queued, zero.queued, sizeof(zero.queued)));
}

TEST_F(privacy, public_is_public)
{
	struct uvm_rust_stats stats;

	if (!is_public())
		SKIP(return, "load nvidia-uvm.ko with uvm_rust_stats_public=1");
	ASSERT_EQ(0, become_nobody());
	EXPECT_EQ(0, get_stats(self->fd, &self->gpu, UVM_RUST_STATS_WHOLE_GPU, &stats));
}

TEST_F(privacy, debugfs_is_for_root)
{
	static const char *const files[] = { "gpu-1", "processes" };
	char path[128];
	struct stat st;
	unsigned int i;

	if (stat("/sys/kernel/debug/nvidia-uvm", &st))
		SKIP(return, "debugfs is not mounted");
	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/nvidia-uvm/%s", files[i]);
		ASSERT_EQ(0, stat(path, &st));
		EXPECT_EQ(0400, st.st_mode & 0777);
	}
}

TEST_HARNESS_MAIN
