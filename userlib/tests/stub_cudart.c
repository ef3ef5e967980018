/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A CUDA runtime library that comes by the driver's functions as NVIDIA's does:
 * dlopen, dlsym of cuGetProcAddress_v2, and that for the rest.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#include "cudart.h"

#define VERSION 12040

static int (*get)(const char *, void **, int, uint64_t, int *);

static void *function(const char *name)
{
	void *found = NULL;

	if (get(name, &found, VERSION, 0, NULL))
		abort();
	return found;
}

/* The first call initialises the driver and makes the first device current. */
static void *driver(const char *name)
{
	int (*init)(unsigned int), (*retain)(void **, int), (*set_current)(void *);
	void *context;

	if (!get) {
		*(void **)&get = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
		if (!get)
			abort();
		*(void **)&init = function("cuInit");
		*(void **)&retain = function("cuDevicePrimaryCtxRetain");
		*(void **)&set_current = function("cuCtxSetCurrent");
		if (init(0) || retain(&context, 0) || set_current(context))
			abort();
	}
	return function(name);
}

int cudaMalloc(void **out, size_t size)
{
	int (*f)(void **, size_t);

	*(void **)&f = driver("cuMemAlloc");
	return f(out, size);
}

int cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height)
{
	int (*f)(void **, size_t *, size_t, size_t, unsigned int);

	*(void **)&f = driver("cuMemAllocPitch");
	return f(out, pitch, width, height, 4);
}

int cudaMallocAsync(void **out, size_t size, void *stream)
{
	int (*f)(void **, size_t, void *);

	*(void **)&f = driver("cuMemAllocAsync");
	return f(out, size, stream);
}

int cudaFree(void *p)
{
	int (*f)(void *);

	*(void **)&f = driver("cuMemFree");
	return f(p);
}

int cudaFreeAsync(void *p, void *stream)
{
	int (*f)(void *, void *);

	*(void **)&f = driver("cuMemFreeAsync");
	return f(p, stream);
}

int cudaDeviceSynchronize(void)
{
	int (*f)(void *);

	*(void **)&f = driver("cuStreamSynchronize");
	return f(NULL);
}

int cudaLaunchKernel(const void *kernel, struct dim grid, struct dim block, void **params,
		     size_t shared, void *stream)
{
	int (*f)(const void *, unsigned int, unsigned int, unsigned int, unsigned int,
		 unsigned int, unsigned int, unsigned int, void *, void **, void **);

	*(void **)&f = driver("cuLaunchKernel");
	return f(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream,
		 params, NULL);
}

int cudaGraphLaunch(void *graph, void *stream)
{
	int (*f)(void *, void *);

	*(void **)&f = driver("cuGraphLaunch");
	return f(graph, stream);
}
