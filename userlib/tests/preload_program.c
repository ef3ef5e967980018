/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A CUDA program that knows of nothing: it uses the runtime, and the driver both
 * linked and by dlsym. What the preload made of it is in the stub's log, where
 * lines of this program's, "# ...", stand between.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGE ((uint64_t)4 << 20)
#define SMALL ((uint64_t)64 << 10)

struct kernel {
	const char *name;
} add = { "add" }, mul = { "mul" };

struct dim {
	unsigned int x, y, z;
};

struct config {
	unsigned int grid[3], block[3], shared;
	void *stream, *attrs;
	unsigned int count;
};

int cudaMalloc(void **, size_t);
int cudaMallocPitch(void **, size_t *, size_t, size_t);
int cudaMallocAsync(void **, size_t, void *);
int cudaFree(void *);
int cudaFreeAsync(void *, void *);
int cudaDeviceSynchronize(void);
int cudaLaunchKernel(const void *, struct dim, struct dim, void **, size_t, void *);
int cudaGraphLaunch(void *, void *);
int cuLaunchKernelEx(const struct config *, struct kernel *, void **, void **);
int cuModuleUnload(void *);
int cuStreamCreate(void **, unsigned int);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuGraphDestroy(void *);

static void section(const char *name)
{
	const char *path = getenv("STUB_LOG");
	FILE *file = path ? fopen(path, "a") : NULL;

	cudaDeviceSynchronize();
	if (file) {
		fprintf(file, "# %s\n", name);
		fclose(file);
	}
}

static void launch_in(void *stream, struct kernel *kernel, void *p, uint64_t length, int number,
		      unsigned int grid)
{
	void *params[] = { &p, &length, &number };

	if (cudaLaunchKernel(kernel, (struct dim){ grid, 1, 1 }, (struct dim){ 32, 1, 1 }, params,
			     0, stream))
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

int main(void)
{
	unsigned char *large, *small, *pitched, *later, *waited;
	struct config config = { { 1, 1, 1 }, { 32, 1, 1 }, 0, NULL, NULL, 0 };
	size_t pitch;
	void *stream, *other, *graph;
	uint64_t length = LARGE;
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
