// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The tracepoints of uvm_rust, through tracefs: what happens is in them, with the numbers that the statistics give, and
 * nothing is while they are off.
 */
#include "kselftest_harness.h"
#include "uvm.h"

#define TRACING		"/sys/kernel/tracing"
#define INSTANCE	TRACING "/instances/uvm_rust_test"
#define BLOCKS_MOST	512

FIXTURE(trace)
{
	int fd, mm, vgpu;
	struct uuid gpu;
	uint64_t vidmem;
	uint32_t channel;
	char text[1 << 20];
};

FIXTURE_SETUP(trace)
{
	struct uvm_rust_version version = { .size = sizeof(version) };
	struct vgpu_info info = { .size = sizeof(info) };
	struct uvm_mm_initialize mm = { 0 };

	UVM_OPEN_OR_SKIP(self->fd);
	VGPU_OPEN(self->vgpu);
	UVM_RUST_OR_SKIP(self->fd, &version);
	if (self->vgpu < 0)
		SKIP(return, "no /dev/vgpu, and a real GPU's programs need CUDA");
	if (geteuid())
		SKIP(return, "tracing is for root");
	if (access(TRACING "/trace", F_OK) && mount("none", TRACING, "tracefs", 0, NULL)) {
		ASSERT_TRUE(errno == ENODEV || errno == ENOENT);
		SKIP(return, "this kernel has no tracefs");
	}
	ASSERT_TRUE(!mkdir(INSTANCE, 0700) || errno == EEXIST);
	ASSERT_TRUE(uvm_put(INSTANCE "/buffer_size_kb", "4096"));
	ASSERT_EQ(0, ioctl(self->vgpu, VGPU_GET_INFO, &info));
	self->vidmem = info.vidmem_bytes;
	memcpy(&self->gpu, info.uuid, sizeof(self->gpu));
	ASSERT_EQ(0U, uvm_initialize(self->fd));
	self->mm = uvm_open();
	mm.fd = self->fd;
	ASSERT_EQ(0, ioctl(self->mm, UVM_MM_INITIALIZE, &mm));
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu));
	self->channel = uvm_channel(self->fd, self->vgpu, &self->gpu);
	ASSERT_NE(0U, self->channel);
}

FIXTURE_TEARDOWN(trace)
{
	close(self->vgpu);
	close(self->fd);
	close(self->mm);
	uvm_put(INSTANCE "/events/uvm_rust/enable", "0");
	rmdir(INSTANCE);
}

static bool enable(const char *event, bool on)
{
	char path[256];

	snprintf(path, sizeof(path), INSTANCE "/events/uvm_rust/%s/enable", event);
	return uvm_put(path, on ? "1" : "0");
}

/* Reads what was recorded. Returns whether nothing of it was lost. */
static bool recorded(char *text, size_t room)
{
	int file = open(INSTANCE "/trace", O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t got;

	while (file >= 0 && (got = read(file, text + length, room - 1 - length)) > 0)
		length += got;
	if (file >= 0)
		close(file);
	text[length] = 0;
	return file >= 0 && got == 0 && length < room - 1 && !strstr(text, "LOST");
}

/* The next event of this name behind @at: its four numbers. Returns what is behind it, or NULL. */
static const char *next_event(const char *at, const char *name, const char *const keys[4], uint64_t of[4])
{
	const char *end;
	char start[64], key[64];
	int i;

	snprintf(start, sizeof(start), ": %s: ", name);
	at = strstr(at, start);
	if (!at)
		return NULL;
	end = strchrnul(at, '\n');
	for (i = 0; i < 4; i++) {
		const char *found;

		snprintf(key, sizeof(key), " %s=", keys[i]);
		found = strstr(at, key);
		if (!found || found > end)
			return NULL;
		of[i] = strtoull(found + strlen(key), NULL, 0);
	}
	return end;
}

/* How many events of any of our names were recorded. */
static unsigned int events(const char *text)
{
	static const char *const names[] = { ": fault_batch: ", ": evict: ", ": discard: ", ": spill: " };
	unsigned int i, n = 0;

	for (i = 0; i < 4; i++) {
		const char *at = text;

		for (; (at = strstr(at, names[i])); at++)
			n++;
	}
	return n;
}

static int get_stats(int fd, const struct uuid *gpu, struct uvm_rust_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->size = sizeof(*stats);
	memcpy(stats->gpu_uuid, gpu, sizeof(*gpu));
	return ioctl(fd, UVM_RUST_GET_STATS, stats) ? errno : 0;
}

/* The number behind a key of the file's fdinfo; 0 if there is none. */
static uint64_t told(int fd, const char *key)
{
	char path[64], line[256];
	size_t length = strlen(key);
	uint64_t number = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, key, length) && line[length] == ':')
			number = strtoull(line + length + 1, NULL, 0);
	if (file)
		fclose(file);
	return number;
}

