// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* UVM_RUST_ANNOUNCE: input, isolation, bounded memory; and what is learnt from it. */
#include <sys/stat.h>
#include <sys/wait.h>

#include "kselftest_harness.h"
#include "uvm.h"

FIXTURE(announce)
{
	int fd, mm, vgpu;
	struct uuid gpu;
};

FIXTURE_SETUP(announce)
{
	struct uvm_rust_version version = { .size = sizeof(version) };
	struct uvm_mm_initialize mm = { 0 };

	UVM_OPEN_OR_SKIP(self->fd);
	VGPU_OPEN(self->vgpu);
	UVM_RUST_OR_SKIP(self->fd, &version);
	if (!(version.features & UVM_RUST_FEATURE_EXEC_ID))
		SKIP(return, "this nvidia-uvm.ko takes no announcements");
	if (!uvm_find_gpu(self->vgpu, &self->gpu))
		SKIP(return, "no GPU: neither /dev/vgpu nor /proc/driver/nvidia/gpus");
	ASSERT_EQ(0U, uvm_initialize(self->fd));
	/* Without it there is no GPU address space. */
	self->mm = uvm_open();
	mm.fd = self->fd;
	ASSERT_EQ(0, ioctl(self->mm, UVM_MM_INITIALIZE, &mm));
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu));
}

FIXTURE_TEARDOWN(announce)
{
	close(self->vgpu);
	close(self->fd);
	close(self->mm);
}

static int announce(int fd, const struct uuid *gpu, uint64_t id)
{
	struct uvm_rust_announce what = {
		.size = sizeof(what), .flags = id ? 0 : UVM_RUST_ANNOUNCE_IDLE, .exec_id = id,
	};

	memcpy(what.gpu_uuid, gpu, sizeof(*gpu));
	return ioctl(fd, UVM_RUST_ANNOUNCE, &what) ? errno : 0;
}

static int learnt(int fd, const struct uuid *gpu, struct uvm_rust_prefetch_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->size = sizeof(*stats);
	memcpy(stats->gpu_uuid, gpu, sizeof(*gpu));
	return ioctl(fd, UVM_RUST_GET_PREFETCH_STATS, stats) ? errno : 0;
}

/* Waits until so many announcements were taken off their queue, or 20 s. */
static void settle(int fd, const struct uuid *gpu, uint64_t kernels, struct uvm_rust_prefetch_stats *stats)
{
	int tries;

	for (tries = 0; tries < 2000; tries++) {
		if (learnt(fd, gpu, stats) || stats->kernels + stats->dropped_kernels >= kernels)
			return;
		usleep(10000);
	}
}

TEST_F(announce, a_cycle_is_learnt)
{
	struct uvm_rust_prefetch_stats stats;
	uint64_t i;

	ASSERT_EQ(0, learnt(self->fd, &self->gpu, &stats));
	EXPECT_EQ(0U, stats.kernels);
	for (i = 0; i < 60; i++) {
		ASSERT_EQ(0, announce(self->fd, &self->gpu, 1 + i % 6));
		/* Slower than the worker, so that none is dropped. */
		settle(self->fd, &self->gpu, i + 1, &stats);
	}
	EXPECT_EQ(60U, stats.kernels);
	EXPECT_EQ(6U, stats.ids);
	EXPECT_LT(40U, stats.kernels_right);
	EXPECT_EQ(0U, stats.kernels_wrong);
	EXPECT_EQ(0U, stats.prefetched);
	EXPECT_LT(0U, stats.table_bytes);
	/* Idle, and on again. */
	ASSERT_EQ(0, announce(self->fd, &self->gpu, 0));
	ASSERT_EQ(0, announce(self->fd, &self->gpu, 1));
}

