/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the discard of NVIDIA's driver and of CUDA 13 does on a real GPU, beside what
 * docs/discard-guide.md, userlib/README.md and the stub of the tests say of it. A line
 * each: "ok" or "not ok" where something is said, "fact" where nothing is. Takes at
 * most 256 MiB.
 *
 *   native_program               all of it
 *   native_program --busy N      moves 64 MiB to and fro for N seconds, and nothing else
 *
 * Exits with 0 if all is as said, 1 if not, 77 where there is no GPU or no CUDA 13.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "native_cuda.h"

#define MIB ((size_t)1 << 20)
#define ALL (16 * MIB)
#define MOST (8 * MIB)
#define LARGE (128 * MIB)
#define COUNT(a) (sizeof(a) / sizeof(*(a)))

/* CUresult and NV_STATUS. */
enum { SUCCESS = 0, INVALID_VALUE = 1, INVALID_DEVICE = 101, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901 };
enum { ILLEGAL_ACTION = 0x16, INVALID_ADDRESS = 0x1e, INVALID_ARGUMENT = 0x1f, NOTHING_TO_DO = 0x10006 };

static int wrong, lines;

static void is(const char *what, long expected, long got)
{
	lines++;
	if (expected == got) {
		printf("ok - %s: %#lx\n", what, got);
		return;
	}
	wrong++;
	printf("not ok - %s: %#lx, where %#lx is said\n", what, got, expected);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* /dev/nvidia-uvm, by its ioctls. */

struct discard {
	uint64_t base, length, flags;
	uint32_t status, rest[64];
};

struct migrate {
	uint64_t base, length;
	uint8_t uuid[16];
	uint32_t flags;
	uint64_t semaphore;
	uint32_t payload;
	int32_t node;
	uint64_t start, user_length;
	uint32_t status, rest[64];
};

/* The status, or minus the error of the call itself. */
static long uvm_discard(int fd, uint64_t base, uint64_t length, uint64_t flags)
{
	struct discard p = { .base = base, .length = length, .flags = flags, .status = 0xdeadbeef };

	return ioctl(fd, 80UL, &p) ? -errno : (long)p.status;
}

static long uvm_migrate(int fd, uint64_t base, uint64_t length, const uint8_t *uuid)
{
	struct migrate p = { .base = base, .length = length, .status = 0xdeadbeef };

	memcpy(p.uuid, uuid, sizeof(p.uuid));
	return ioctl(fd, 51UL, &p) ? -errno : (long)p.status;
}

static int found = -1;

/* The descriptor that CUDA has opened and initialised; the stub's is in a variable. */
static void find_descriptor(void)
{
	const char *given = getenv("UVMRUST_FD");
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	char path[300];
	int count = 0;

	if (given && is_stub)
		found = atoi(given);
	while (folder && (entry = readdir(folder))) {
		int fd = atoi(entry->d_name);
		ssize_t length = readlinkat(dirfd(folder), entry->d_name, path, sizeof(path) - 1);

		if (length <= 0)
			continue;
		path[length] = 0;
		if (strcmp(path, "/dev/nvidia-uvm"))
			continue;
		count++;
		printf("fact - descriptor %d: an empty discard with all flags gives %#lx\n", fd,
		       uvm_discard(fd, 0, 0, ~0ull));
		if (found < 0 && uvm_discard(fd, 0, 0, ~0ull) == INVALID_ARGUMENT)
			found = fd;
	}
	if (folder)
		closedir(folder);
	printf("fact - %d descriptors of /dev/nvidia-uvm, %d is used\n", count, found);
}

/* The table of UVM_DISCARD in userlib/README.md, and what the probe counts on. */
static void ioctls(uint64_t base)
{
	int fresh = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
	void *plain = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t gpu[16], mig[16], none[16] = { 1, 2, 3 };
	struct discard unknown = { 0 };
	long code;

	MUST(cuDeviceGetUuid(gpu, 0));
	MUST(cuDeviceGetUuid_v2(mig, 0));
	is("both versions of cuDeviceGetUuid are equal but for MIG (0: equal)", 0, !!memcmp(gpu, mig, 16));
	if (fresh >= 0) {
		is("UVM_DISCARD before UVM_INITIALIZE", ILLEGAL_ACTION, uvm_discard(fresh, base, 4096, 1));
		is("the same, empty and with all flags", ILLEGAL_ACTION, uvm_discard(fresh, 0, 0, ~0ull));
		is("an empty UVM_MIGRATE before UVM_INITIALIZE", ILLEGAL_ACTION, uvm_migrate(fresh, 0, 0, gpu));
		close(fresh);
	}
	if (found < 0) {
		is("CUDA's descriptor of /dev/nvidia-uvm is found", 0, -1);
		return;
	}
	is("UVM_DISCARD empty, with all flags", INVALID_ARGUMENT, uvm_discard(found, 0, 0, ~0ull));
	is("UVM_DISCARD with flags 2", INVALID_ARGUMENT, uvm_discard(found, base, 4096, 2));
	if (!is_stub) { /* It takes any range of managed memory. */
		is("UVM_DISCARD of 0 bytes", INVALID_ADDRESS, uvm_discard(found, base, 0, 1));
		is("UVM_DISCARD from the middle of a page", INVALID_ADDRESS, uvm_discard(found, base + 8, 4096, 1));
		is("UVM_DISCARD of a part of a page", INVALID_ADDRESS, uvm_discard(found, base, 100, 1));
		/* A warning where the GPU can reach all memory (HMM, ATS), else an error. */
		code = uvm_discard(found, (uint64_t)plain, 2 * MIB, 1);
		is("UVM_DISCARD of memory that is not managed", code == NOTHING_TO_DO ? code : INVALID_ADDRESS, code);
		printf("fact - UVM_DISCARD of what cuMemAlloc gave: %#lx\n", uvm_discard(found, copied, 2 * MIB, 1));
	}
	is("UVM_DISCARD, lazy", SUCCESS, uvm_discard(found, base, 2 * MIB, 0));
	is("UVM_MIGRATE to the GPU by CUDA's UUID", SUCCESS, uvm_migrate(found, base, 2 * MIB, gpu));
	is("UVM_DISCARD, eager", SUCCESS, uvm_discard(found, base, 2 * MIB, 1));
	is("an empty UVM_MIGRATE", INVALID_ADDRESS, uvm_migrate(found, 0, 0, gpu));
	printf("fact - UVM_MIGRATE to a UUID of nobody: %#lx\n", uvm_migrate(found, base, 2 * MIB, none));
	/* EINVAL where NVIDIA's built-in tests are on. */
	code = ioctl(found, 1999UL, &unknown) ? -errno : 0;
	is("a number that no driver has", code == -EINVAL ? code : -ENOSYS, code);
	munmap(plain, 2 * MIB);
}

/* What a read gives. */

enum way { CUDA_EAGER, CUDA_EAGER_MOVED, CUDA_BOTH, UVM_EAGER, UVM_EAGER_MOVED, UVM_LAZY_MOVED, WAYS };

static const char *const way_names[] = {
	"cuMemDiscardBatchAsync", "cuMemDiscardBatchAsync and a prefetch", "cuMemDiscardAndPrefetchBatchAsync",
	"UVM_DISCARD eager", "UVM_DISCARD eager and a prefetch", "UVM_DISCARD lazy and a prefetch",
};

/* Gives what the call gave. */
static long discard(enum way way, uint64_t base, size_t length)
{
	struct location gpu = { 1, 0 };
	size_t first = 0;
	long code;

	if (way == CUDA_EAGER || way == CUDA_EAGER_MOVED)
		code = cuMemDiscardBatchAsync(&base, &length, 1, 0, work);
	else if (way == CUDA_BOTH)
		code = cuMemDiscardAndPrefetchBatchAsync(&base, &length, 1, &gpu, &first, 1, 0, work);
	else
		code = uvm_discard(found, base, length, way != UVM_LAZY_MOVED);
	if (way == CUDA_EAGER_MOVED || way == UVM_EAGER_MOVED || way == UVM_LAZY_MOVED)
		move_to(base, length, true);
	/* A wait for the stream alone has not waited for CUDA's discard (order_program.c). */
	MUST(cuCtxSynchronize());
	return code;
}

static void read_by(bool gpu, uint32_t *to, uint64_t from, size_t length)
{
	if (gpu)
		read_by_gpu(to, from, length);
	else
		memcpy(to, (void *)from, length);
}

/* What was read in all cases of one way. */
static struct {
	unsigned int cases, old, zeros, both, others, changed;
} seen;

static void count_seen(size_t words, size_t old, size_t zero, bool changed)
{
	seen.cases++;
	seen.changed += changed;
	if (old + zero < words)
		seen.others++;
	else if (old && zero)
		seen.both++;
	else if (old)
		seen.old++;
	else
		seen.zeros++;
}

static bool all_are(const uint32_t *words, size_t length, uint32_t value)
{
	for (size_t i = 0; i < length / 4; i++)
		if (words[i] != value)
			return false;
	return true;
}

/* All of the memory holds a value of its own and is in one place; a part is discarded, read, written. */
static void one_discard(enum way way, uint64_t all, size_t length, bool on_gpu, bool by_gpu)
{
	static uint32_t saw[MOST / 4], again[MOST / 4], value = 0x11110000;
	uint64_t part = all + 4 * MIB;
	size_t old = 0, zero = 0, behind = part + length - all;
	long code;
	char what[160];

	value++;
	write_by_host(all, ALL, value);
	move_to(all, ALL, on_gpu);
	code = discard(way, part, length);
	if (code) {
		snprintf(what, sizeof(what), "%s of %zu KiB", way_names[way], length >> 10);
		is(what, SUCCESS, code);
		return;
	}
	read_by(by_gpu, saw, part, length);
	read_by(by_gpu, again, part, length);
	for (size_t i = 0; i < length / 4; i++) {
		old += saw[i] == value;
		zero += !saw[i];
	}
	snprintf(what, sizeof(what), "%s, %zu KiB on the %s, read by the %s", way_names[way], length >> 10,
		 on_gpu ? "GPU" : "host", by_gpu ? "GPU" : "host");
	printf("fact - %s: %zu words of before, %zu zeros, %zu others; a second read is %s\n", what, old, zero,
	       length / 4 - old - zero, memcmp(saw, again, length) ? "different" : "the same");
	count_seen(length / 4, old, zero, memcmp(saw, again, length));
	value++;
	if (by_gpu)
		write_by_gpu(part, length, value);
	else
		write_by_host(part, length, value);
	read_by(!by_gpu, saw, part, length);
	strcat(what, "; a write is kept");
	is(what, 1, all_are(saw, length, value));
	is("its neighbours are as they were", 1,
	   all_are((void *)all, part - all, value - 1) && all_are((void *)(all + behind), ALL - behind, value - 1));
}

static void reads(uint64_t all)
{
	static const size_t lengths[] = { 4096, 65536, 2 * MIB, 3 * MIB + 4096, MOST };

	for (int way = 0; way < (found < 0 ? UVM_EAGER : WAYS); way++) {
		memset(&seen, 0, sizeof(seen));
		for (size_t i = 0; i < COUNT(lengths); i++)
			for (int n = 0; n < 4; n++)
				one_discard(way, all, lengths[i], n & 1, n & 2);
		printf("fact - %s: of %u reads all words are of before in %u, zeros in %u, both in %u, others in %u; "
		       "a second read differs in %u\n",
		       way_names[way], seen.cases, seen.old, seen.zeros, seen.both, seen.others, seen.changed);
	}
}

/* The one rule whose breach loses data: does it here? */
static void lazy_without_prefetch(uint64_t all)
{
	static uint32_t saw[MOST / 4];

	for (int n = 0; n < 4 && found >= 0; n++) {
		size_t kept = 0;

		write_by_host(all, MOST, 0x2222);
		move_to(all, MOST, n & 1);
		MUST(uvm_discard(found, all, MOST, 0));
		if (n & 2)
			write_by_gpu(all, MOST, 0x3333);
		else
			write_by_host(all, MOST, 0x3333);
		move_to(all, MOST, !(n & 1));
		read_by(true, saw, all, MOST);
		for (size_t i = 0; i < MOST / 4; i++)
			kept += saw[i] == 0x3333;
		printf("fact - lazily discarded on the %s, written by the %s without a prefetch, then moved: "
		       "%zu of %zu words are kept\n", n & 1 ? "GPU" : "host", n & 2 ? "GPU" : "host", kept, MOST / 4);
	}
}

/* What CUDA's calls refuse. */

static int discard_one(uint64_t base, size_t length, unsigned long long flags, void *stream)
{
	return cuMemDiscardBatchAsync(&base, &length, 1, flags, stream);
}

static int prefetch_one(uint64_t base, size_t length, struct location to, size_t first, size_t places, void *stream)
{
	return cuMemPrefetchBatchAsync(&base, &length, 1, &to, &first, places, 0, stream);
}

static int both_one(uint64_t base, size_t length, struct location to, void *stream)
{
	size_t first = 0;

	return cuMemDiscardAndPrefetchBatchAsync(&base, &length, 1, &to, &first, 1, 0, stream);
}

static void refusals(uint64_t all)
{
	struct location gpu = { 1, 0 }, host = { 2, 0 }, none = { 1, 99 }, no_kind = { 0, 0 };
	void *legacy = (void *)1, *own = (void *)2;
	uint64_t device, bases[2] = { all, all + MIB };
	size_t sizes[2] = { 2 * MIB, 2 * MIB };
	uint64_t plain = (uint64_t)mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(cuMemAlloc_v2(&device, 4 * MIB));
	is("a discard in the NULL stream", INVALID_VALUE, discard_one(all, MIB, 0, NULL));
	is("a discard in the legacy stream", INVALID_VALUE, discard_one(all, MIB, 0, legacy));
	is("a discard in the thread's own stream", SUCCESS, discard_one(all, MIB, 0, own));
	is("a batch of prefetches in the NULL stream", INVALID_VALUE, prefetch_one(all, MIB, gpu, 0, 1, NULL));
	is("a batch of prefetches in the legacy stream", INVALID_VALUE, prefetch_one(all, MIB, gpu, 0, 1, legacy));
	is("a batch of prefetches", SUCCESS, prefetch_one(all, MIB, gpu, 0, 1, work));
	is("a batch of prefetches to the host", SUCCESS, prefetch_one(all, MIB, host, 0, 1, work));
	is("discard and prefetch in the NULL stream", INVALID_VALUE, both_one(all, MIB, gpu, NULL));
	is("discard and prefetch to the host", SUCCESS, both_one(all, MIB, host, work));
	is("a single prefetch in the NULL stream", SUCCESS, cuMemPrefetchAsync_v2(all, MIB, gpu, 0, NULL));
	is("a discard with flags", INVALID_VALUE, discard_one(all, MIB, 1, work));
	is("a discard of device memory", INVALID_VALUE, discard_one(device, MIB, 0, work));
	is("a discard of memory of mmap", INVALID_VALUE, discard_one(plain, MIB, 0, work));
	is("a batch of prefetches of device memory", INVALID_VALUE, prefetch_one(device, MIB, gpu, 0, 1, work));
	is("a discard beyond the end", INVALID_VALUE, discard_one(all + ALL - MIB, 64 * MIB, 0, work));
	is("a single prefetch to no GPU", INVALID_DEVICE, cuMemPrefetchAsync_v2(all, MIB, none, 0, work));
	is("a batch of prefetches to no GPU", INVALID_VALUE, prefetch_one(all, MIB, none, 0, 1, work));
	is("a batch of prefetches to no kind of place", INVALID_VALUE, prefetch_one(all, MIB, no_kind, 0, 1, work));
	is("a first index that is not 0", INVALID_VALUE, prefetch_one(all, MIB, gpu, 1, 1, work));
	is("more places than ranges", INVALID_VALUE, prefetch_one(all, MIB, gpu, 0, 2, work));
	is("a batch of prefetches to no place", INVALID_VALUE, prefetch_one(all, MIB, gpu, 0, 0, work));
	printf("fact - a batch of no discards: %d\n", cuMemDiscardBatchAsync(bases, sizes, 0, 0, work));
	printf("fact - a discard of 0 bytes: %d\n", discard_one(all, 0, 0, work));
	printf("fact - a discard from the middle of a page: %d\n", discard_one(all + 8, 4096, 0, work));
	printf("fact - a discard of a part of a page: %d\n", discard_one(all, 100, 0, work));
	printf("fact - a discard of pages of 4 KiB: %d\n", discard_one(all + 4096, 4096, 0, work));
	is("discards that overlap", SUCCESS, cuMemDiscardBatchAsync(bases, sizes, 2, 0, work));
	MUST(cuCtxSynchronize());
	MUST(cuMemFree_v2(device));
	munmap((void *)plain, 4 * MIB);
}

static void nothing(void *data)
{
}

/* In a capture; then what became of the capture. */
static void captures(uint64_t all)
{
	static const char *const names[] = { "a discard", "a batch of prefetches", "discard and prefetch",
					     "a single prefetch", "a host function" };
	struct location gpu = { 1, 0 };
	char what[96];

	for (int n = 0; n < 5; n++) {
		void *graph = NULL;
		int code = -1, end;

		snprintf(what, sizeof(what), "a capture for %s", names[n]);
		is(what, SUCCESS, cuStreamBeginCapture_v2(work, 2));
		code = n == 0 ? discard_one(all, MIB, 0, work) :
		       n == 1 ? prefetch_one(all, MIB, gpu, 0, 1, work) :
		       n == 2 ? both_one(all, MIB, gpu, work) :
		       n == 3 ? cuMemPrefetchAsync_v2(all, MIB, gpu, 0, work) :
				cuLaunchHostFunc(work, nothing, NULL);
		end = cuStreamEndCapture(work, &graph);
		snprintf(what, sizeof(what), "%s in a capture", names[n]);
		is(what, n == 4 ? SUCCESS : CAPTURE_UNSUPPORTED, code);
		strcat(what, ": the capture's end");
		is(what, n == 4 ? SUCCESS : CAPTURE_INVALIDATED, end);
		if (!end && graph)
			MUST(cuGraphDestroy(graph));
	}
}

/* How many of the words that the GPU writes to memory of a new owner are kept as it moves to the host. */
static size_t kept_of_next(uint64_t p, size_t size)
{
	static uint32_t saw[20 * MIB / 4];
	size_t kept = 0;

	write_by_gpu(p, size, 0x5555);
	move_to(p, size, false);
	read_by(false, saw, p, size);
	for (size_t i = 0; i < size / 4; i++)
		kept += saw[i] == 0x5555;
	return kept;
}

/*
 * Memory of a managed pool that was lazily discarded and freed: whether the pool gives it out again as it
 * was, so that a write is lost. On a GPU without CUDA 13's pools nothing is said.
 */
static void pools(void)
{
	/* CUmemPoolProps: CU_MEM_ALLOCATION_TYPE_MANAGED, for the first device. */
	int props[22] = { 2, 0, 1, 0 };
	uint64_t first = 0, second = 0;
	void *pool = NULL;
	int code = cuMemPoolCreate(&pool, props);
	size_t kept;

	if (!code)
		code = cuMemAllocFromPoolAsync(&first, MOST, pool, work);
	if (code || found < 0) {
		printf("fact - a managed pool and memory of it: %d\n", code);
		return;
	}
	write_by_gpu(first, MOST, 0x4444);
	MUST(cuStreamSynchronize(work));
	printf("fact - UVM_DISCARD of memory of a managed pool, lazy: %#lx\n", uvm_discard(found, first, MOST, 0));
	MUST(cuMemFree_v2(first));
	MUST(cuMemAllocFromPoolAsync(&second, MOST, pool, work));
	kept = kept_of_next(second, MOST);
	printf("fact - memory of a managed pool that was lazily discarded and freed is given out again: %s; "
	       "%zu of %zu words written then are kept\n", first == second ? "yes" : "no", kept, (size_t)MOST / 4);
	MUST(cuMemFree_v2(second));
}

/*
 * Managed memory that was lazily discarded and freed: whether CUDA gives it to the next owner as it was, without a
 * word to UVM. Another allocation of the size stays meanwhile, as it may share a block with the first. Nothing is
 * said of it: the library discards whole blocks lazily, and no parts, for that reason.
 */
static void freed(void)
{
	static const size_t sizes[] = { MIB / 16, MIB, 2 * MIB, 4 * MIB, 20 * MIB };

	for (size_t n = 0; found >= 0 && n < COUNT(sizes); n++) {
		size_t size = sizes[n], kept;
		uint64_t first, beside, again;
		long code;

		MUST(cuMemAllocManaged(&first, size, 1));
		MUST(cuMemAllocManaged(&beside, size, 1));
		write_by_gpu(first, size, 0x4444);
		MUST(cuStreamSynchronize(work));
		code = uvm_discard(found, first, size, 0);
		MUST(cuMemFree_v2(first));
		MUST(cuMemAllocManaged(&again, size, 1));
		kept = kept_of_next(again, size);
		printf("fact - %zu KiB of managed memory, lazily discarded (%#lx) and freed, are given out again: %s; "
		       "%zu of %zu words written then are kept\n", size >> 10, code, first == again ? "yes" : "no",
		       kept, size / 4);
		MUST(cuMemFree_v2(again));
		MUST(cuMemFree_v2(beside));
	}
}

static void free_in_order(void)
{
	uint64_t p;
	int code;

	MUST(cuMemAllocManaged(&p, MIB, 1));
	code = cuMemFreeAsync(p, work);
	printf("fact - cuMemFreeAsync of managed memory: %d\n", code);
	is("cuMemFreeAsync of managed memory is refused", 1, !!code);
	MUST(cuStreamSynchronize(work));
	if (code)
		MUST(cuMemFree_v2(p));
}

/* What it costs, and what counts as in use. */

static size_t in_use(size_t before)
{
	size_t available, total;

	MUST(cuMemGetInfo_v2(&available, &total));
	return before ? before - available : available;
}

static void accounts(void)
{
	uint64_t p;
	size_t before = in_use(0);

	MUST(cuMemAllocManaged(&p, LARGE, 1));
	printf("fact - cuMemGetInfo after cuMemAllocManaged of %zu MiB: %zd KiB less are free\n", LARGE >> 20,
	       (ssize_t)in_use(before) >> 10);
	write_by_gpu(p, LARGE, 7);
	printf("fact - and after the GPU wrote it: %zd KiB\n", (ssize_t)in_use(before) >> 10);
	MUST(discard_one(p, LARGE, 0, work));
	MUST(cuStreamSynchronize(work));
	printf("fact - and after its discard: %zd KiB\n", (ssize_t)in_use(before) >> 10);
	write_by_gpu(p, LARGE, 7);
	move_to(p, LARGE, false);
	printf("fact - and on the host: %zd KiB\n", (ssize_t)in_use(before) >> 10);
	MUST(cuMemFree_v2(p));
	printf("fact - and freed: %zd KiB\n", (ssize_t)in_use(before) >> 10);
}

/* How long the part behind the setup takes: 5 times, the shortest. */
#define SHORTEST(setup, part) ({ \
	double least = 1e9; \
	for (int round = 0; round < 5; round++) { \
		setup; \
		double began = now(); \
		part; \
		MUST(cuStreamSynchronize(work)); \
		double took = now() - began; \
		least = took < least ? took : least; \
	} \
	least * 1e6; })

