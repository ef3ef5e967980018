// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * /proc/PID/fdinfo/FD of /dev/nvidia-uvm, in the format of the kernel's Documentation/gpu/drm-usage-stats.rst:
 * its numbers are those of UVM_RUST_GET_STATS, and nobody else's.
 */
#include <ctype.h>
#include <grp.h>
#include <sys/wait.h>

#include "kselftest_harness.h"
#include "uvm.h"

#define GPUS_MOST	8

struct info {
	char text[1 << 16];
	size_t length;
};

FIXTURE(fdinfo)
{
	int fd, vgpu;
	struct uuid gpu[GPUS_MOST];
	unsigned int gpus;
	struct info info;
};

FIXTURE_SETUP(fdinfo)
{
	struct uvm_rust_version version = { .size = sizeof(version) };
	struct vgpu_info info = { .size = sizeof(info) };

	UVM_OPEN_OR_SKIP(self->fd);
	VGPU_OPEN(self->vgpu);
	UVM_RUST_OR_SKIP(self->fd, &version);
	if (!uvm_find_gpu(self->vgpu, &self->gpu[0]))
		SKIP(return, "no GPU: neither /dev/vgpu nor /proc/driver/nvidia/gpus");
	self->gpus = 1;
	for (; self->vgpu >= 0 && self->gpus < GPUS_MOST; self->gpus++) {
		info.gpu = self->gpus;
		if (ioctl(self->vgpu, VGPU_GET_INFO, &info))
			break;
		memcpy(&self->gpu[self->gpus], info.uuid, sizeof(info.uuid));
	}
	ASSERT_EQ(0U, uvm_initialize(self->fd));
}

FIXTURE_TEARDOWN(fdinfo)
{
	close(self->fd);
	close(self->vgpu);
}

/* Reads the file of @fd of this process. Returns 0, or an errno. */
static int read_info(int fd, struct info *info)
{
	char path[64];
	ssize_t got;
	int file;

	info->length = 0;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return errno;
	while ((got = read(file, info->text + info->length, sizeof(info->text) - 1 - info->length)) > 0)
		info->length += got;
	close(file);
	info->text[info->length] = 0;
	return got < 0 ? errno : 0;
}

/* How often a line has this key; the last one's value goes to @value. */
static unsigned int lines_of(const struct info *info, const char *key, char *value, size_t room)
{
	const char *line, *end;
	unsigned int n = 0;
	size_t length = strlen(key);

	for (line = info->text; *line; line = end + 1) {
		end = strchrnul(line, '\n');
		if (!strncmp(line, key, length) && line[length] == ':') {
			for (line += length + 1; isblank(*line); line++)
				;
			snprintf(value, room, "%.*s", (int)(end - line), line);
			n++;
		}
		if (!*end)
			break;
	}
	return n;
}

/* The number behind a key that stands there once; ~0 if it does not. */
static uint64_t number_of(const struct info *info, const char *key)
{
	char value[64], *end;
	uint64_t n;

	if (lines_of(info, key, value, sizeof(value)) != 1)
		return ~0ULL;
	n = strtoull(value, &end, 10);
	return *value && !*end ? n : ~0ULL;
}

/* The same, of a key of the GPU whose number is @id. */
static uint64_t number_of_gpu(const struct info *info, unsigned int id, const char *key)
{
	char whole[128];

	snprintf(whole, sizeof(whole), "nvidia-uvm-gpu%u-%s", id, key);
	return number_of(info, whole);
}

/* The number of the first GPU that is told of, as UVM counts: 1 and up; 0 if none is. */
static unsigned int first_gpu(const struct info *info)
{
	unsigned int id;

	for (id = 1; id < 64; id++)
		if (number_of_gpu(info, id, "faults") != ~0ULL)
			return id;
	return 0;
}

static int get_stats(int fd, const struct uuid *gpu, struct uvm_rust_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->size = sizeof(*stats);
	memcpy(stats->gpu_uuid, gpu, sizeof(*gpu));
	return ioctl(fd, UVM_RUST_GET_STATS, stats) ? errno : 0;
}

static bool is_quiet(const struct uvm_rust_stats *stats)
{
	static const struct uvm_rust_traffic none[UVM_RUST_CAUSE_MAX];

	return !stats->faults && !memcmp(stats->host_to_gpu, none, sizeof(none)) &&
	       !memcmp(stats->gpu_to_host, none, sizeof(none));
}

static const char *const causes[] = { "fault", "prefetch", "eviction", "api", "access-counter" };
static const char *const queues[] = { "free", "unused", "discarded", "used", "address" };

