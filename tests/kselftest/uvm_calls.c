// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What the calls of uvm_rust_ioctl.h have in common: who was not initialised gets EPERM, who had
 * no memory to be is as if nothing had been tried, and nothing is written but what the header says.
 */
#include <sys/wait.h>

#include "kselftest_harness.h"
#include "uvm.h"

#define NV_ERR_NO_MEMORY	0x51

FIXTURE(calls)
{
	int fd, vgpu;
	struct uuid gpu;
	uint64_t features;
};

FIXTURE_SETUP(calls)
{
	struct uvm_rust_version version = { .size = sizeof(version) };

	UVM_OPEN_OR_SKIP(self->fd);
	VGPU_OPEN(self->vgpu);
	UVM_RUST_OR_SKIP(self->fd, &version);
	self->features = version.features;
	if (!uvm_find_gpu(self->vgpu, &self->gpu))
		SKIP(return, "no GPU: neither /dev/vgpu nor /proc/driver/nvidia/gpus");
	ASSERT_EQ(0U, uvm_initialize(self->fd));
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu));
}

FIXTURE_TEARDOWN(calls)
{
	close(self->vgpu);
	close(self->fd);
}

static int call(int fd, unsigned int number, void *what)
{
	return ioctl(fd, number, what) ? errno : 0;
}

static int get_stats(int fd, const struct uuid *gpu)
{
	struct uvm_rust_stats stats = { .size = sizeof(stats) };

	memcpy(stats.gpu_uuid, gpu, sizeof(*gpu));
	return call(fd, UVM_RUST_GET_STATS, &stats);
}

static int announce(int fd, const struct uuid *gpu)
{
	struct uvm_rust_announce what = { .size = sizeof(what), .exec_id = 1 };

	memcpy(what.gpu_uuid, gpu, sizeof(*gpu));
	return call(fd, UVM_RUST_ANNOUNCE, &what);
}

static int learnt(int fd, const struct uuid *gpu)
{
	struct uvm_rust_prefetch_stats stats = { .size = sizeof(stats) };

	memcpy(stats.gpu_uuid, gpu, sizeof(*gpu));
	return call(fd, UVM_RUST_GET_PREFETCH_STATS, &stats);
}

static int set_quota(int fd, const struct uuid *gpu)
{
	struct uvm_rust_quota quota = { .size = sizeof(quota), .flags = UVM_RUST_QUOTA_MAX, .max = 1ULL << 30 };

	memcpy(quota.gpu_uuid, gpu, sizeof(*gpu));
	return call(fd, UVM_RUST_SET_QUOTA, &quota);
}

static int discard(int fd, uint64_t base)
{
	struct uvm_rust_discard_range range = { .base = base, .length = BLOCK };
	struct uvm_rust_discard_batch batch = {
		.size = sizeof(batch), .ranges = (uintptr_t)&range, .range_count = 1, .range_size = sizeof(range),
	};

	return call(fd, UVM_RUST_DISCARD_BATCH, &batch);
}

static int move(int fd, uint64_t base)
{
	struct uvm_rust_flash_move_range range = { .size = sizeof(range), .base = base, .length = BLOCK };

	return call(fd, UVM_RUST_FLASH_MOVE, &range);
}

/* What a call of this feature says to who is no process. */
static int nobody(uint64_t features, uint64_t feature)
{
	return features & feature ? EPERM : EOPNOTSUPP;
}

/* How many of the calls that want a process say of this file that it is none. */
static int refused(int fd, const struct uuid *gpu, uint64_t features)
{
	uint64_t base = 0x200000000000;

	return (get_stats(fd, gpu) == nobody(features, UVM_RUST_FEATURE_STATS)) +
	       (announce(fd, gpu) == nobody(features, UVM_RUST_FEATURE_EXEC_ID)) +
	       (learnt(fd, gpu) == nobody(features, UVM_RUST_FEATURE_EXEC_ID)) +
	       (set_quota(fd, gpu) == nobody(features, UVM_RUST_FEATURE_QUOTA)) +
	       (discard(fd, base) == nobody(features, UVM_RUST_FEATURE_DISCARD)) +
	       (move(fd, base) == nobody(features, UVM_RUST_FEATURE_FLASH));
}

#define REFUSED	6

TEST_F(calls, nothing_before_initialize)
{
	struct uvm_rust_version version = { .size = sizeof(version) };
	struct uvm_rust_flash_stats stats = { .size = sizeof(stats), .pages_mine = 1 };
	int fd = uvm_open();

	ASSERT_LE(0, fd);
	EXPECT_EQ(REFUSED, refused(fd, &self->gpu, self->features));
	/* These are not a process's. */
	EXPECT_EQ(0, call(fd, UVM_RUST_GET_VERSION, &version));
	if (self->features & UVM_RUST_FEATURE_FLASH) {
		EXPECT_EQ(0, call(fd, UVM_RUST_FLASH_GET_STATS, &stats));
		EXPECT_EQ(0U, stats.pages_mine);
	}
	close(fd);
}

/* A file that keeps a process's memory is none of a process either. */
TEST_F(calls, nothing_on_a_file_of_another_kind)
{
	struct uvm_mm_initialize mm = { .fd = self->fd };
	int fd = uvm_open();

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ioctl(fd, UVM_MM_INITIALIZE, &mm));
	if (mm.status)
		SKIP(return, "UVM wants no such file here: status %#x", mm.status);
	EXPECT_EQ(REFUSED, refused(fd, &self->gpu, self->features));
	close(fd);
}

/* Ranges in an array whose elements are longer than what the driver knows of them. */
struct element {
	struct uvm_rust_discard_range range;
	uint64_t unknown[2];
};