TEST_F(announce, bad_input)
{
	struct uvm_rust_announce what = { .size = sizeof(what), .exec_id = 1 };
	struct uuid nobody = { { 0xff } };
	unsigned int bit;

	memcpy(what.gpu_uuid, &self->gpu, sizeof(self->gpu));
	EXPECT_EQ(-1, ioctl(self->fd, UVM_RUST_ANNOUNCE, NULL));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(ENODEV, announce(self->fd, &nobody, 1));
	for (bit = 1; bit < 32; bit++) {
		what.flags = 1U << bit;
		EXPECT_EQ(-1, ioctl(self->fd, UVM_RUST_ANNOUNCE, &what));
		EXPECT_EQ(EINVAL, errno);
	}
	/* No ID without the flag, and none with it. */
	what.flags = UVM_RUST_ANNOUNCE_IDLE;
	EXPECT_EQ(-1, ioctl(self->fd, UVM_RUST_ANNOUNCE, &what));
	EXPECT_EQ(EINVAL, errno);
	what.flags = 0;
	what.exec_id = 0;
	EXPECT_EQ(-1, ioctl(self->fd, UVM_RUST_ANNOUNCE, &what));
	EXPECT_EQ(EINVAL, errno);
	what.exec_id = 1;
	what.size = sizeof(what) - 1;
	EXPECT_EQ(-1, ioctl(self->fd, UVM_RUST_ANNOUNCE, &what));
	EXPECT_EQ(EINVAL, errno);
	what.size = sizeof(what);
	EXPECT_EQ(0, ioctl(self->fd, UVM_RUST_ANNOUNCE, &what));
}

TEST_F(announce, is_this_process_s_own)
{
	struct uvm_rust_prefetch_stats stats;
	int other = uvm_open();

	ASSERT_LE(0, other);
	EXPECT_EQ(EPERM, announce(other, &self->gpu, 1));
	ASSERT_EQ(0U, uvm_initialize(other));
	EXPECT_EQ(ENODEV, announce(other, &self->gpu, 1));
	ASSERT_EQ(0U, uvm_register_gpu(other, &self->gpu));
	ASSERT_EQ(0, announce(self->fd, &self->gpu, 1));
	settle(self->fd, &self->gpu, 1, &stats);
	EXPECT_EQ(1U, stats.kernels);
	ASSERT_EQ(0, learnt(other, &self->gpu, &stats));
	EXPECT_EQ(0U, stats.kernels);
	close(other);
}

/* A stream of IDs that never come again costs bounded memory, and no time later. */
TEST_F(announce, a_hostile_stream_is_bounded)
{
	struct uvm_rust_prefetch_stats stats;
	uint64_t i, id = 0x9e3779b97f4a7c15;
	const uint64_t total = 50000;

	for (i = 0; i < total; i++) {
		id = id * 6364136223846793005u + 1442695040888963407u;
		ASSERT_EQ(0, announce(self->fd, &self->gpu, id | 1));
	}
	settle(self->fd, &self->gpu, total, &stats);
	EXPECT_EQ(total, stats.kernels + stats.dropped_kernels);
	EXPECT_GE(64U << 20, stats.table_bytes);
	EXPECT_GE(16384U, stats.ids);
}

static uint64_t number(const char *path)
{
	FILE *f = fopen(path, "re");
	unsigned long long n = 0;

	if (f && fscanf(f, "%llu", &n) != 1)
		n = 0;
	if (f)
		fclose(f);
	return n;
}

/* A parameter of nvidia-uvm.ko, as it was loaded; 0 if there is no such parameter. */
#define PARAMETER(name)	number("/sys/module/nvidia_uvm/parameters/" name)

/* A child sets a descriptor up, fills its tables, and is gone; the descriptor is its parent's. */
TEST_F(announce, children_bring_no_limits_of_their_own)
{
	struct uvm_rust_prefetch_stats stats;
	int fds[6], i, status;
	uint64_t sum = 0;

	if (PARAMETER("uvm_rust_prefetch_memory") != 1)
		SKIP(return, "the limit is too high to fill: load nvidia-uvm.ko with uvm_rust_prefetch_memory=1");
	for (i = 0; i < 6; i++) {
		fds[i] = uvm_open();
		ASSERT_LE(0, fds[i]);
		if (!fork()) {
			/* Shared by processes: it outlives the memory map of the one that sets it up. */
			struct uvm_initialize init = { .flags = 2 };
			uint64_t id;

			if (ioctl(fds[i], UVM_INITIALIZE, &init) || init.status ||
			    uvm_register_gpu(fds[i], &self->gpu))
				_exit(1);
			for (id = 1; id <= 16000; id++) {
				if (announce(fds[i], &self->gpu, id * 0x9e3779b97f4a7c15u))
					_exit(2);
				/* Before its queue is full. */
				if (id % 500 == 0)
					settle(fds[i], &self->gpu, id, &stats);
			}
			_exit(0);
		}
		ASSERT_LT(0, wait(&status));
		ASSERT_EQ(0, status);
	}
	for (i = 0; i < 6; i++) {
		/* Each settles what it has with the others in its next turn. */
		ASSERT_EQ(0, learnt(fds[i], &self->gpu, &stats));
		ASSERT_EQ(0, announce(fds[i], &self->gpu, 1));
		settle(fds[i], &self->gpu, stats.kernels + stats.dropped_kernels + 1, &stats);
	}
	for (i = 0; i < 6; i++) {
		ASSERT_EQ(0, learnt(fds[i], &self->gpu, &stats));
		TH_LOG("descriptor %d: %llu IDs, %llu bytes", i, (unsigned long long)stats.ids,
		       (unsigned long long)stats.table_bytes);
		sum += stats.table_bytes;
		close(fds[i]);
	}
	/* What one turn learns may be over it. */
	EXPECT_LT(512U << 10, sum);
	EXPECT_GE(1536U << 10, sum);
}

