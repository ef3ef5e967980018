/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Whether what the GPU writes behind a discard is kept, on a real GPU: each way to discard, with
 * waits of the program and without, of memory on the GPU and on the host, then read after a
 * move to the host, or by the GPU where it is. It reads nothing between the discard and
 * the write: native_program.c does, and so cannot see a write that is lost. A line each:
 *
 *   ok - WAY, on the GPU, no wait, moved to the host: all words are what was written
 *   not ok - ...: of N words A are what was written, B the GPU's and C the host's of before
 *
 * Only the ways that libuvmrust takes must keep all; of the others the lines say "kept" or
 * "lost". Takes at most 96 MiB. Exits with 0 if all is kept that must be, 1 if not, 77 where
 * there is no GPU or no CUDA 13.
 *
 *   order_program [ROUNDS]
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "native_cuda.h"

#define MIB ((size_t)1 << 20)
#define LENGTH (4 * MIB)
#define BUSY (64 * MIB)
#define WORDS (LENGTH / 4)

/* What each word says of who wrote it. */
enum { HOST = 0x11110000, GPU = 0x22220000, NEW = 0x33330000 };

struct discard {
	uint64_t base, length, flags;
	uint32_t status, rest[64];
};

static int found = -1;
static uint64_t other, device_memory;
static void *second;
static int (*cuEventCreate)(void **, unsigned int), (*cuEventRecord)(void *, void *);
static int (*cuStreamWaitEvent)(void *, void *, unsigned int), (*cuEventDestroy_v2)(void *);

static long uvm_discard(uint64_t base, uint64_t length, uint64_t flags)
{
	struct discard p = { .base = base, .length = length, .flags = flags, .status = 0xdeadbeef };

	return ioctl(found, 80UL, &p) ? -errno : (long)p.status;
}

/* The descriptor that CUDA has opened; the stub's is in a variable. */
static void find_descriptor(void)
{
	const char *given = getenv("UVMRUST_FD");
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	char path[300];

	if (given && is_stub)
		found = atoi(given);
	while (folder && found < 0 && (entry = readdir(folder))) {
		ssize_t length = readlinkat(dirfd(folder), entry->d_name, path, sizeof(path) - 1);

		path[length < 0 ? 0 : length] = 0;
		if (strcmp(path, "/dev/nvidia-uvm"))
			continue;
		found = atoi(entry->d_name);
		/* An empty range with flags that do not exist: INVALID_ARGUMENT of an initialised one. */
		if (uvm_discard(0, 0, ~0ull) != 0x1f)
			found = -1;
	}
	if (folder)
		closedir(folder);
}

/* What a host function does: an UVM_DISCARD of the memory, whose flags are the way's. */
struct job {
	uint64_t base, flags;
	long status;
};

static void by_host_function(void *data)
{
	struct job *job = data;

	job->status = uvm_discard(job->base, LENGTH, job->flags);
}

static void nothing(void *data)
{
}

enum way {
	NONE, BATCH, BATCH_HOST_FUNCTION, BATCH_WAIT, BATCH_EVENT, BATCH_PREFETCH_OTHER, BATCH_PREFETCH, BOTH_GPU, BOTH_HOST,
	EAGER_FUNCTION, LAZY_FUNCTION_PREFETCH, WAYS
};

static const struct {
	const char *name;
	bool ours;
} ways[] = {
	[NONE] = { "no discard", true },
	[BATCH] = { "cuMemDiscardBatchAsync" },
	[BATCH_HOST_FUNCTION] = { "cuMemDiscardBatchAsync, then an empty host function" },
	[BATCH_WAIT] = { "cuMemDiscardBatchAsync, then cuCtxSynchronize" },
	[BATCH_EVENT] = { "cuMemDiscardBatchAsync, written in another stream behind an event" },
	[BATCH_PREFETCH_OTHER] = { "cuMemDiscardBatchAsync, then a prefetch of other memory" },
	[BATCH_PREFETCH] = { "cuMemDiscardBatchAsync, then cuMemPrefetchAsync" },
	[BOTH_GPU] = { "cuMemDiscardAndPrefetchBatchAsync to the GPU", true },
	[BOTH_HOST] = { "cuMemDiscardAndPrefetchBatchAsync to the host", true },
	[EAGER_FUNCTION] = { "UVM_DISCARD, eager, by a host function", true },
	[LAZY_FUNCTION_PREFETCH] = { "UVM_DISCARD, lazy, by a host function, then cuMemPrefetchAsync", true },
};

/* When the program waits: not at all; behind the discard; behind each step. */
enum waits { NEVER, BEHIND_DISCARD, ALWAYS, WAITS };
static const char *const wait_names[] = { "no wait", "a wait behind the discard", "waits everywhere" };

static struct job job;

static void put_discard(enum way way, uint64_t base)
{
	struct location gpu = { 1, 0 }, host = { 2, 0 };
	size_t length = LENGTH, first = 0;

	switch (way) {
	case NONE:
	case WAYS:
		return;
	case BOTH_GPU:
		MUST(cuMemDiscardAndPrefetchBatchAsync(&base, &length, 1, &gpu, &first, 1, 0, work));
		return;
	case BOTH_HOST:
		MUST(cuMemDiscardAndPrefetchBatchAsync(&base, &length, 1, &host, &first, 1, 0, work));
		return;
	case EAGER_FUNCTION:
	case LAZY_FUNCTION_PREFETCH:
		job = (struct job){ base, way == EAGER_FUNCTION, -1 };
		MUST(cuLaunchHostFunc(work, by_host_function, &job));
		if (way == LAZY_FUNCTION_PREFETCH)
			MUST(cuMemPrefetchAsync_v2(base, LENGTH, gpu, 0, work));
		return;
	default:
		break;
	}
	MUST(cuMemDiscardBatchAsync(&base, &length, 1, 0, work));
	if (way == BATCH_HOST_FUNCTION)
		MUST(cuLaunchHostFunc(work, nothing, NULL));
	else if (way == BATCH_WAIT)
		MUST(cuCtxSynchronize());
	else if (way == BATCH_PREFETCH_OTHER)
		MUST(cuMemPrefetchAsync_v2(other, 4096, gpu, 0, work));
	else if (way == BATCH_PREFETCH)
		MUST(cuMemPrefetchAsync_v2(base, LENGTH, gpu, 0, work));
}