/* How many numbers of GPU @id differ from these, each said so. */
static unsigned int differing(const struct info *info, unsigned int id, const struct uvm_rust_stats *stats)
{
	struct { const char *key; uint64_t n; } all[6 + 5 + 3 * 5];
	char keys[5 + 3 * 5][64];
	unsigned int i, n = 0, k = 0, wrong = 0;

#define ADD(name, number)	(all[n].key = (name), all[n].n = (number), n++)
	ADD("faults", stats->faults);
	ADD("duplicates", stats->duplicates);
	ADD("batches", stats->batches);
	ADD("replays", stats->replays);
	ADD("thrashed", stats->thrashed);
	ADD("prefetch-wasted", stats->prefetch_wasted);
	for (i = 0; i < 5; i++, k++) {
		snprintf(keys[k], sizeof(keys[k]), "evictions-%s", queues[i]);
		ADD(keys[k], stats->evictions[i]);
	}
	for (i = 0; i < 5; i++) {
		snprintf(keys[k], sizeof(keys[k]), "host-to-gpu-%s", causes[i]);
		ADD(keys[k++], stats->host_to_gpu[i].bytes);
		snprintf(keys[k], sizeof(keys[k]), "gpu-to-host-%s", causes[i]);
		ADD(keys[k++], stats->gpu_to_host[i].bytes);
		snprintf(keys[k], sizeof(keys[k]), "gpu-to-gpu-%s", causes[i]);
		ADD(keys[k++], stats->gpu_to_gpu[i].bytes);
	}
	for (i = 0; i < n; i++) {
		uint64_t shown = number_of_gpu(info, id, all[i].key);

		if (shown != all[i].n) {
			printf("# %s: %llu, but %llu in the statistics\n", all[i].key, (unsigned long long)shown,
			       (unsigned long long)all[i].n);
			wrong++;
		}
	}
	return wrong;
}

TEST_F(fdinfo, an_uninitialized_file_has_a_driver_only)
{
	char value[64];
	int other = uvm_open();

	ASSERT_LE(0, other);
	ASSERT_EQ(0, read_info(other, &self->info));
	EXPECT_EQ(1U, lines_of(&self->info, "drm-driver", value, sizeof(value)));
	EXPECT_STREQ("nvidia-uvm", value);
	EXPECT_EQ(NULL, strstr(self->info.text, "drm-client-id"));
	EXPECT_EQ(NULL, strstr(self->info.text, "nvidia-uvm-"));
	close(other);
}

TEST_F(fdinfo, a_client_is_a_va_space)
{
	int other = uvm_open(), copy = dup(self->fd);
	uint64_t client, later;

	ASSERT_LE(0, other);
	ASSERT_LE(0, copy);
	ASSERT_EQ(0U, uvm_initialize(other));
	ASSERT_EQ(0, read_info(self->fd, &self->info));
	client = number_of(&self->info, "drm-client-id");
	ASSERT_NE(~0ULL, client);
	ASSERT_EQ(0, read_info(copy, &self->info));
	EXPECT_EQ(client, number_of(&self->info, "drm-client-id"));
	ASSERT_EQ(0, read_info(other, &self->info));
	later = number_of(&self->info, "drm-client-id");
	ASSERT_NE(~0ULL, later);
	EXPECT_NE(client, later);
	close(other);
	close(copy);
	/* Not that of one that has gone, either. */
	other = uvm_open();
	ASSERT_EQ(0U, uvm_initialize(other));
	ASSERT_EQ(0, read_info(other, &self->info));
	EXPECT_NE(later, number_of(&self->info, "drm-client-id"));
	EXPECT_NE(client, number_of(&self->info, "drm-client-id"));
	close(other);
}

/* What the kernel's document says of a line; lines of the kernel's own come before the driver's. */
TEST_F(fdinfo, lines_are_keys_and_values)
{
	char *line, *next, *colon;
	unsigned int lines = 0, seen, i;
	char key[128], value[128];

	for (i = 0; i < self->gpus; i++)
		ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu[i]));
	ASSERT_EQ(0, read_info(self->fd, &self->info));
	line = strstr(self->info.text, "drm-driver:");
	ASSERT_NE(NULL, line);
	for (; *line; line = next + 1, lines++) {
		next = strchr(line, '\n');
		ASSERT_NE(NULL, next);
		colon = memchr(line, ':', next - line);
		ASSERT_NE(NULL, colon);
		snprintf(key, sizeof(key), "%.*s", (int)(colon - line), line);
		EXPECT_EQ(NULL, strpbrk(key, " \t"));
		EXPECT_TRUE(!strncmp(key, "drm-", 4) || !strncmp(key, "nvidia-uvm-", 11));
		seen = lines_of(&self->info, key, value, sizeof(value));
		EXPECT_EQ(1U, seen);
		EXPECT_LT(0U, strlen(value));
	}
	EXPECT_LT(20U, lines);
}