#define GROUPS	"/tmp/uvm-announce-groups"
#define GROUP	GROUPS "/announces"

/* Has a child do what joins the group, and returns 0 if all is well. */
static void in_group(struct __test_metadata *_metadata, const struct uuid *gpu, int (*does)(const struct uuid *gpu))
{
	int made, status = -1;
	pid_t child;

	if (geteuid())
		SKIP(return, "only root makes a group");
	made = uvm_group_make(GROUPS, GROUP);
	if (made > 0)
		SKIP(return, "no cgroup2: %s", strerror(made));
	ASSERT_EQ(0, made);
	child = fork();
	if (!child)
		_exit(does(gpu));
	EXPECT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(0, uvm_group_remove(GROUPS, GROUP));
}

/* Joins the group, announces, and tells how much more is charged to it than before. */
static int charged(const struct uuid *gpu)
{
	struct uvm_rust_prefetch_stats stats;
	struct uvm_initialize init = { .flags = 2 };
	uint64_t id, before, after;
	int fd = uvm_open();

	if (!uvm_put(GROUP "/cgroup.procs", "0"))
		return 2;
	if (fd < 0 || ioctl(fd, UVM_INITIALIZE, &init) || init.status || uvm_register_gpu(fd, gpu))
		return 3;
	before = number(GROUP "/memory.current");
	for (id = 1; id <= 16000; id++) {
		if (announce(fd, gpu, id * 0x9e3779b97f4a7c15u))
			return 4;
		if (id % 500 == 0)
			settle(fd, gpu, id, &stats);
	}
	if (learnt(fd, gpu, &stats))
		return 5;
	after = number(GROUP "/memory.current");
	printf("# tables of %llu bytes, and %llu bytes charged\n", (unsigned long long)stats.table_bytes,
	       (unsigned long long)(after - before));
	fflush(stdout);
	/* Nothing else of this size is had here. */
	return stats.table_bytes < 256 << 10 || after < before + stats.table_bytes * 3 / 4;
}

/* The tables are made by a kernel thread, for who announces. */
TEST_F(announce, tables_are_charged_to_who_announces)
{
	in_group(_metadata, &self->gpu, charged);
}

/* What the machine has free of its memory, in bytes. */
static uint64_t free_memory(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f) && sscanf(line, "MemFree: %llu kB", &kib) != 1)
		;
	if (f)
		fclose(f);
	return kib << 10;
}

/* Joins the group, and announces on many descriptors. Tells whether that takes memory which is not charged to the group. */
static int pinned(const struct uuid *gpu)
{
	enum { DESCRIPTORS = 128 };
	struct uvm_initialize init = { .flags = 2 };
	struct uvm_rust_prefetch_stats stats;
	uint64_t taken, charged;
	int i, fds[DESCRIPTORS];

	if (!uvm_put(GROUP "/cgroup.procs", "0"))
		return 2;
	for (i = 0; i < DESCRIPTORS; i++) {
		fds[i] = uvm_open();
		init.status = 0;
		if (fds[i] < 0 || ioctl(fds[i], UVM_INITIALIZE, &init) || init.status || uvm_register_gpu(fds[i], gpu))
			return 3;
	}
	taken = free_memory();
	charged = number(GROUP "/memory.current");
	for (i = 0; i < DESCRIPTORS; i++) {
		if (announce(fds[i], gpu, 1))
			return 4;
		settle(fds[i], gpu, 1, &stats);
	}
	taken -= free_memory();
	charged = number(GROUP "/memory.current") - charged;
	printf("# %d descriptors took %lld bytes, and %lld are charged\n", DESCRIPTORS, (long long)taken, (long long)charged);
	fflush(stdout);
	/* Each has two queues of more than that, so that the group was asked at all. */
	if ((int64_t)charged < DESCRIPTORS * (32 << 10))
		return 5;
	/* Memory comes in pages and slabs. */
	return (int64_t)taken > (int64_t)charged + DESCRIPTORS * (8 << 10);
}