static void costs(void)
{
	uint64_t p;

	MUST(cuMemAllocManaged(&p, LARGE, 1));
	write_by_gpu(p, LARGE, 7);
#define FULL do { write_by_gpu(p, LARGE, 7); move_to(p, LARGE, true); } while (0)
	printf("fact - of %zu MiB, us, the shortest of 5:\n", LARGE >> 20);
	printf("fact -   to the host %.0f\n", SHORTEST(FULL, move_to(p, LARGE, false)));
	printf("fact -   to the GPU %.0f\n", SHORTEST(FULL; move_to(p, LARGE, false), move_to(p, LARGE, true)));
	printf("fact -   cuMemDiscardBatchAsync %.0f\n", SHORTEST(FULL, discard(CUDA_EAGER, p, LARGE)));
	printf("fact -   cuMemDiscardAndPrefetchBatchAsync %.0f\n", SHORTEST(FULL, discard(CUDA_BOTH, p, LARGE)));
	if (found >= 0) {
		printf("fact -   UVM_DISCARD eager %.0f\n", SHORTEST(FULL, MUST(uvm_discard(found, p, LARGE, 1))));
		printf("fact -   UVM_DISCARD lazy %.0f\n", SHORTEST(FULL, MUST(uvm_discard(found, p, LARGE, 0))));
		printf("fact -   lazy, and a prefetch %.0f\n", SHORTEST(FULL, discard(UVM_LAZY_MOVED, p, LARGE)));
	}
	printf("fact -   to the host after a discard %.0f\n",
	       SHORTEST(FULL; discard(CUDA_EAGER, p, LARGE), move_to(p, LARGE, false)));
	printf("fact -   a memset by the GPU %.0f, after a discard %.0f, after one with a prefetch %.0f\n",
	       SHORTEST(FULL, write_by_gpu(p, LARGE, 8)),
	       SHORTEST(FULL; discard(CUDA_EAGER, p, LARGE), write_by_gpu(p, LARGE, 8)),
	       SHORTEST(FULL; discard(CUDA_BOTH, p, LARGE), write_by_gpu(p, LARGE, 8)));
	MUST(cuMemFree_v2(p));
}