TEST_F(fdinfo, a_device_is_named_if_it_is_the_only_one)
{
	char value[64], folder[128], key[32];
	unsigned int i, others;
	struct stat st;

	ASSERT_EQ(0, read_info(self->fd, &self->info));
	EXPECT_EQ(0U, lines_of(&self->info, "drm-pdev", value, sizeof(value)));
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu[0]));
	ASSERT_EQ(0, read_info(self->fd, &self->info));
	ASSERT_EQ(1U, lines_of(&self->info, "drm-pdev", value, sizeof(value)));
	snprintf(folder, sizeof(folder), "/sys/bus/pci/devices/%s", value);
	EXPECT_EQ(0, stat(folder, &st));
	if (self->gpus < 2)
		return;
	for (i = 1; i < self->gpus; i++)
		ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu[i]));
	ASSERT_EQ(0, read_info(self->fd, &self->info));
	EXPECT_EQ(0U, lines_of(&self->info, "drm-pdev", value, sizeof(value)));
	EXPECT_EQ(1U, lines_of(&self->info, "nvidia-uvm-gpu1-pdev", value, sizeof(value)));
	/* The number of a GPU is UVM's, which leaves room for the parts of those before. */
	for (i = 2, others = 0; i < 256; i++) {
		snprintf(key, sizeof(key), "nvidia-uvm-gpu%u-pdev", i);
		if (!lines_of(&self->info, key, folder, sizeof(folder)))
			continue;
		others++;
		EXPECT_STRNE(value, folder);
	}
	EXPECT_EQ(self->gpus - 1, others);
}

TEST_F(fdinfo, a_migration_is_told_as_by_the_ioctl)
{
	struct uvm_rust_stats stats;
	unsigned int id;
	char *p;

	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu[0]));
	ASSERT_EQ(0, read_info(self->fd, &self->info));
	id = first_gpu(&self->info);
	ASSERT_LT(0U, id);
	ASSERT_EQ(0, get_stats(self->fd, &self->gpu[0], &stats));
	EXPECT_EQ(0U, differing(&self->info, id, &stats));
	if (!uvm_builtin_tests())
		SKIP(return, "load nvidia-uvm.ko with uvm_enable_builtin_tests=1");
	p = uvm_managed(self->fd, 2 * BLOCK);
	ASSERT_NE(MAP_FAILED, p);
	memset(p, 1, 2 * BLOCK);
	ASSERT_EQ(0U, uvm_migrate(self->fd, p, 2 * BLOCK, &self->gpu[0], UVM_MIGRATE_NO_GPU_VA_SPACE));
	ASSERT_EQ(0U, uvm_migrate(self->fd, p, BLOCK, &cpu_uuid, 0));
	ASSERT_EQ(0, get_stats(self->fd, &self->gpu[0], &stats));
	EXPECT_FALSE(is_quiet(&stats));
	ASSERT_EQ(0, read_info(self->fd, &self->info));
	EXPECT_EQ(2 * BLOCK, number_of_gpu(&self->info, id, "host-to-gpu-api"));
	EXPECT_EQ(BLOCK, number_of_gpu(&self->info, id, "gpu-to-host-api"));
	EXPECT_EQ(0U, differing(&self->info, id, &stats));
}

