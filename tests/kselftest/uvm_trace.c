// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The tracepoints uvm_rust:*, read as trace-cmd does, by tracefs: what they say adds up to what the statistics do.
 */
#include <pthread.h>
#include <stdlib.h>

#include "kselftest_harness.h"
#include "uvm.h"

#define TRACING		"/sys/kernel/tracing"
/* Of its own, so that nobody else's events are in the buffer, and ours are in nobody else's. */
#define INSTANCE	TRACING "/instances/uvm_rust_test"
#define EVENTS_MOST	8192

/* One line of the buffer: the name of the event, and behind it what it says, `name=value` with a space in between. */
struct event {
	char name[32];
	char text[256];
};

FIXTURE(trace)
{
	int fd, vgpu, mm;
	struct uuid gpu;
	struct vgpu_info info;
	struct event *events;
	unsigned int n;
};

/* The number, in decimal or hexadecimal, of a field of an event; ~0 if it has no such field. */
static uint64_t number(const struct event *event, const char *field)
{
	char key[48];
	const char *at;

	snprintf(key, sizeof(key), " %s=", field);
	at = strstr(event->text, key);
	return at ? strtoull(at + strlen(key), NULL, 0) : ~0ULL;
}

/* Whether a field of an event has this text. */
static bool is(const struct event *event, const char *field, const char *value)
{
	char key[80];
	const char *at;

	snprintf(key, sizeof(key), " %s=%s", field, value);
	at = strstr(event->text, key);
	return at && strchr(" \n", at[strlen(key)]);
}

static bool instance_put(const char *file, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), INSTANCE "/%s", file);
	return uvm_put(path, text);
}

/* Whether an event can be turned on; and turns it on, or off. */
static bool turn(const char *event, bool on)
{
	char file[128];

	snprintf(file, sizeof(file), "events/uvm_rust/%s/enable", event);
	return instance_put(file, on ? "1" : "0");
}

/*
 * Reads what was said of one event, and empties the buffer. Returns how many there were, or ~0 if that is not known, as
 * some went lost.
 */
static unsigned int take(struct event *events, const char *name)
{
	FILE *trace = fopen(INSTANCE "/trace", "r");
	char line[512], colon[40];
	unsigned int n = 0;
	int emptied;

	snprintf(colon, sizeof(colon), " %s: ", name);
	while (trace && fgets(line, sizeof(line), trace)) {
		const char *at = line[0] == '#' ? NULL : strstr(line, colon);

		if (strstr(line, "LOST") || n == EVENTS_MOST) {
			n = ~0U;
			break;
		}
		if (!at)
			continue;
		snprintf(events[n].name, sizeof(events[n].name), "%s", name);
		/* With the space that is in front of each field. */
		snprintf(events[n].text, sizeof(events[n].text), "%s", at + strlen(colon) - 1);
		n++;
	}
	if (!trace)
		n = ~0U;
	else
		fclose(trace);
	/* Opened so, it is emptied. */
	emptied = open(INSTANCE "/trace", O_WRONLY | O_TRUNC | O_CLOEXEC);
	if (emptied < 0)
		return ~0U;
	close(emptied);
	return n;
}

/* The sum of a field over the events of process @pid; of all for 0. */
static uint64_t sum(const struct event *events, unsigned int n, const char *field, uint64_t pid)
{
	uint64_t total = 0;
	unsigned int i;

	for (i = 0; i < n; i++)
		if (!pid || number(&events[i], "pid") == pid)
			total += number(&events[i], field);
	return total;
}

static int get_stats(int fd, const struct uuid *gpu, struct uvm_rust_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->size = sizeof(*stats);
	memcpy(stats->gpu_uuid, gpu, sizeof(*gpu));
	return ioctl(fd, UVM_RUST_GET_STATS, stats) ? errno : 0;
}

/* The same once the calls of the fault service that helped a program are over: each counts its replays as it returns. */
static int settled_stats(int fd, const struct uuid *gpu, struct uvm_rust_stats *stats)
{
	struct uvm_rust_stats before;
	unsigned int tries;
	int ret;

	for (tries = 0; tries < 500; tries++) {
		ret = get_stats(fd, gpu, &before);
		usleep(20000);
		ret = ret ?: get_stats(fd, gpu, stats);
		if (ret || (stats->replays && !memcmp(&before, stats, sizeof(before))))
			return ret;
	}
	return ETIMEDOUT;
}