/* What a host function between two kernels costs a stream. */
static void host_functions(uint64_t all)
{
	enum { MANY = 1000 };
	double least[2];

	for (int with = 0; with < 2; with++)
		least[with] = SHORTEST(write_by_gpu(all, 4096, 1), for (int i = 0; i < MANY; i++) {
			MUST(cuMemsetD32Async(all, i, 1024, work));
			if (with)
				MUST(cuLaunchHostFunc(work, nothing, NULL));
		});
	printf("fact - a memset of 4 KiB takes a stream %.2f us, with a host function before the next %.2f us\n",
	       least[0] / MANY, least[1] / MANY);
}

static int busy(double seconds)
{
	uint64_t p;

	MUST(cuMemAllocManaged(&p, 64 * MIB, 1));
	for (double end = now() + seconds; now() < end;) {
		write_by_gpu(p, 64 * MIB, 1);
		move_to(p, 64 * MIB, false);
	}
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t all;
	int version;

	setvbuf(stdout, NULL, _IOLBF, 0);
	start_cuda(MOST);
	if (argc > 2 && !strcmp(argv[1], "--busy"))
		return busy(atof(argv[2]));
	MUST(cuDriverGetVersion(&version));
	printf("fact - CUDA %d.%d\n", version / 1000, version % 1000 / 10);
	MUST(cuMemAllocManaged(&all, ALL, 1));
	is("managed memory begins with a block of 2 MiB", 0, all % (2 * MIB));
	write_by_host(all, ALL, 1);
	find_descriptor();
	ioctls(all);
	refusals(all);
	captures(all);
	reads(all);
	lazy_without_prefetch(all);
	pools();
	freed();
	free_in_order();
	accounts();
	host_functions(all);
	costs();
	printf("%d of %d are not as said\n", wrong, lines);
	return wrong > 0;
}
