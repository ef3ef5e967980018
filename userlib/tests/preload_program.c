/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A CUDA program that knows of nothing: it uses the runtime, and the driver both
 * linked and by dlsym. What the preload made of it is in the stub's log, where
 * lines of this program's, "# ...", stand between.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cudart.h"

#define LARGE ((uint64_t)4 << 20)
#define SMALL ((uint64_t)64 << 10)

static struct kernel add = { "add" }, mul = { "mul" }, sum = { "sum" };

struct config {
	unsigned int grid[3], block[3], shared;
	void *stream, *attrs;
	unsigned int count;
};

int cudaMallocPitch(void **, size_t *, size_t, size_t);
int cudaMallocAsync(void **, size_t, void *);
int cudaFreeAsync(void *, void *);
int cuLaunchKernelEx(const struct config *, struct kernel *, void **, void **);
int cuModuleUnload(void *);
int cuInit(unsigned int);
int cuStreamCreate(void **, unsigned int);
int cuStreamSynchronize(void *);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuGraphDestroy(void *);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxPushCurrent_v2(void *);
int cuCtxPopCurrent_v2(void **);
int cuCtxCreate_v2(void **, unsigned int, int);
int cuCtxDestroy_v2(void *);
int cuDevicePrimaryCtxReset_v2(int);
int cuMemAllocManaged(void **, size_t, unsigned int);
int cuMemAllocAsync(void **, size_t, void *);
int cuMemFreeAsync(void *, void *);
void stub_place(void *);
int cuMemAllocFromPoolAsync(void **, size_t, void *, void *);
int cuMemGetInfo_v2(size_t *, size_t *);
struct pool_props;
int cuMemPoolCreate(void **, const struct pool_props *);
int cuMemPoolDestroy(void *);
int cuDeviceSetMemPool(int, void *);
int cuMemGetDefaultMemPool(void **, void *, int);
int cuMemGetMemPool(void **, void *, int);

/* CUmemPoolProps */
struct pool_props {
	int kind, handle_types, location_kind, location;
	void *security;
	size_t most_bytes;
	unsigned short usage;
	unsigned char reserved[54];
};

static void say(const char *line)
{
	const char *path = getenv("STUB_LOG");
	FILE *file = path ? fopen(path, "a") : NULL;

	if (file) {
		fprintf(file, "%s\n", line);
		fclose(file);
	}
}

static void section(const char *name)
{
	char line[64];

	cudaDeviceSynchronize();
	snprintf(line, sizeof(line), "# %s", name);
	say(line);
}

/* What a program is told of the memory that there is. */
static int info(void)
{
	size_t free, total;
	char line[64];

	if (cuMemGetInfo_v2(&free, &total))
		return 1;
	snprintf(line, sizeof(line), "info %zu %zu", free, total);
	say(line);
	return 0;
}

static int try_launch(void *stream, struct kernel *kernel, void *p, uint64_t length, int *number,
		      unsigned int grid)
{
	void *params[] = { &p, &length, number };

	return cudaLaunchKernel(kernel, (struct dim){ grid, 1, 1 }, (struct dim){ 32, 1, 1 },
				params, 0, stream);
}

static void launch_in(void *stream, struct kernel *kernel, void *p, uint64_t length, int number,
		      unsigned int grid)
{
	if (try_launch(stream, kernel, p, length, &number, grid))
		exit(1);
}

static void launch(struct kernel *kernel, void *p, uint64_t length, int number, unsigned int grid)
{
	launch_in(NULL, kernel, p, length, number, grid);
}