TEST_F(announce, what_announcements_pin_is_charged)
{
	in_group(_metadata, &self->gpu, pinned);
}

/* Ends with work still queued. */
TEST_F(announce, the_end_comes_in_the_middle)
{
	int round;

	for (round = 0; round < 20; round++) {
		int fd = uvm_open();
		uint64_t i;

		ASSERT_LE(0, fd);
		ASSERT_EQ(0U, uvm_initialize(fd));
		ASSERT_EQ(0U, uvm_register_gpu(fd, &self->gpu));
		for (i = 1; i < 50; i++)
			ASSERT_EQ(0, announce(fd, &self->gpu, i));
		if (round % 2)
			ASSERT_EQ(0U, uvm_unregister_gpu(fd, &self->gpu));
		if (round % 2)
			EXPECT_EQ(ENODEV, announce(fd, &self->gpu, i));
		close(fd);
	}
}

/* Kernels that each read a buffer of their own: its blocks are learnt. */
TEST_F(announce, faults_are_learnt)
{
	struct uvm_rust_prefetch_stats stats;
	uint32_t channel;
	char *p[3];
	int i, iteration;

	if (self->vgpu < 0)
		SKIP(return, "no /dev/vgpu, and a real GPU's programs need CUDA");
	channel = uvm_channel(self->fd, self->vgpu, &self->gpu);
	ASSERT_NE(0U, channel);
	for (i = 0; i < 3; i++) {
		p[i] = uvm_managed(self->fd, 4 * BLOCK);
		ASSERT_NE(MAP_FAILED, p[i]);
	}
	for (iteration = 0; iteration < 4; iteration++) {
		for (i = 0; i < 3; i++) {
			struct vgpu_op op = {
				.kind = VGPU_OP_READ, .va = (uintptr_t)p[i], .stride = 4096,
				.count = 4 * BLOCK / 4096, .width = 8, .warps = 4,
			};
			struct vgpu_wait wait;

			/* Back to the CPU, so that it faults again. */
			memset(p[i], iteration, 4 * BLOCK);
			ASSERT_EQ(0, announce(self->fd, &self->gpu, 100 + i));
			ASSERT_EQ(0, vgpu_run(self->vgpu, channel, &op, &wait));
			ASSERT_EQ(VGPU_KERNEL_DONE, wait.state);
		}
	}
	settle(self->fd, &self->gpu, 12, &stats);
	EXPECT_EQ(12U, stats.kernels);
	EXPECT_LE(12U, stats.blocks);
	/* Only the first time is news. */
	EXPECT_GE(12U, stats.blocks_unknown);
	EXPECT_LT(5U, stats.kernels_right);
}

/* One element a page of @blocks blocks: stores the page's number plus @value, or compares with it. */
static struct vgpu_op pages_of(void *p, unsigned int blocks, uint32_t kind, uint64_t value)
{
	return (struct vgpu_op){
		.kind = kind, .va = (uintptr_t)p, .stride = 4096, .count = blocks * BLOCK / 4096,
		.width = 8, .warps = 4, .value = value, .value_stride = 1,
	};
}

/* Waits until so many blocks were pushed out, or 20 s; gives how many were. */
static uint64_t pushed_out(int fd, const struct uuid *gpu, uint64_t due)
{
	struct uvm_rust_prefetch_stats stats;
	int tries;

	for (tries = 0; tries < 2000; tries++) {
		/* After an error there is nothing, in @stats either. */
		if (learnt(fd, gpu, &stats) || stats.pushed_out >= due)
			break;
		usleep(10000);
	}
	return stats.pushed_out;
}