FIXTURE_SETUP(trace)
{
	struct uvm_rust_version version = { .size = sizeof(version) };
	struct uvm_mm_initialize init = { 0 };

	UVM_OPEN_OR_SKIP(self->fd);
	VGPU_OPEN(self->vgpu);
	UVM_RUST_OR_SKIP(self->fd, &version);
	if (self->vgpu < 0)
		SKIP(return, "no /dev/vgpu, and a real GPU's programs need CUDA");
	self->info.size = sizeof(self->info);
	ASSERT_EQ(0, ioctl(self->vgpu, VGPU_GET_INFO, &self->info));
	memcpy(&self->gpu, self->info.uuid, sizeof(self->gpu));
	if (access(TRACING "/instances", F_OK) && mount("none", TRACING, "tracefs", 0, NULL)) {
		ASSERT_TRUE(uvm_absent());
		SKIP(return, "this kernel has no tracefs (CONFIG_EVENT_TRACING)");
	}
	rmdir(INSTANCE);
	ASSERT_EQ(0, mkdir(INSTANCE, 0700));
	ASSERT_TRUE(instance_put("buffer_size_kb", "4096"));
	self->events = calloc(EVENTS_MOST, sizeof(*self->events));
	ASSERT_NE(NULL, self->events);
	ASSERT_EQ(0U, uvm_initialize(self->fd));
	self->mm = uvm_open();
	init.fd = self->fd;
	ASSERT_EQ(0, ioctl(self->mm, UVM_MM_INITIALIZE, &init));
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu));
}

FIXTURE_TEARDOWN(trace)
{
	close(self->mm);
	close(self->fd);
	close(self->vgpu);
	rmdir(INSTANCE);
	free(self->events);
}

/* Has the GPU write one word of each page. */
static int write_all(int vgpu, uint32_t channel, void *p, size_t bytes)
{
	struct vgpu_op op = {
		.kind = VGPU_OP_WRITE, .stride = 4096, .count = bytes / 4096, .width = 8, .warps = 8, .value = 7,
		.va = (uintptr_t)p,
	};
	struct vgpu_wait wait;

	return vgpu_run(vgpu, channel, &op, &wait);
}

TEST_F(trace, batches_of_faults)
{
	struct uvm_rust_stats stats;
	uint32_t channel = uvm_channel(self->fd, self->vgpu, &self->gpu);
	unsigned int i, batches = 0;
	char *p = uvm_managed(self->fd, 4 * BLOCK);

	ASSERT_NE(0U, channel);
	ASSERT_TRUE(turn("fault_batch", true));
	ASSERT_EQ(0, write_all(self->vgpu, channel, p, 4 * BLOCK));
	ASSERT_EQ(0, settled_stats(self->fd, &self->gpu, &stats));
	ASSERT_TRUE(turn("fault_batch", false));
	self->n = take(self->events, "fault_batch");
	ASSERT_NE(~0U, self->n);
	for (i = 0; i < self->n; i++) {
		const struct event *event = &self->events[i];

		batches += number(event, "faults") != 0;
		EXPECT_EQ(1U, number(event, "gpu"));
		EXPECT_EQ(0U, number(event, "status"));
		EXPECT_LE(number(event, "faults"), number(event, "entries"));
		if (i)
			EXPECT_EQ(number(event - 1, "batch") + 1, number(event, "batch"));
	}
	EXPECT_LT(0U, stats.faults);
	EXPECT_EQ(stats.batches, batches);
	EXPECT_EQ(stats.faults, sum(self->events, self->n, "faults", 0));
	EXPECT_EQ(stats.duplicates, sum(self->events, self->n, "duplicates", 0));
	/* Off again, it says nothing. */
	p = uvm_managed(self->fd, BLOCK);
	ASSERT_EQ(0, write_all(self->vgpu, channel, p, BLOCK));
	EXPECT_EQ(0U, take(self->events, "fault_batch"));
}

static const char *const queues[] = { "free", "unused", "discarded", "used", "address" };