static int discard(int fd, const void *base, uint64_t length, uint32_t flags)
{
	struct uvm_rust_discard_range range = { .base = (uintptr_t)base, .length = length };
	struct uvm_rust_discard_batch batch = {
		.size = sizeof(batch), .flags = flags, .ranges = (uintptr_t)&range, .range_count = 1,
		.range_size = sizeof(range),
	};

	return ioctl(fd, UVM_RUST_DISCARD_BATCH, &batch) ? errno : 0;
}

/* Writes to each page from the GPU. */
static int gpu_write(int vgpu, uint32_t channel, void *at, uint64_t bytes)
{
	struct vgpu_op op = {
		.kind = VGPU_OP_WRITE, .va = (uintptr_t)at, .stride = 4096, .count = bytes / 4096, .width = 8,
		.warps = 8, .value = 7,
	};
	struct vgpu_wait wait;

	return vgpu_run(vgpu, channel, &op, &wait) ?: wait.state != VGPU_KERNEL_DONE;
}

/* Until the call of the fault service that helped the last kernel has ended. */
static int settled(int fd, const struct uuid *gpu, struct uvm_rust_stats *stats)
{
	uint64_t before;
	int tries, error;

	for (tries = 0; tries < 500; tries++) {
		error = get_stats(fd, gpu, stats);
		before = stats->replays;
		usleep(20000);
		error = error ?: get_stats(fd, gpu, stats);
		if (error || (before && stats->replays == before))
			return error;
	}
	return ETIMEDOUT;
}

TEST_F(trace, off_they_record_nothing)
{
	struct uvm_rust_stats stats;
	char *p = uvm_managed(self->fd, BLOCK);

	ASSERT_NE(MAP_FAILED, p);
	ASSERT_EQ(0, gpu_write(self->vgpu, self->channel, p, BLOCK));
	ASSERT_EQ(0, settled(self->fd, &self->gpu, &stats));
	EXPECT_LT(0U, stats.faults);
	ASSERT_EQ(0, discard(self->fd, p, BLOCK, UVM_RUST_DISCARD_EAGER));
	ASSERT_TRUE(recorded(self->text, sizeof(self->text)));
	EXPECT_EQ(0U, events(self->text));
	/* Nor after they were on. */
	ASSERT_TRUE(enable("discard", true));
	ASSERT_TRUE(enable("discard", false));
	ASSERT_EQ(0, discard(self->fd, p, BLOCK, UVM_RUST_DISCARD_EAGER));
	ASSERT_TRUE(recorded(self->text, sizeof(self->text)));
	EXPECT_EQ(0U, events(self->text));
}

TEST_F(trace, fault_batches_are_what_the_statistics_count)
{
	static const char *const keys[4] = { "gpu", "batch", "faults", "duplicates" };
	uint64_t of[4], batches = 0, faults = 0, duplicates = 0, last = 0;
	struct uvm_rust_stats stats;
	const char *at = self->text;
	char *p = uvm_managed(self->fd, 4 * BLOCK);

	ASSERT_NE(MAP_FAILED, p);
	ASSERT_TRUE(enable("fault_batch", true));
	ASSERT_EQ(0, gpu_write(self->vgpu, self->channel, p, 4 * BLOCK));
	ASSERT_EQ(0, settled(self->fd, &self->gpu, &stats));
	ASSERT_TRUE(enable("fault_batch", false));
	ASSERT_TRUE(recorded(self->text, sizeof(self->text)));
	while ((at = next_event(at, "fault_batch", keys, of))) {
		EXPECT_EQ(1U, of[0]);
		if (batches++)
			EXPECT_LT(last, of[1]);
		last = of[1];
		faults += of[2];
		duplicates += of[3];
	}
	EXPECT_EQ(stats.batches, batches);
	EXPECT_EQ(stats.faults, faults);
	EXPECT_EQ(stats.duplicates, duplicates);
	EXPECT_EQ(batches, events(self->text));
}