/*
 * What lies longest on the GPU is another's, who may not be asked to give it up ahead of need. What
 * is pushed out is the oldest of the process that wants room, and nobody's bytes change.
 *
 * Nothing is foreseen in the first round, so that after each kernel the driver pushes out until
 * uvm_rust_preevict blocks are free. The next kernel waits for that: a fault takes what it needs
 * by itself, and on a machine where the worker comes late would leave it nothing to do.
 */
TEST_F_TIMEOUT(announce, the_oldest_of_its_own_is_pushed_out, 300)
{
	/* Ten kernels of as many blocks as are kept free do not fit on the GPU of this test's lane. */
	enum { KERNELS = 10, EACH = 4, ROUNDS = 5, THEIRS = 5 };
	struct vgpu_info info = { .size = sizeof(info) };
	struct uvm_rust_prefetch_stats stats;
	struct uvm_mm_initialize mm = { 0 };
	uint32_t channel, their_channel;
	int i, round, other, their_mm;
	char *mine, *theirs;
	uint64_t told = 0, pushed = 0, due = 0;
	struct vgpu_wait wait;
	struct vgpu_op op;

	if (self->vgpu < 0)
		SKIP(return, "no /dev/vgpu, and a real GPU's programs need CUDA");
	if (!PARAMETER("uvm_rust_preevict"))
		SKIP(return, "nothing is pushed out: load nvidia-uvm.ko with uvm_rust_prefetch=1 uvm_rust_preevict=4");
	ASSERT_EQ(0, ioctl(self->vgpu, VGPU_GET_INFO, &info));
	other = uvm_open();
	their_mm = uvm_open();
	mm.fd = other;
	ASSERT_EQ(0U, uvm_initialize(other));
	ASSERT_EQ(0, ioctl(their_mm, UVM_MM_INITIALIZE, &mm));
	ASSERT_EQ(0U, uvm_register_gpu(other, &self->gpu));
	their_channel = uvm_channel(other, self->vgpu, &self->gpu);
	ASSERT_NE(0U, their_channel);
	theirs = uvm_managed(other, THEIRS * BLOCK);
	ASSERT_NE(MAP_FAILED, theirs);
	op = pages_of(theirs, THEIRS, VGPU_OP_WRITE, 1ULL << 40);
	ASSERT_EQ(0, vgpu_run(self->vgpu, their_channel, &op, &wait));
	ASSERT_EQ(VGPU_KERNEL_DONE, wait.state);

	channel = uvm_channel(self->fd, self->vgpu, &self->gpu);
	ASSERT_NE(0U, channel);
	mine = uvm_managed(self->fd, KERNELS * EACH * BLOCK);
	ASSERT_NE(MAP_FAILED, mine);
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < KERNELS; i++) {
			char *p = mine + i * EACH * BLOCK;

			ASSERT_EQ(0, announce(self->fd, &self->gpu, 100 + i));
			told++;
			op = pages_of(p, EACH, round ? VGPU_OP_CHECK : VGPU_OP_WRITE, i << 20);
			ASSERT_EQ(0, vgpu_run(self->vgpu, channel, &op, &wait));
			ASSERT_EQ(VGPU_KERNEL_DONE, wait.state);
			EXPECT_EQ(0U, wait.mismatches);
			settle(self->fd, &self->gpu, told, &stats);
			if (round)
				continue;
			/* What a kernel took is to be free again, once the GPU was short of room. */
			if (pushed)
				due = pushed + EACH;
			else if ((i + 1) * EACH + THEIRS + EACH > (info.vidmem_bytes - info.reserved_bytes) / BLOCK)
				due = 1;
			pushed = pushed_out(self->fd, &self->gpu, due);
		}
	}
	ASSERT_EQ(0, learnt(self->fd, &self->gpu, &stats));
	TH_LOG("%llu blocks prefetched, %llu pushed out", (unsigned long long)stats.prefetched,
	       (unsigned long long)stats.pushed_out);
	EXPECT_LT(KERNELS, stats.pushed_out);
	op = pages_of(theirs, THEIRS, VGPU_OP_CHECK, 1ULL << 40);
	ASSERT_EQ(0, vgpu_run(self->vgpu, their_channel, &op, &wait));
	EXPECT_EQ(0U, wait.mismatches);
	close(other);
	close(their_mm);
}

TEST_HARNESS_MAIN