TEST_F(trace, evictions)
{
	struct uvm_rust_discard_range range;
	struct uvm_rust_discard_batch batch = {
		.size = sizeof(batch), .ranges = (uintptr_t)&range, .range_count = 1, .range_size = sizeof(range),
	};
	struct uvm_rust_stats stats;
	uint32_t channel = uvm_channel(self->fd, self->vgpu, &self->gpu);
	size_t bytes = self->info.vidmem_bytes / BLOCK * BLOCK;
	char *first = uvm_managed(self->fd, bytes), *second = uvm_managed(self->fd, bytes);
	unsigned int i, queue, discarded = 0;

	ASSERT_NE(0U, channel);
	ASSERT_TRUE(turn("evict", true));
	ASSERT_EQ(0, write_all(self->vgpu, channel, first, bytes));
	/* What is discarded leaves without a copy. */
	range = (struct uvm_rust_discard_range){ (uintptr_t)first + bytes / 2, bytes / 4 / BLOCK * BLOCK };
	ASSERT_EQ(0, ioctl(self->fd, UVM_RUST_DISCARD_BATCH, &batch));
	ASSERT_EQ(0, write_all(self->vgpu, channel, second, bytes));
	ASSERT_EQ(0, settled_stats(self->fd, &self->gpu, &stats));
	ASSERT_TRUE(turn("evict", false));
	self->n = take(self->events, "evict");
	ASSERT_NE(~0U, self->n);
	for (queue = 0; queue < 5; queue++) {
		unsigned int from = 0;

		for (i = 0; i < self->n; i++)
			from += number(&self->events[i], "pid") == getpid() && is(&self->events[i], "queue", queues[queue]);
		EXPECT_EQ(stats.evictions[queue], from);
	}
	for (i = 0; i < self->n; i++) {
		const struct event *event = &self->events[i];
		uintptr_t at = number(event, "address");

		EXPECT_EQ(1U, number(event, "gpu"));
		EXPECT_EQ(0U, number(event, "status"));
		EXPECT_TRUE((at >= (uintptr_t)first && at < (uintptr_t)first + bytes) ||
			    (at >= (uintptr_t)second && at < (uintptr_t)second + bytes));
		if (is(event, "queue", "discarded")) {
			EXPECT_EQ(0U, number(event, "bytes"));
			discarded++;
		}
	}
	EXPECT_LT(0U, discarded);
	EXPECT_LT(discarded, self->n);
	EXPECT_EQ(stats.gpu_to_host[UVM_RUST_CAUSE_EVICTION].bytes, sum(self->events, self->n, "bytes", getpid()));
}

#define THREADS	3
#define ROUNDS	4

/* What a thread moves to the GPU, again and again, while others take it from there. */
struct mover {
	int fd;
	const struct uuid *gpu;
	char *p;
	size_t bytes;
	uint32_t status;
};

static void *move(void *of)
{
	struct mover *mover = of;
	unsigned int i;

	for (i = 0; i < ROUNDS && !mover->status; i++)
		mover->status = uvm_migrate(mover->fd, mover->p, mover->bytes, mover->gpu, UVM_MIGRATE_NO_GPU_VA_SPACE);
	return NULL;
}

/* Each eviction has its own bytes, and none that another thread copies meanwhile. */
TEST_F(trace, evictions_by_several_threads)
{
	struct mover movers[THREADS];
	pthread_t threads[THREADS];
	struct uvm_rust_stats stats;
	unsigned int i;

	if (!uvm_builtin_tests())
		SKIP(return, "load nvidia-uvm.ko with uvm_enable_builtin_tests=1");
	ASSERT_TRUE(turn("evict", true));
	for (i = 0; i < THREADS; i++) {
		movers[i] = (struct mover){ .fd = self->fd, .gpu = &self->gpu };
		movers[i].bytes = self->info.vidmem_bytes / 2 / BLOCK * BLOCK;
		movers[i].p = uvm_managed(self->fd, movers[i].bytes);
		ASSERT_NE(MAP_FAILED, movers[i].p);
		memset(movers[i].p, 1, movers[i].bytes);
	}
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, move, &movers[i]));
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
	for (i = 0; i < THREADS; i++)
		EXPECT_EQ(0U, movers[i].status);
	ASSERT_TRUE(turn("evict", false));
	ASSERT_EQ(0, get_stats(self->fd, &self->gpu, &stats));
	self->n = take(self->events, "evict");
	ASSERT_NE(~0U, self->n);
	EXPECT_LT(2U * THREADS, self->n);
	for (i = 0; i < self->n; i++)
		EXPECT_GE(BLOCK, number(&self->events[i], "bytes"));
	EXPECT_EQ(stats.gpu_to_host[UVM_RUST_CAUSE_EVICTION].bytes, sum(self->events, self->n, "bytes", getpid()));
}

