/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the preload stands in front of beside plain allocations, on a real GPU: the default pool
 * and one of the program's own, memory in a capture, memory that is mapped by the program,
 * cuMemGetInfo, and fork. Knows nothing of the preload. Takes 32 MiB.
 *
 *   under_program plain|managed [host]     what its pools' memory is said to be, and whether
 *                                          cuMemGetInfo is said to count the host's memory
 *
 * Exits with 0 if all is so, 1 if not, 77 where there is no GPU.
 */
#include <sys/wait.h>
#include <unistd.h>
#include "native_cuda.h"

#define LENGTH ((size_t)8 << 20)
#define IS_MANAGED 8 /* CU_POINTER_ATTRIBUTE_IS_MANAGED */

#define MORE(F) \
	F(cuPointerGetAttribute, (void *, int, uint64_t)) \
	F(cuMemAllocAsync, (uint64_t *, size_t, void *)) \
	F(cuMemAllocFromPoolAsync, (uint64_t *, size_t, void *, void *)) \
	F(cuMemPoolCreate, (void **, const struct pool_props *)) \
	F(cuMemPoolDestroy, (void *)) \
	F(cuMemCreate, (uint64_t *, size_t, const struct mem_props *, unsigned long long)) \
	F(cuMemAddressReserve, (uint64_t *, size_t, size_t, uint64_t, unsigned long long)) \
	F(cuMemMap, (uint64_t, size_t, size_t, uint64_t, unsigned long long)) \
	F(cuMemSetAccess, (uint64_t, size_t, const struct access *, size_t)) \
	F(cuMemUnmap, (uint64_t, size_t)) \
	F(cuMemRelease, (uint64_t)) \
	F(cuMemAddressFree, (uint64_t, size_t)) \
	F(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long)) \
	F(cuGraphLaunch, (void *, void *)) \
	F(cuGraphExecDestroy, (void *))

/* CUmemPoolProps */
struct pool_props {
	int kind, handle_types;
	struct location location;
	void *security;
	size_t most_bytes;
	unsigned char reserved[56];
};

/* CUmemAllocationProp */
struct mem_props {
	int kind, handle_types;
	struct location location;
	void *security;
	unsigned char flags[8];
};

/* CUmemAccessDesc */
struct access {
	struct location location;
	int flags;
};

MORE(DECLARE_FUNCTION)

static int wrong;

static void is(const char *what, int holds)
{
	printf("%s - %s\n", holds ? "ok" : "not ok", what);
	wrong += !holds;
}

/* A function as a program finds it that has loaded CUDA itself. */
static void find_more(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	MORE(FIND_FUNCTION)
}

static int managed(uint64_t base)
{
	unsigned int value = 0;

	MUST(cuPointerGetAttribute(&value, IS_MANAGED, base));
	return value;
}

static int holds(uint64_t base, uint32_t value)
{
	static uint32_t saw[LENGTH / 4];

	read_by_gpu(saw, base, LENGTH);
	for (size_t i = 0; i < LENGTH / 4; i++)
		if (saw[i] != value)
			return 0;
	return 1;
}

static void pools(int expected)
{
	struct pool_props props = { .kind = 1, .location = { 1, 0 } };
	uint64_t one, other;
	void *pool;

	MUST(cuMemPoolCreate(&pool, &props));
	MUST(cuMemAllocAsync(&one, LENGTH, work));
	MUST(cuMemAllocFromPoolAsync(&other, LENGTH, pool, work));
	MUST(cuMemsetD32Async(one, 1, LENGTH / 4, work));
	MUST(cuMemsetD32Async(other, 2, LENGTH / 4, work));
	is("the default pool's memory is as expected", managed(one) == expected);
	is("a pool's memory is as expected", managed(other) == expected);
	is("the default pool's memory holds what was written", holds(one, 1));
	is("a pool's memory holds what was written", holds(other, 2));
	MUST(cuMemFreeAsync(one, work));
	MUST(cuMemFreeAsync(other, work));
	MUST(cuStreamSynchronize(work));
	MUST(cuMemPoolDestroy(pool));
}