TEST_F(trace, a_discard_is_told_with_its_range)
{
	static const char *const keys[4] = { "client", "address", "length", "eager" };
	uint64_t of[4], client = told(self->fd, "drm-client-id");
	const char *at = self->text;
	char *p = uvm_managed(self->fd, 2 * BLOCK);

	ASSERT_NE(MAP_FAILED, p);
	memset(p, 1, 2 * BLOCK);
	ASSERT_NE(0U, client);
	ASSERT_TRUE(enable("discard", true));
	ASSERT_EQ(0, discard(self->fd, p, BLOCK, UVM_RUST_DISCARD_EAGER));
	ASSERT_EQ(0, discard(self->fd, p + BLOCK, 4096, 0));
	/* What is refused is no discard. */
	ASSERT_EQ(ENXIO, discard(self->fd, p + 64 * BLOCK, BLOCK, 0));
	ASSERT_TRUE(enable("discard", false));
	ASSERT_TRUE(recorded(self->text, sizeof(self->text)));
	at = next_event(at, "discard", keys, of);
	ASSERT_NE(NULL, at);
	EXPECT_EQ(client, of[0]);
	EXPECT_EQ((uintptr_t)p, of[1]);
	EXPECT_EQ(BLOCK, of[2]);
	EXPECT_EQ(1U, of[3]);
	at = next_event(at, "discard", keys, of);
	ASSERT_NE(NULL, at);
	EXPECT_EQ(client, of[0]);
	EXPECT_EQ((uintptr_t)p + BLOCK, of[1]);
	EXPECT_EQ(4096U, of[2]);
	EXPECT_EQ(0U, of[3]);
	EXPECT_EQ(2U, events(self->text));
}

TEST_F(trace, evictions_are_what_the_statistics_count)
{
	static const char *const keys[4] = { "client", "gpu", "chunk", "queue" };
	uint64_t of[4], client = told(self->fd, "drm-client-id"), by_queue[UVM_RUST_QUEUE_MAX] = { 0 };
	uint64_t blocks = self->vidmem / BLOCK + 8, i;
	struct uvm_rust_stats stats;
	const char *at = self->text;
	char *p;

	if (blocks > BLOCKS_MOST)
		SKIP(return, "the GPU has more memory than is quickly filled: load vgpu.ko with less");
	p = uvm_managed(self->fd, blocks * BLOCK);
	ASSERT_NE(MAP_FAILED, p);
	/* Some of what goes is needed by nobody. */
	ASSERT_EQ(0, gpu_write(self->vgpu, self->channel, p, 2 * BLOCK));
	ASSERT_EQ(0, discard(self->fd, p, 2 * BLOCK, UVM_RUST_DISCARD_EAGER));
	ASSERT_TRUE(enable("evict", true));
	for (i = 2; i < blocks; i++)
		ASSERT_EQ(0U, uvm_migrate(self->fd, p + i * BLOCK, BLOCK, &self->gpu, 0));
	ASSERT_TRUE(enable("evict", false));
	ASSERT_EQ(0, get_stats(self->fd, &self->gpu, &stats));
	ASSERT_TRUE(recorded(self->text, sizeof(self->text)));
	while ((at = next_event(at, "evict", keys, of))) {
		EXPECT_EQ(client, of[0]);
		EXPECT_EQ(1U, of[1]);
		EXPECT_LT(of[2], self->vidmem / BLOCK);
		ASSERT_LT(of[3], (uint64_t)UVM_RUST_QUEUE_MAX);
		by_queue[of[3]]++;
	}
	for (i = 0; i < UVM_RUST_QUEUE_MAX; i++)
		EXPECT_EQ(stats.evictions[i], by_queue[i]);
	EXPECT_LT(0U, by_queue[UVM_RUST_QUEUE_DISCARDED] + by_queue[UVM_RUST_QUEUE_UNUSED]);
	EXPECT_LT(0U, by_queue[UVM_RUST_QUEUE_USED]);
}

TEST_HARNESS_MAIN