TEST_F(trace, discards)
{
	char *p = uvm_managed(self->fd, 4 * BLOCK);
	struct uvm_rust_discard_range ranges[] = {
		{ (uintptr_t)p, 2 * BLOCK }, { (uintptr_t)p + 2 * BLOCK, BLOCK }, { 0x1000, 0x1000 },
	};
	struct uvm_rust_discard_batch batch = {
		.size = sizeof(batch), .ranges = (uintptr_t)ranges, .range_count = 2, .range_size = sizeof(ranges[0]),
		.flags = UVM_RUST_DISCARD_EAGER,
	};
	unsigned int i;

	memset(p, 1, 2 * BLOCK);
	ASSERT_TRUE(turn("discard", true));
	ASSERT_EQ(0, ioctl(self->fd, UVM_RUST_DISCARD_BATCH, &batch));
	self->n = take(self->events, "discard");
	ASSERT_EQ(2U, self->n);
	for (i = 0; i < self->n; i++) {
		EXPECT_EQ(getpid(), number(&self->events[i], "pid"));
		EXPECT_EQ(1U, number(&self->events[i], "eager"));
		EXPECT_EQ(0U, number(&self->events[i], "status"));
		EXPECT_EQ(ranges[i].base, number(&self->events[i], "address"));
		EXPECT_EQ(ranges[i].length, number(&self->events[i], "bytes"));
	}
	/* Nobody has touched the third block. */
	EXPECT_EQ(2U, number(&self->events[0], "discarded"));
	EXPECT_EQ(1U, number(&self->events[1], "skipped"));
	EXPECT_EQ(batch.blocks_discarded, sum(self->events, 2, "discarded", 0));
	EXPECT_EQ(batch.blocks_skipped, sum(self->events, 2, "skipped", 0));
	EXPECT_EQ(batch.blocks_partial, sum(self->events, 2, "partial", 0));
	/* One that fails is told of, too. */
	batch.flags = 0;
	batch.ranges = (uintptr_t)&ranges[2];
	batch.range_count = 1;
	EXPECT_EQ(-1, ioctl(self->fd, UVM_RUST_DISCARD_BATCH, &batch));
	EXPECT_EQ(ENXIO, errno);
	ASSERT_EQ(1U, take(self->events, "discard"));
	EXPECT_EQ(0U, number(&self->events[0], "eager"));
	EXPECT_EQ(0x1eU, number(&self->events[0], "status"));
	ASSERT_TRUE(turn("discard", false));
}

#define FOLDER	"/tmp/uvm_trace"

TEST_F(trace, spills)
{
	struct uvm_rust_flash_attach attach = {
		.size = sizeof(attach), .path = (uintptr_t)FOLDER "/device", .host_bytes = 1 << 30,
	};
	struct uvm_rust_flash_detach detach = { .size = sizeof(detach) };
	struct uvm_rust_flash_stats stats = { .size = sizeof(stats) };
	struct uvm_rust_flash_move_range move = { .size = sizeof(move), .length = 4 * BLOCK };
	struct uvm_rust_version version = { .size = sizeof(version) };
	char *p = uvm_managed(self->fd, 4 * BLOCK);
	unsigned int i;
	int file;

	ASSERT_EQ(0, ioctl(self->fd, UVM_RUST_GET_VERSION, &version));
	if (!(version.features & UVM_RUST_FEATURE_FLASH))
		SKIP(return, "load nvidia-uvm.ko with uvm_rust_flash=1");
	ASSERT_TRUE(!mkdir(FOLDER, 0700) || errno == EEXIST);
	ASSERT_EQ(0, mount("none", FOLDER, "tmpfs", 0, NULL));
	file = open(FOLDER "/device", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ASSERT_LE(0, file);
	ASSERT_EQ(0, ftruncate(file, 64 << 20));
	close(file);
	ASSERT_EQ(0, ioctl(self->fd, UVM_RUST_FLASH_ATTACH, &attach));
	memset(p, 1, 4 * BLOCK);
	move.base = (uintptr_t)p;
	ASSERT_TRUE(turn("spill", true));
	ASSERT_EQ(0, ioctl(self->fd, UVM_RUST_FLASH_MOVE, &move));
	ASSERT_TRUE(turn("spill", false));
	ASSERT_EQ(0, ioctl(self->fd, UVM_RUST_FLASH_GET_STATS, &stats));
	self->n = take(self->events, "spill");
	EXPECT_EQ(4U, self->n);
	for (i = 0; i < self->n && i < 4; i++) {
		EXPECT_EQ(getpid(), number(&self->events[i], "pid"));
		EXPECT_EQ((uintptr_t)p + i * BLOCK, number(&self->events[i], "address"));
		EXPECT_EQ(0U, number(&self->events[i], "errors"));
		EXPECT_EQ(BLOCK, number(&self->events[i], "bytes"));
	}
	EXPECT_EQ(4 * BLOCK, stats.spilled);
	EXPECT_EQ(stats.spilled, sum(self->events, self->n, "bytes", 0));
	EXPECT_EQ(stats.written, sum(self->events, self->n, "written", 0));
	EXPECT_EQ(0, ioctl(self->fd, UVM_RUST_FLASH_DETACH, &detach));
	EXPECT_EQ(0, umount2(FOLDER, MNT_DETACH));
	rmdir(FOLDER);
}

TEST_HARNESS_MAIN