/* Blocks that are on the GPU, by what was migrated there and back, with another file's beside them. */
TEST_F(fdinfo, what_is_on_the_gpu_is_told)
{
	uint64_t on_gpu[] = { 0, 3, 2, 2, 0 };
	int other = uvm_open();
	unsigned int id, i;
	char *p, *q = NULL;

	ASSERT_LE(0, other);
	ASSERT_EQ(0U, uvm_initialize(other));
	ASSERT_EQ(0U, uvm_register_gpu(other, &self->gpu[0]));
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu[0]));
	if (!uvm_builtin_tests())
		SKIP(return, "load nvidia-uvm.ko with uvm_enable_builtin_tests=1");
	p = uvm_managed(self->fd, 4 * BLOCK);
	ASSERT_NE(MAP_FAILED, p);
	memset(p, 1, 4 * BLOCK);
	for (i = 0; i < sizeof(on_gpu) / sizeof(on_gpu[0]); i++) {
		if (i == 1)
			ASSERT_EQ(0U, uvm_migrate(self->fd, p, 3 * BLOCK, &self->gpu[0], UVM_MIGRATE_NO_GPU_VA_SPACE));
		if (i == 2)
			ASSERT_EQ(0U, uvm_migrate(self->fd, p + BLOCK, BLOCK, &cpu_uuid, 0));
		if (i == 3) {
			q = uvm_managed(other, BLOCK);
			ASSERT_NE(MAP_FAILED, q);
			memset(q, 1, BLOCK);
			ASSERT_EQ(0U, uvm_migrate(other, q, BLOCK, &self->gpu[0], UVM_MIGRATE_NO_GPU_VA_SPACE));
		}
		if (i == 4)
			ASSERT_EQ(0, munmap(p, 4 * BLOCK));
		ASSERT_EQ(0, read_info(self->fd, &self->info));
		id = first_gpu(&self->info);
		ASSERT_LT(0U, id);
		if (access("/sys/module/nvidia_uvm/parameters/uvm_rust_evict", F_OK))
			SKIP(return, "this driver has no queues, which know it");
		EXPECT_EQ(on_gpu[i] * BLOCK, number_of_gpu(&self->info, id, "resident"));
		EXPECT_EQ(on_gpu[i] * BLOCK, number_of(&self->info, "drm-resident-vidmem"));
	}
	ASSERT_EQ(0, read_info(other, &self->info));
	EXPECT_EQ(BLOCK, number_of_gpu(&self->info, id, "resident"));
	close(other);
}

/* Blocks that are on the host, by what was touched, moved and freed, with another file's beside them. */
TEST_F(fdinfo, what_is_on_the_host_is_told)
{
	uint64_t on_host[] = { 0, 3, 1, 2, 2, 0 };
	int other = uvm_open();
	char *p, *q = MAP_FAILED;
	unsigned int i;

	ASSERT_LE(0, other);
	ASSERT_EQ(0U, uvm_initialize(other));
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu[0]));
	if (access("/sys/module/nvidia_uvm/parameters/uvm_rust_evict", F_OK))
		SKIP(return, "this driver has no hooks, with which it is known");
	if (!uvm_builtin_tests())
		SKIP(return, "load nvidia-uvm.ko with uvm_enable_builtin_tests=1");
	p = uvm_managed(self->fd, 4 * BLOCK);
	ASSERT_NE(MAP_FAILED, p);
	for (i = 0; i < sizeof(on_host) / sizeof(on_host[0]); i++) {
		if (i == 1)
			memset(p, 1, 3 * BLOCK);
		if (i == 2)
			ASSERT_EQ(0U, uvm_migrate(self->fd, p, 2 * BLOCK, &self->gpu[0], UVM_MIGRATE_NO_GPU_VA_SPACE));
		if (i == 3)
			ASSERT_EQ(0U, uvm_migrate(self->fd, p, BLOCK, &cpu_uuid, 0));
		if (i == 4) {
			q = uvm_managed(other, BLOCK);
			ASSERT_NE(MAP_FAILED, q);
			/* Less than a block counts as what it is: 64 KiB come with each page that a CPU touches first. */
			q[0] = q[64 * 4096] = q[128 * 4096] = 1;
		}
		if (i == 5)
			ASSERT_EQ(0, munmap(p, 4 * BLOCK));
		ASSERT_EQ(0, read_info(self->fd, &self->info));
		EXPECT_EQ(on_host[i] * BLOCK, number_of(&self->info, "drm-resident-memory"));
		EXPECT_EQ(~0ULL, number_of(&self->info, "nvidia-uvm-ssd"));
	}
	ASSERT_EQ(0, read_info(other, &self->info));
	EXPECT_EQ(3 * 65536ULL, number_of(&self->info, "drm-resident-memory"));
	close(other);
}