/*
 * The array is only read: an element begins with an address, and has no size that could be
 * corrected. The call's own structure says where it stopped.
 */
TEST_F(calls, a_batch_leaves_its_ranges_alone)
{
	struct element elements[3], before[3];
	struct uvm_rust_discard_batch batch = {
		.size = sizeof(batch), .flags = UVM_RUST_DISCARD_EAGER, .ranges = (uintptr_t)elements,
		.range_count = 3, .range_size = sizeof(elements[0]), .first_failed = ~0U,
	};
	char *p = uvm_managed(self->fd, 3 * BLOCK);
	unsigned int i;

	if (!(self->features & UVM_RUST_FEATURE_DISCARD))
		SKIP(return, "discard is turned off");
	ASSERT_NE(MAP_FAILED, p);
	memset(elements, 0, sizeof(elements));
	for (i = 0; i < 3; i++) {
		p[i * BLOCK] = 1;
		elements[i].range.base = (uintptr_t)p + i * BLOCK;
		elements[i].range.length = BLOCK;
	}
	elements[1].unknown[1] = 1;
	memcpy(before, elements, sizeof(before));
	EXPECT_EQ(E2BIG, call(self->fd, UVM_RUST_DISCARD_BATCH, &batch));
	EXPECT_EQ(0, memcmp(before, elements, sizeof(before)));
	EXPECT_EQ(1U, batch.first_failed);
	EXPECT_EQ(1U, batch.blocks_discarded + batch.blocks_skipped);
	EXPECT_EQ(sizeof(batch), batch.size);
	/* From there on, once that is corrected. */
	elements[1].unknown[1] = 0;
	batch.ranges = (uintptr_t)&elements[1];
	batch.range_count = 2;
	EXPECT_EQ(0, call(self->fd, UVM_RUST_DISCARD_BATCH, &batch));
	EXPECT_EQ(2U, batch.first_failed);
}

/* --- without memory -------------------------------------------------------------------- */

#define GROUPS	"/tmp/uvm-calls-groups"
#define GROUP	GROUPS "/has-none"

/* What parent and child tell each other, in memory that is there: a pipe would want some. */
struct talk {
	volatile int turn;
	uint32_t initialized, again, registered;
	int refused, before, after;
};

static void pass_on(struct talk *talk, int to)
{
	int tries;

	__sync_synchronize();
	talk->turn = to;
	/* The other one's is odd or even, too. */
	for (tries = 0; tries < 60000 && talk->turn == to; tries++)
		usleep(1000);
	__sync_synchronize();
}

/*
 * At each even turn the group that this process is in gets no memory, at each odd one it does. All
 * of its own is there already, and it is not killed for want of more.
 */
static void has_none(struct talk *talk, int fd, const struct uuid *gpu, uint64_t features)
{
	if (mlockall(MCL_CURRENT | MCL_FUTURE) || !uvm_put("/proc/self/oom_score_adj", "-1000"))
		_exit(1);
	pass_on(talk, 1);
	talk->initialized = uvm_initialize(fd);
	talk->refused = refused(fd, gpu, features);
	pass_on(talk, 3);
	talk->again = uvm_initialize(fd);
	talk->before = get_stats(fd, gpu);
	pass_on(talk, 5);
	talk->registered = uvm_register_gpu(fd, gpu);
	talk->after = get_stats(fd, gpu);
	pass_on(talk, 7);
	close(fd);
	_exit(0);
}

/* Waits for the child's turn @turn, and lets it go on with so much memory. */
static bool let_on(struct talk *talk, int turn, const char *memory)
{
	int tries;

	for (tries = 0; tries < 60000 && talk->turn != turn; tries++)
		usleep(1000);
	if (talk->turn != turn || !uvm_put(GROUP "/memory.max", memory))
		return false;
	talk->turn = turn + 1;
	return true;
}

TEST_F(calls, without_memory_to_initialize)
{
	struct talk *talk = mmap(NULL, sizeof(*talk), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fd = uvm_open(), status = -1, made, tries;
	char name[16];
	bool talked;
	pid_t child;

	if (geteuid())
		SKIP(return, "only root makes a group");
	ASSERT_NE(MAP_FAILED, talk);
	ASSERT_LE(0, fd);
	made = uvm_group_make(GROUPS, GROUP);
	if (made > 0)
		SKIP(return, "no cgroup2: %s", strerror(made));
	ASSERT_EQ(0, made);
	child = fork();
	if (!child)
		has_none(talk, fd, &self->gpu, self->features);
	snprintf(name, sizeof(name), "%d", child);
	/* Put there by somebody else, it has been charged for nothing before. */
	for (tries = 0; tries < 60000 && talk->turn != 1; tries++)
		usleep(1000);
	talked = uvm_put(GROUP "/cgroup.procs", name) && let_on(talk, 1, "0") && let_on(talk, 3, "max") &&
		 let_on(talk, 5, "0") && let_on(talk, 7, "max");
	EXPECT_TRUE(talked);
	if (!talked)
		kill(child, SIGKILL);
	EXPECT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(NV_ERR_NO_MEMORY, talk->initialized);
	EXPECT_EQ(REFUSED, talk->refused);
	/* It can be tried again, and is a process like others then. */
	EXPECT_EQ(0U, talk->again);
	EXPECT_EQ(ENODEV, talk->before);
	/* A GPU without statistics is one all the same. */
	EXPECT_EQ(0U, talk->registered);
	EXPECT_EQ(ENOMEM, talk->after);
	close(fd);
	EXPECT_EQ(0, uvm_group_remove(GROUPS, GROUP));
}

TEST_HARNESS_MAIN
