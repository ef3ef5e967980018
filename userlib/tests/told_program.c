/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Says what a program is told of its memory: how much its pools have, what is at an address, and whether another
 * process can have it. Knows nothing of the preload. Argument: "pools", "destroyed", "reset", "pointers" or "handles".
 */
#include <dlfcn.h>
#include <string.h>

#include "cuda.h"

#define LARGE ((uint64_t)4 << 20)
#define SMALL ((uint64_t)64 << 10)

/* CUmemPoolProps */
struct props {
	int kind, handle_types, place, number;
	unsigned char more[72];
};

int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemAllocAsync(uint64_t *, size_t, void *);
int cuMemFreeAsync(uint64_t, void *);
int cuMemPoolDestroy(void *);
int cuMemPoolGetAttribute(void *, int, void *);
int cuMemPoolSetAttribute(void *, int, void *);
int cuDeviceGetMemPool(void **, int);
int cuDeviceSetMemPool(int, void *);
int cuDevicePrimaryCtxReset_v2(int);
int cuPointerGetAttribute(void *, int, uint64_t);
int cuPointerGetAttributes(unsigned int, int *, void **, uint64_t);
int cuIpcGetMemHandle(void *, uint64_t);

/* Of pools of the first GPU's memory. */
static const struct props props = { 1, 0, 1, 0 };

/* What a pool has reserved, the most of that, what is used, and the most. */
static void counts(const char *when, void *pool)
{
	uint64_t values[4];

	for (int i = 0; i < 4; i++)
		MUST(cuMemPoolGetAttribute(pool, 5 + i, &values[i]));
	printf("%s: %lu %lu %lu %lu\n", when, values[0], values[1], values[2], values[3]);
}

/* `pool` is asked by its name, or, where `named` is not, as that of the device. */
static uint64_t of_pool(void *pool, int named, uint64_t size)
{
	uint64_t base;

	MUST(named ? cuMemAllocFromPoolAsync(&base, size, pool, NULL) : cuMemAllocAsync(&base, size, NULL));
	return base;
}

static void each(void *pool, int named)
{
	uint64_t zero = 0, large, small, other;

	large = of_pool(pool, named, LARGE);
	small = of_pool(pool, named, SMALL);
	counts("two", pool);
	MUST(cuMemFreeAsync(large, NULL));
	counts("one", pool);
	MUST(cuMemPoolSetAttribute(pool, 8, &zero));
	counts("of which the most is forgotten", pool);
	other = of_pool(pool, named, 2 * LARGE);
	MUST(cuMemFree_v2(other));
	counts("as before", pool);
	MUST(cuMemPoolSetAttribute(pool, 6, &zero));
	counts("of which the most was reserved", pool);
	MUST(cuMemFreeAsync(small, NULL));
	counts("none", pool);
}

static void pools(void)
{
	void *pool, *own;
	uint64_t left;

	MUST(cuMemPoolCreate(&pool, &props));
	each(pool, 1);
	MUST(cuDeviceGetMemPool(&own, 0));
	each(own, 0);
	counts("the other's", pool);
	MUST(cuDeviceSetMemPool(0, pool));
	each(pool, 0);
	counts("the device's own", own);
	/* Whose handle may be another's then. */
	left = of_pool(pool, 1, LARGE);
	MUST(cuDeviceSetMemPool(0, own));
	MUST(cuMemPoolDestroy(pool));
	MUST(cuMemPoolCreate(&pool, &props));
	counts("a new one", pool);
	of_pool(pool, 1, LARGE);
	MUST(cuMemFreeAsync(left, NULL));
	counts("what it has", pool);
}

/* The stub's. */
enum moment { ELAPSED, OPENED, CLOSED, FILE_GROWS, RELEASED, POOL_GONE };
void stub_meanwhile(enum moment, void (*)(void));

static void *next_pool;

/* Another thread has the handle anew at once, and memory of the pool. */
static void take_handle(void)
{
	MUST(cuMemPoolCreate(&next_pool, &props));
	of_pool(next_pool, 1, LARGE);
}

/* Pools that go while another comes, and one that CUDA does not let go. */
static void destroyed(void)
{
	uint64_t first, second, zero = 0;
	void *pool, *own;

	MUST(cuMemPoolCreate(&pool, &props));
	MUST(cuMemFreeAsync(of_pool(pool, 1, LARGE), NULL));
	stub_meanwhile(POOL_GONE, take_handle);
	MUST(cuMemPoolDestroy(pool));
	EXPECT(next_pool == pool);
	counts("who has the handle now", next_pool);
	MUST(cuDeviceGetMemPool(&own, 0));
	first = of_pool(own, 0, LARGE);
	second = of_pool(own, 0, 2 * LARGE);
	MUST(cuMemFreeAsync(second, NULL));
	EXPECT(cuMemPoolDestroy(own) != 0);
	counts("the device's own, which stays", own);
	MUST(cuMemPoolSetAttribute(own, 8, &zero));
	MUST(cuMemFreeAsync(first, NULL));
	counts("and is told of frees", own);
}

/* Of what a device's reset has taken. */
static void reset(void)
{
	void *own;

	MUST(cuDeviceGetMemPool(&own, 0));
	of_pool(own, 0, LARGE);
	MUST(cuDevicePrimaryCtxReset_v2(0));
	counts("reset", own);
}

/* The type of what is at an address and whether it is managed, by both calls. */
static void says(const char *what, uint64_t p)
{
	int types[2] = { -1, -1 }, managed[2] = { -1, -1 }, which[] = { 8, 2 };
	void *out[] = { &managed[1], &types[1] };

	MUST(cuPointerGetAttribute(&types[0], 2, p));
	MUST(cuPointerGetAttribute(&managed[0], 8, p));
	MUST(cuPointerGetAttributes(2, which, out, p));
	EXPECT(types[0] == types[1] && managed[0] == managed[1]);
	printf("%s: type %d managed %d\n", what, types[0], managed[0]);
}

static void pointers(void)
{
	uint64_t large, small, behind, own = (uint64_t)(uintptr_t)managed(LARGE);

	MUST(cuMemAlloc_v2(&large, LARGE));
	MUST(cuMemAlloc_v2(&small, SMALL));
	says("large", large);
	says("in the midst", large + LARGE - 1);
	says("small", small);
	says("its own", own);
	behind = large;
	MUST(cuMemFree_v2(large));
	MUST(cuMemAllocManaged(&large, LARGE, 1));
	says("its own, where the other was, perhaps", large == behind ? behind : large);
}

static void handles(void)
{
	char handle[64];
	uint64_t large, small, own = (uint64_t)(uintptr_t)managed(LARGE);

	MUST(cuMemAlloc_v2(&large, LARGE));
	MUST(cuMemAlloc_v2(&small, SMALL));
	printf("its own %d", cuIpcGetMemHandle(handle, own));
	printf(" small %d", cuIpcGetMemHandle(handle, small));
	fflush(stdout);
	fprintf(stderr, "#\n");
	printf(" large %d %d\n", cuIpcGetMemHandle(handle, large), cuIpcGetMemHandle(handle, large));
}

int main(int argc, char **argv)
{
	use_device(0);
	if (!strcmp(argv[1], "pools"))
		pools();
	if (!strcmp(argv[1], "destroyed"))
		destroyed();
	if (!strcmp(argv[1], "reset"))
		reset();
	if (!strcmp(argv[1], "pointers"))
		pointers();
	if (!strcmp(argv[1], "handles"))
		handles();
	return failed;
}