static void by_dlsym(void *p, uint64_t length)
{
	int (*f)(struct kernel *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		 unsigned, void *, void **, void **);
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	int number = 1;
	void *params[] = { &p, &length, &number };

	*(void **)&f = dlsym(library, "cuLaunchKernel");
	f(&add, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
}

/* CUDA's error where it is not initialised. */
#define NOT_INITIALIZED 3

static unsigned char *parents;
static int *argument;

/*
 * In a child, of whose parent a thread was in the midst of a launch: nothing waits for that
 * thread. CUDA is not initialised here; and if it were, UVM's descriptor is the parent's still.
 */
static int child(void)
{
	int number = 1;
	void *stream, *own;

	alarm(30);
	if (try_launch(NULL, &add, parents, LARGE, &number, 1) != NOT_INITIALIZED ||
	    cudaFree(parents) != NOT_INITIALIZED)
		return 1;
	if (cuInit(0) || cuStreamCreate(&stream, 1) || cudaMalloc(&own, LARGE))
		return 2;
	/* Kernels that the parent has launched, and that it has not. */
	if (try_launch(stream, &add, own, LARGE, &number, 1) ||
	    try_launch(stream, &sum, own, LARGE, &number, 1) || cuStreamSynchronize(stream))
		return 3;
	return cudaFree(own) ? 4 : 0;
}

/* An argument is read that may not be: here the launch is hashed, under a lock. */
static void in_launch(int signal)
{
	int status = 1;
	pid_t id = fork();

	if (!id)
		_exit(child());
	if (waitpid(id, &status, 0) != id || status)
		_exit(90 + WEXITSTATUS(status));
	mprotect(argument, 4096, PROT_READ | PROT_WRITE);
}

/* A launch during which the process forks. Where nothing is announced nobody reads arguments. */
static void fork_in_launch(unsigned char *p)
{
	parents = p;
	argument = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (argument == MAP_FAILED)
		exit(1);
	*argument = 1;
	mprotect(argument, 4096, PROT_NONE);
	signal(SIGSEGV, in_launch);
	if (try_launch(NULL, &add, p, LARGE, argument, 1))
		exit(1);
	signal(SIGSEGV, SIG_DFL);
}

/* Pools that are more than memory of a device, one after the other, and one that is not. */
static int pools_of_a_kind(void)
{
	static const struct pool_props kinds[] = {
		{ 1, 1, 1, 0 },
		{ 1, 0, 2, 0 },
		{ 1, 0, 1, 0, NULL, 64 << 20 },
		/* For CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS. */
		{ 1, 0, 1, 0, NULL, 0, 2 },
		{ 1, 0, 1, 0 },
	};
	void *pool, *p;

	for (int i = 0; i < 5; i++) {
		if (cuMemPoolCreate(&pool, &kinds[i]) ||
		    cuMemAllocFromPoolAsync(&p, LARGE, pool, NULL) || cudaFreeAsync(p, NULL) ||
		    cuMemPoolDestroy(pool))
			return 1;
	}
	/* And as that of the device: what is asked of no pool by its name comes from it. */
	if (cuMemPoolCreate(&pool, &kinds[0]) || cudaMallocAsync(&p, LARGE, NULL) ||
	    cudaFreeAsync(p, NULL) || cuDeviceSetMemPool(0, pool) ||
	    cudaMallocAsync(&p, LARGE, NULL) || cudaFreeAsync(p, NULL))
		return 1;
	return 0;
}

/* CUDA's own pools: of a device's memory, of the host's, and of managed memory. */
static int pools_of_cuda(int (*get)(void **, void *, int))
{
	static int places[][2] = { { 1, 0 }, { 2, 0 }, { 1, 0 } };
	static const int kinds[] = { 1, 1, 2 };
	void *pool, *p;

	for (int i = 0; i < 3; i++)
		if (get(&pool, places[i], kinds[i]) ||
		    cuMemAllocFromPoolAsync(&p, LARGE, pool, NULL) || cudaFreeAsync(p, NULL))
			return 1;
	return 0;
}

/* Allocates from no pool by its name, in a stream of the second device and in each default stream. */
static int in_each_stream(void *stream)
{
	void *p, *streams[] = { stream, NULL, (void *)1, (void *)2 };

	for (int i = 0; i < 4; i++)
		if (cuMemAllocAsync(&p, LARGE, streams[i]) || cudaFreeAsync(p, NULL))
			return 1;
	return 0;
}

/*
 * The pool of one device is more than memory, and not that of the other: first of the first one, then of
 * the second, which is made current at last.
 */
static int pools_of_two_devices(void)
{
	static const struct pool_props first = { 1, 1, 1, 0 }, second = { 1, 1, 1, 1 };
	static int place[] = { 1, 0 };
	void *pool, *context, *stream;

	if (cuDevicePrimaryCtxRetain(&context, 1) || cuCtxPushCurrent_v2(context) ||
	    cuStreamCreate(&stream, 1) || cuCtxPopCurrent_v2(&context) ||
	    cuMemPoolCreate(&pool, &first) || cuDeviceSetMemPool(0, pool) || in_each_stream(stream))
		return 1;
	say("# second device's");
	if (cuMemGetDefaultMemPool(&pool, place, 1) || cuDeviceSetMemPool(0, pool) ||
	    cuMemPoolCreate(&pool, &second) || cuDeviceSetMemPool(1, pool) || in_each_stream(stream))
		return 1;
	say("# second device");
	return cuCtxPushCurrent_v2(context) || in_each_stream(stream) || cuCtxPopCurrent_v2(&context);
}

/*
 * Memory in a stream's order is there when a context is gone: one of the program's own, in its default
 * stream; one that is current, in a stream of another; and where none is current.
 */
static int contexts(void)
{
	unsigned char *own, *others, *nobodys;
	void *context, *stream, *now;

	if (cuStreamCreate(&stream, 1) || cuCtxCreate_v2(&context, 0, 0) ||
	    cuMemAllocAsync((void **)&own, LARGE, NULL) ||
	    cuMemAllocAsync((void **)&others, LARGE, stream) || cuCtxDestroy_v2(context))
		return 1;
	*own = *others = 1;
	if (cuCtxPopCurrent_v2(&now) || cuMemAllocAsync((void **)&nobodys, LARGE, stream))
		return 1;
	*nobodys = 1;
	if (cuMemFreeAsync(own, stream) || cuMemFreeAsync(others, stream) ||
	    cuMemFreeAsync(nobodys, stream))
		return 1;
	return cuCtxPushCurrent_v2(now);
}

/* What a device's reset has taken is not freed again, whoever has its address by then. */
static int reset(void)
{
	void *context;
	unsigned char *p, *anew;

	if (cuDevicePrimaryCtxRetain(&context, 1) || cuCtxPushCurrent_v2(context) ||
	    cuMemAllocAsync((void **)&p, LARGE, NULL) || cuCtxPopCurrent_v2(&context) ||
	    cuDevicePrimaryCtxReset_v2(1))
		return 1;
	stub_place(p);
	/* What is CUDA's own is there still, and so nothing else is. */
	if (cuMemAllocManaged((void **)&anew, LARGE, 1))
		return cuMemFreeAsync(p, NULL);
	if (anew != p || !cuMemFreeAsync(p, NULL))
		return 1;
	*anew = 1;
	return cudaFree(anew);
}

int main(void)
{
	unsigned char *large, *small, *pitched, *later, *waited, *kept, *pooled, *few;
	struct config config = { { 1, 1, 1 }, { 32, 1, 1 }, 0, NULL, NULL, 0 };
	size_t pitch;
	void *stream, *other, *graph;
	uint64_t length = LARGE;
	struct pool_props pool = { 1, 0, 1, 0 };
	int number = 1;
	void *params[] = { NULL, &length, &number };

	section("memory");
	if (cudaMalloc((void **)&large, LARGE) || cudaMalloc((void **)&small, SMALL) ||
	    cudaMallocPitch((void **)&pitched, &pitch, 1000, 4096) ||
	    cudaMallocAsync((void **)&later, LARGE, NULL) || pitch < 1000)
		return 1;
	pitched[pitch * 4095 + 999] = 1;
	section("same");
	launch(&add, large, LARGE, 1, 1);
	launch(&add, large, LARGE, 1, 1);
	section("different");
	launch(&mul, large, LARGE, 1, 1);
	launch(&add, later, LARGE, 1, 1);
	launch(&add, large, LARGE, 2, 1);
	launch(&add, large, LARGE, 1, 2);
	section("driver");
	params[0] = &large;
	cuLaunchKernelEx(&config, &add, params, NULL);
	by_dlsym(large, LARGE);
	section("graph");
	cudaGraphLaunch((void *)0x1000, NULL);
	cudaGraphLaunch((void *)0x1000, NULL);
	cudaGraphLaunch((void *)0x2000, NULL);
	section("child");
	fork_in_launch(large);
	section("capture");
	if (cuStreamCreate(&stream, 0) || cuStreamBeginCapture_v2(stream, 0))
		return 1;
	launch_in(stream, &add, large, LARGE, 1, 1);
	/* Only what a graph allocates can be freed in it: CUDA's error, and no more. */
	if (cudaFreeAsync(later, stream) != 1)
		return 1;
	if (cuStreamEndCapture(stream, &graph) || cuGraphDestroy(graph))
		return 1;
	section("wait");
	/* To free in another stream, one waits for it, and the capture goes on. */
	if (cuStreamCreate(&other, 1) || cudaMalloc((void **)&waited, LARGE) ||
	    cuStreamBeginCapture_v2(stream, 0) || cudaFreeAsync(waited, other) ||
	    cuStreamEndCapture(stream, &graph) || cuGraphDestroy(graph))
		return 1;
	section("refused");
	/* What CUDA did not free, since it breaks the capture, is freed later as what it is. */
	if (cudaMalloc((void **)&kept, LARGE) || cuStreamBeginCapture_v2(stream, 0) ||
	    cudaFree(kept) != 900 || !cuStreamEndCapture(stream, &graph) || cudaFreeAsync(kept, NULL))
		return 1;
	/* What CUDA does not allocate during a capture, nobody allocates as managed memory. */
	if (cuStreamBeginCapture_v2(stream, 0) || cudaMalloc((void **)&kept, LARGE) != 900 ||
	    !cuStreamEndCapture(stream, &graph))
		return 1;
	section("contexts");
	if (contexts())
		return 1;
	section("reset");
	if (reset())
		return 1;
	section("pool");
	if (cuMemAllocFromPoolAsync((void **)&pooled, LARGE, &pool, NULL) ||
	    cuMemAllocFromPoolAsync((void **)&few, SMALL, &pool, NULL) ||
	    cudaFreeAsync(pooled, NULL) || cudaFreeAsync(few, NULL) ||
	    cuStreamBeginCapture_v2(stream, 0) ||
	    cuMemAllocFromPoolAsync((void **)&pooled, LARGE, &pool, stream) ||
	    cuStreamEndCapture(stream, &graph) || cuGraphDestroy(graph))
		return 1;
	section("pools");
	if (pools_of_cuda(cuMemGetDefaultMemPool) || pools_of_cuda(cuMemGetMemPool))
		return 1;
	section("kinds");
	if (pools_of_a_kind())
		return 1;
	section("first device's");
	if (pools_of_two_devices())
		return 1;
	section("info");
	if (info())
		return 1;
	section("short");
	/* Each is over before the next: it is known how long the first ones have taken. */
	for (int i = 0; i < 100; i++) {
		launch(&sum, small, 0, 1, 1);
		cudaDeviceSynchronize();
	}
	section("unload");
	cuModuleUnload(NULL);
	add.name = "sub";
	launch(&add, large, LARGE, 1, 1);
	section("free");
	if (cudaFreeAsync(later, NULL) || cudaFree(large) || cudaFree(small) || cudaFree(pitched))
		return 1;
	section("end");
	return 0;
}
