/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * CUDA's driver library for a test program on a real GPU: its functions, found with dlopen,
 * and a kernel that copies words, given as PTX. On the stub, which compiles no kernels, the
 * host copies in the kernel's place.
 */
#ifndef NATIVE_CUDA_H
#define NATIVE_CUDA_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CUmemLocation: 1 is a device, 2 the host. */
struct location {
	int type, id;
};

/* Name and types of CUDA's documentation, with pointers to structures as void *. */
#define FUNCTIONS(F) \
	F(cuInit, (unsigned int)) \
	F(cuDriverGetVersion, (int *)) \
	F(cuDeviceGetCount, (int *)) \
	F(cuDevicePrimaryCtxRetain, (void **, int)) \
	F(cuDeviceGetUuid, (uint8_t *, int)) \
	F(cuDeviceGetUuid_v2, (uint8_t *, int)) \
	F(cuCtxSetCurrent, (void *)) \
	F(cuCtxSynchronize, (void)) \
	F(cuMemAllocManaged, (uint64_t *, size_t, unsigned int)) \
	F(cuMemAlloc_v2, (uint64_t *, size_t)) \
	F(cuMemFree_v2, (uint64_t)) \
	F(cuMemFreeAsync, (uint64_t, void *)) \
	F(cuMemPoolCreate, (void **, const void *)) \
	F(cuMemAllocFromPoolAsync, (uint64_t *, size_t, void *, void *)) \
	F(cuMemGetInfo_v2, (size_t *, size_t *)) \
	F(cuMemsetD32Async, (uint64_t, unsigned int, size_t, void *)) \
	F(cuStreamCreate, (void **, unsigned int)) \
	F(cuStreamSynchronize, (void *)) \
	F(cuStreamBeginCapture_v2, (void *, int)) \
	F(cuStreamEndCapture, (void *, void **)) \
	F(cuGraphDestroy, (void *)) \
	F(cuLaunchHostFunc, (void *, void (*)(void *), void *)) \
	F(cuMemPrefetchAsync_v2, (uint64_t, size_t, struct location, unsigned int, void *)) \
	F(cuMemDiscardBatchAsync, (uint64_t *, size_t *, size_t, unsigned long long, void *)) \
	F(cuMemPrefetchBatchAsync, \
	  (uint64_t *, size_t *, size_t, struct location *, size_t *, size_t, unsigned long long, void *)) \
	F(cuMemDiscardAndPrefetchBatchAsync, \
	  (uint64_t *, size_t *, size_t, struct location *, size_t *, size_t, unsigned long long, void *))

#define DECLARE_FUNCTION(name, types) static int (*name) types;
FUNCTIONS(DECLARE_FUNCTION)

/* The stub has none of these. */
static int (*cuMemcpyDtoH_v2)(void *, uint64_t, size_t);
static int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			     void *, void **, void **);
static bool is_stub;
static void *copy_kernel, *work;
static uint64_t copied;

/* to[i] = from[i] for i < count, by one thread each. */
static const char copy_ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry copy(.param .u64 to, .param .u64 from, .param .u32 count)\n"
	"{\n"
	"	.reg .pred %out;\n"
	"	.reg .b32 %i, %n, %t;\n"
	"	.reg .b64 %p, %q, %at;\n"
	"	mov.u32 %i, %ctaid.x;\n"
	"	mov.u32 %n, %ntid.x;\n"
	"	mov.u32 %t, %tid.x;\n"
	"	mad.lo.u32 %i, %i, %n, %t;\n"
	"	ld.param.u32 %n, [count];\n"
	"	setp.ge.u32 %out, %i, %n;\n"
	"	@%out bra done;\n"
	"	ld.param.u64 %p, [to];\n"
	"	ld.param.u64 %q, [from];\n"
	"	cvta.to.global.u64 %p, %p;\n"
	"	cvta.to.global.u64 %q, %q;\n"
	"	mul.wide.u32 %at, %i, 4;\n"
	"	add.u64 %p, %p, %at;\n"
	"	add.u64 %q, %q, %at;\n"
	"	ld.global.u32 %t, [%q];\n"
	"	st.global.u32 [%p], %t;\n"
	"done:\n"
	"	ret;\n"
	"}\n";

static void *find_function(void *library, const char *name)
{
	void *function = dlsym(library, name);

	if (!function) {
		printf("libcuda.so.1 has no %s: it is older than CUDA 13\n", name);
		exit(77);
	}
	return function;
}

static void must_code(int code, const char *what)
{
	if (code) {
		printf("not ok - %s gives CUDA's error %d\n", what, code);
		exit(1);
	}
}
#define MUST(call) must_code(call, #call)

/* Makes the first GPU current, with a stream and room for `most` bytes that a kernel has read. */
static void start_cuda(size_t most)
{
	int (*load)(void **, const void *), (*get)(void **, void *, const char *);
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *context, *module;
	int gpus = 0;

	if (!library) {
		puts("there is no libcuda.so.1");
		exit(77);
	}
#define FIND_FUNCTION(name, types) *(void **)&name = find_function(library, #name);
	FUNCTIONS(FIND_FUNCTION)
	is_stub = dlsym(library, "stub_violations");
	if (cuInit(0) || cuDeviceGetCount(&gpus) || !gpus) {
		puts("there is no GPU that CUDA can use");
		exit(77);
	}
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
	MUST(cuStreamCreate(&work, 1));
	if (is_stub)
		return;
	*(void **)&load = find_function(library, "cuModuleLoadData");
	*(void **)&get = find_function(library, "cuModuleGetFunction");
	*(void **)&cuLaunchKernel = find_function(library, "cuLaunchKernel");
	*(void **)&cuMemcpyDtoH_v2 = find_function(library, "cuMemcpyDtoH_v2");
	MUST(load(&module, copy_ptx));
	MUST(get(&copy_kernel, module, "copy"));
	MUST(cuMemAlloc_v2(&copied, most));
}

/* What a kernel reads. */
static inline void read_by_gpu(void *to, uint64_t from, size_t length)
{
	uint32_t count = length / 4;
	void *params[] = { &copied, &from, &count };

	if (!is_stub)
		MUST(cuLaunchKernel(copy_kernel, (count + 255) / 256, 1, 1, 256, 1, 1, 0, work, params, NULL));
	MUST(cuStreamSynchronize(work));
	if (is_stub)
		memcpy(to, (void *)from, length);
	else
		MUST(cuMemcpyDtoH_v2(to, copied, length));
}

static inline void write_by_gpu(uint64_t to, size_t length, uint32_t value)
{
	MUST(cuMemsetD32Async(to, value, length / 4, work));
	MUST(cuStreamSynchronize(work));
}

static inline void write_by_host(uint64_t to, size_t length, uint32_t value)
{
	for (size_t i = 0; i < length / 4; i++)
		((volatile uint32_t *)to)[i] = value;
}

/* Moves memory to the first GPU, or to the host, and waits. */
static inline void move_to(uint64_t base, size_t length, bool gpu)
{
	struct location to = { gpu ? 1 : 2, 0 };

	MUST(cuMemPrefetchAsync_v2(base, length, to, 0, work));
	MUST(cuStreamSynchronize(work));
}

#endif