static void put_write(enum way way, uint64_t base, uint32_t value)
{
	void *event, *stream = work;

	if (way == BATCH_EVENT) {
		stream = second;
		MUST(cuEventCreate(&event, 2));
		MUST(cuEventRecord(event, work));
		MUST(cuStreamWaitEvent(second, event, 0));
		MUST(cuEventDestroy_v2(event));
	}
	MUST(cuMemsetD32Async(base, value, WORDS, stream));
	if (way == BATCH_EVENT) {
		MUST(cuEventCreate(&event, 2));
		MUST(cuEventRecord(event, second));
		MUST(cuStreamWaitEvent(work, event, 0));
		MUST(cuEventDestroy_v2(event));
	}
}

/* One case; true if all is kept. */
static bool one_case(enum way way, uint64_t base, bool on_gpu, enum waits waits, bool busy, bool moved, unsigned round)
{
	static uint32_t saw[WORDS];
	struct location host = { 2, 0 };
	size_t new = 0, gpu = 0, old = 0;
	char what[240];

	/* The host's copy and the GPU's differ, and the GPU's is the newer one where it is there. */
	write_by_host(base, LENGTH, HOST + round);
	move_to(base, LENGTH, true);
	write_by_gpu(base, LENGTH, GPU + round);
	if (!on_gpu) {
		move_to(base, LENGTH, false);
		write_by_host(base, LENGTH, HOST + round);
	}
	for (int i = 0; busy && i < (is_stub ? 1 : 200); i++)
		MUST(cuMemsetD32Async(device_memory, i, BUSY / 4, work));
	put_discard(way, base);
	if (waits >= BEHIND_DISCARD)
		MUST(cuStreamSynchronize(work));
	put_write(way, base, NEW + round);
	if (waits == ALWAYS)
		MUST(cuCtxSynchronize());
	if (moved)
		MUST(cuMemPrefetchAsync_v2(base, LENGTH, host, 0, work));
	MUST(cuCtxSynchronize());
	if (moved)
		memcpy(saw, (void *)base, LENGTH);
	else
		read_by_gpu(saw, base, LENGTH);
	for (size_t i = 0; i < WORDS; i++) {
		new += saw[i] == NEW + round;
		gpu += saw[i] == GPU + round;
		old += saw[i] == HOST + round;
	}
	snprintf(what, sizeof(what), "%s, on the %s, %s%s, read %s", ways[way].name, on_gpu ? "GPU" : "host",
		 wait_names[waits], busy ? ", behind other work" : "", moved ? "on the host" : "by the GPU");
	if (job.status > 0)
		printf("not ok - UVM_DISCARD gives %#lx\n", job.status);
	job.status = 0;
	if (new == WORDS)
		printf("%s - %s: all words are what was written\n", ways[way].ours ? "ok" : "kept", what);
	else
		printf("%s - %s: of %zu words %zu are what was written, %zu the GPU's and %zu the host's of before\n",
		       ways[way].ours ? "not ok" : "lost", what, WORDS, new, gpu, old);
	return new == WORDS;
}

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 1 ? atoi(argv[1]) : 2, round = 0, lost[WAYS][WAITS] = { { 0 } }, cases = 0;
	void *library;
	uint64_t base;
	int wrong = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	start_cuda(LENGTH);
	library = dlopen("libcuda.so.1", RTLD_NOW);
	*(void **)&cuEventCreate = find_function(library, "cuEventCreate");
	*(void **)&cuEventRecord = find_function(library, "cuEventRecord");
	*(void **)&cuEventDestroy_v2 = find_function(library, "cuEventDestroy_v2");
	*(void **)&cuStreamWaitEvent = find_function(library, "cuStreamWaitEvent");
	MUST(cuStreamCreate(&second, 1));
	MUST(cuMemAllocManaged(&base, LENGTH, 1));
	MUST(cuMemAllocManaged(&other, 2 * MIB, 1));
	MUST(cuMemAlloc_v2(&device_memory, BUSY));
	write_by_host(other, 2 * MIB, 1);
	find_descriptor();
	printf("fact - descriptor %d of /dev/nvidia-uvm is used\n", found);
	for (unsigned int n = 0; n < rounds * WAYS * 24; n++) {
		enum way way = n / rounds % WAYS;
		unsigned int variant = n / rounds / WAYS;
		bool kept;

		if (found < 0 && way >= EAGER_FUNCTION)
			continue;
		kept = one_case(way, base, variant & 1, variant / 8 % WAITS, variant & 2, variant & 4, round++);
		lost[way][variant / 8 % WAITS] += !kept;
		wrong += !kept && ways[way].ours;
		cases += way == NONE;
	}
	for (int way = 0; way < WAYS; way++)
		printf("fact - %s: of %u cases %u lost words: %u without a wait, %u with one behind the discard, %u with all\n",
		       ways[way].name, cases, lost[way][NEVER] + lost[way][BEHIND_DISCARD] + lost[way][ALWAYS],
		       lost[way][NEVER], lost[way][BEHIND_DISCARD], lost[way][ALWAYS]);
	printf("%d of the cases that must keep all have lost words\n", wrong);
	return wrong > 0;
}