/* Who reserves terabytes does not have readers walk for ever: from some size on nothing is told. */
TEST_F(fdinfo, what_is_too_large_to_be_walked_is_not_told)
{
	const size_t places = 1 << 20;
	char *p, *q;

	if (access("/sys/module/nvidia_uvm/parameters/uvm_rust_evict", F_OK))
		SKIP(return, "this driver has no hooks, with which it is known");
	p = uvm_managed(self->fd, (places - 1) * BLOCK);
	ASSERT_NE(MAP_FAILED, p);
	p[(places - 2) * BLOCK] = 1;
	ASSERT_EQ(0, read_info(self->fd, &self->info));
	EXPECT_EQ(65536ULL, number_of(&self->info, "drm-resident-memory"));
	q = uvm_managed(self->fd, 2 * BLOCK);
	ASSERT_NE(MAP_FAILED, q);
	ASSERT_EQ(0, read_info(self->fd, &self->info));
	EXPECT_EQ(~0ULL, number_of(&self->info, "drm-resident-memory"));
	ASSERT_EQ(0, munmap(q, 2 * BLOCK));
	ASSERT_EQ(0, read_info(self->fd, &self->info));
	EXPECT_EQ(65536ULL, number_of(&self->info, "drm-resident-memory"));
}

TEST_F(fdinfo, faults_are_told_as_by_the_ioctl)
{
	struct uvm_mm_initialize init = { .fd = self->fd };
	struct vgpu_op op = {
		.kind = VGPU_OP_WRITE, .stride = 4096, .count = BLOCK / 4096, .width = 8, .warps = 8, .value = 7,
	};
	struct uvm_rust_stats stats, later;
	struct vgpu_wait wait;
	uint32_t channel;
	unsigned int id, tries;
	int mm;

	if (self->vgpu < 0)
		SKIP(return, "no /dev/vgpu, and a real GPU's programs need CUDA");
	mm = uvm_open();
	ASSERT_EQ(0, ioctl(mm, UVM_MM_INITIALIZE, &init));
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu[0]));
	channel = uvm_channel(self->fd, self->vgpu, &self->gpu[0]);
	ASSERT_NE(0U, channel);
	op.va = (uintptr_t)uvm_managed(self->fd, BLOCK);
	ASSERT_EQ(0, vgpu_run(self->vgpu, channel, &op, &wait));
	/*
	 * The kernel may be done before the calls of the fault service that helped it, and each of them counts when it
	 * returns: the two are compared once nothing was counted while both were read.
	 */
	for (tries = 0; tries < 500; tries++) {
		ASSERT_EQ(0, get_stats(self->fd, &self->gpu[0], &stats));
		ASSERT_EQ(0, read_info(self->fd, &self->info));
		ASSERT_EQ(0, get_stats(self->fd, &self->gpu[0], &later));
		if (stats.replays && !memcmp(&stats, &later, sizeof(stats)))
			break;
		usleep(10000);
	}
	EXPECT_LT(0U, stats.faults);
	EXPECT_LT(0U, stats.replays);
	id = first_gpu(&self->info);
	EXPECT_EQ(0U, differing(&self->info, id, &stats));
	/* The file that names the process' memory is no client. */
	ASSERT_EQ(0, read_info(mm, &self->info));
	EXPECT_EQ(~0ULL, number_of(&self->info, "drm-client-id"));
	close(mm);
}

/* What one has done is not in what another is told, on the same GPU. */
TEST_F(fdinfo, it_is_this_file_s_own)
{
	struct uvm_rust_stats stats;
	int other = uvm_open();
	char *p;

	ASSERT_LE(0, other);
	ASSERT_EQ(0U, uvm_initialize(other));
	ASSERT_EQ(0U, uvm_register_gpu(other, &self->gpu[0]));
	ASSERT_EQ(0U, uvm_register_gpu(self->fd, &self->gpu[0]));
	if (!uvm_builtin_tests())
		SKIP(return, "load nvidia-uvm.ko with uvm_enable_builtin_tests=1");
	p = uvm_managed(self->fd, BLOCK);
	memset(p, 1, BLOCK);
	ASSERT_EQ(0U, uvm_migrate(self->fd, p, BLOCK, &self->gpu[0], UVM_MIGRATE_NO_GPU_VA_SPACE));
	ASSERT_EQ(0, get_stats(other, &self->gpu[0], &stats));
	EXPECT_TRUE(is_quiet(&stats));
	ASSERT_EQ(0, read_info(other, &self->info));
	EXPECT_EQ(0U, differing(&self->info, first_gpu(&self->info), &stats));
	close(other);
}

/* Another user's process does not get at it: root's, this one, has nothing that nobody may trace. */
TEST_F(fdinfo, another_user_cannot_read_it)
{
	char path[64];
	int status;
	pid_t child;

	if (geteuid())
		SKIP(return, "root becomes another user");
	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", getpid(), self->fd);
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		int file;

		if (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(2);
		file = open(path, O_RDONLY);
		_exit(file < 0 ? errno == EACCES || errno == EPERM ? 0 : 3 : 1);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
}

TEST_HARNESS_MAIN