/* What a graph allocates is CUDA's, also under the preload. */
static void in_a_capture(void)
{
	uint64_t kept, inner;
	void *graph, *launched;

	MUST(cuMemAlloc_v2(&kept, LENGTH));
	MUST(cuStreamBeginCapture_v2(work, 2));
	MUST(cuMemAllocAsync(&inner, LENGTH, work));
	MUST(cuMemsetD32Async(inner, 3, LENGTH / 4, work));
	MUST(cuMemsetD32Async(kept, 4, LENGTH / 4, work));
	MUST(cuMemFreeAsync(inner, work));
	MUST(cuStreamEndCapture(work, &graph));
	MUST(cuGraphInstantiateWithFlags(&launched, graph, 0));
	for (int i = 0; i < 3; i++) {
		MUST(cuMemsetD32Async(kept, 5, LENGTH / 4, work));
		MUST(cuGraphLaunch(launched, work));
	}
	is("a graph that allocates and frees does what was captured", holds(kept, 4));
	MUST(cuGraphExecDestroy(launched));
	MUST(cuGraphDestroy(graph));
	MUST(cuMemFree_v2(kept));
}

static void mapped(void)
{
	struct mem_props props = { .kind = 1, .location = { 1, 0 } };
	struct access access = { { 1, 0 }, 3 };
	uint64_t handle, base;

	MUST(cuMemAddressReserve(&base, LENGTH, 0, 0, 0));
	MUST(cuMemCreate(&handle, LENGTH, &props, 0));
	MUST(cuMemMap(base, LENGTH, 0, handle, 0));
	MUST(cuMemSetAccess(base, LENGTH, &access, 1));
	MUST(cuMemsetD32Async(base, 6, LENGTH / 4, work));
	is("memory that the program maps is CUDA's", !managed(base));
	is("memory that the program maps holds what was written", holds(base, 6));
	MUST(cuMemUnmap(base, LENGTH));
	MUST(cuMemRelease(handle));
	MUST(cuMemAddressFree(base, LENGTH));
}

/* The child does nothing with CUDA but ask, which gives an error there; the parent's data stay. */
static void forked(void)
{
	uint64_t base;
	int status = -1;
	pid_t child;

	MUST(cuMemAlloc_v2(&base, LENGTH));
	MUST(cuMemsetD32Async(base, 7, LENGTH / 4, work));
	fflush(stdout);
	child = fork();
	if (!child) {
		uint64_t other = 0;

		_exit(cuMemAlloc_v2(&other, LENGTH) ? 42 : 43);
	}
	is("a child of fork ends", waitpid(child, &status, 0) == child && WIFEXITED(status));
	printf("fact - in a child of fork cuMemAlloc %s\n", WEXITSTATUS(status) == 42 ? "fails" : "works");
	is("CUDA gives a child of fork no memory", WEXITSTATUS(status) == 42);
	is("what is there before a fork is there behind it", holds(base, 7));
	MUST(cuMemsetD32Async(base, 8, LENGTH / 4, work));
	is("what is written behind a fork is kept", holds(base, 8));
	MUST(cuMemFree_v2(base));
}

static void told(int host)
{
	size_t free, total, pages = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE), gpu;
	int (*whole)(size_t *, int);

	*(void **)&whole = find_function(RTLD_DEFAULT, "cuDeviceTotalMem_v2");
	MUST(whole(&gpu, 0));
	MUST(cuMemGetInfo_v2(&free, &total));
	printf("fact - cuMemGetInfo: %zu MiB free of %zu; the GPU has %zu, the host %zu\n", free >> 20, total >> 20,
	       gpu >> 20, pages >> 20);
	is("cuMemGetInfo counts the host's memory as expected", (total > gpu) == host);
	is("no more is free than there is", free <= total);
}

int main(int argc, char **argv)
{
	int expected = argc > 1 && !strcmp(argv[1], "managed"), host = argc > 2;

	start_cuda(LENGTH);
	if (is_stub) {
		puts("the stub maps no memory");
		return 77;
	}
	find_more();
	told(host);
	pools(expected);
	in_a_capture();
	mapped();
	forked();
	return wrong != 0;
}
