/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Uses every function of uvmrust.h on the stub library, and tells what it found.
 * Exits with 0 if the backend named by the first argument did as the header says,
 * 1 if not. Built against the shared and the static library.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "uvmrust.h"

#define LENGTH ((size_t)4 << 20)
#define HALF (LENGTH / 2)

static int bad;

static void expect(int holds, const char *what, int line)
{
	if (!holds) {
		printf("line %d: not so: %s\n", line, what);
		bad = 1;
	}
}
#define EXPECT(x) expect((x), #x, __LINE__)

static int all(const unsigned char *p, unsigned char value)
{
	for (size_t i = 0; i < LENGTH; i++)
		if (p[i] != value)
			return 0;
	return 1;
}

/*
 * The contents are gone: each page is zeros or as it was with uvm-rust's driver, some of
 * them zeros, and what the stub library has for indeterminate data with the others.
 */
static int gone(const unsigned char *p, unsigned char old)
{
	size_t zeros = 0;

	if (UvmRustBackend() != UVMRUST_BACKEND_UVMRUST)
		return all(p, 0xdb);
	for (size_t i = 0; i < LENGTH; i++) {
		if (p[i] != p[i & ~(size_t)0xfff] || (p[i] && p[i] != old))
			return 0;
		zeros += !p[i];
	}
	return zeros > 0;
}

static void *cuda(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

static void without(unsigned char *p)
{
	struct uvmrust_range r = { (uintptr_t)p, LENGTH };
	struct uvmrust_result result;

	EXPECT(UvmDiscard(p, LENGTH) == UVMRUST_ENOTSUPPORTED);
	EXPECT(UvmDiscardLazy(p, LENGTH) == UVMRUST_ENOTSUPPORTED);
	EXPECT(UvmDiscardBatch(&r, 1, 0, &result) == UVMRUST_ENOTSUPPORTED && !result.done);
	EXPECT(UvmDiscardBatchAsync(&r, 1, 0, NULL) == UVMRUST_ENOTSUPPORTED);
	EXPECT(UvmDiscardAndPrefetch(p, LENGTH, NULL) == UVMRUST_ENOTSUPPORTED);
	EXPECT(all(p, 7));
}

/* Buffers of G10's: freed in the order of the stream, and their addresses used again. */
static void buffers(int backend, int (*synchronize)(void *))
{
	uint8_t gpu[16];
	void *a, *b, *c;

	EXPECT(UvmRustDeviceUuid(0, gpu) == 0);
	EXPECT(g10_alloc(NULL, LENGTH, gpu) == UVMRUST_EINVALID);
	EXPECT(g10_alloc(&a, 0, gpu) == UVMRUST_EINVALID);
	EXPECT(g10_alloc(&a, SIZE_MAX, gpu) == UVMRUST_EINVALID);
	EXPECT(g10_alloc(&a, LENGTH - 1, NULL) == 0);
	memset(a, 9, LENGTH);
	EXPECT(g10_free(a, NULL) == 0 && g10_free(a, NULL) == UVMRUST_EINVALID);
	EXPECT(g10_free(&a, NULL) == UVMRUST_EINVALID);
	if (backend == UVMRUST_BACKEND_NONE)
		return;
	/* Not before the stream has come there. */
	EXPECT(all(a, 9) && g10_alloc(&b, LENGTH, NULL) == 0 && b != a);
	EXPECT(synchronize(NULL) == 0 && gone(a, 9));
	EXPECT(g10_alloc(&c, LENGTH, NULL) == 0 && c == a);
	EXPECT(g10_free(b, NULL) == 0 && g10_free(c, NULL) == 0 && synchronize(NULL) == 0);
	EXPECT(UvmRustStreamError() == 0);
	if (backend != UVMRUST_BACKEND_CUDA) {
		int64_t ticket = g10_alloc(&b, LENGTH, gpu);

		EXPECT(ticket > 0 && g10_wait(ticket, 20000) == 1 && g10_error() == 0);
		EXPECT(g10_free(b, NULL) == 0 && synchronize(NULL) == 0);
	}
}

static void with(unsigned char *p, int backend, int (*synchronize)(void *))
{
	struct uvmrust_range halves[] = { { (uintptr_t)p, HALF }, { (uintptr_t)p + HALF, HALF } };
	struct uvmrust_range wrong[] = { { (uintptr_t)p, HALF }, { 4096, 4096 } };
	struct uvmrust_result result;
	uint8_t gpu[16];

	EXPECT(UvmDiscard(p, LENGTH) == 0 && gone(p, 7));
	memset(p, 1, LENGTH);
	EXPECT(all(p, 1));
	EXPECT(UvmDiscardLazy(p, LENGTH) == 0 && UvmPrefetch(p, LENGTH, NULL) == 0 && gone(p, 1));
	memset(p, 2, LENGTH);
	EXPECT(UvmDiscardBatch(halves, 2, 0, &result) == 0 && gone(p, 2));
	EXPECT(result.done == 2 && !!result.counted == (backend == UVMRUST_BACKEND_UVMRUST));
	EXPECT(!result.counted || result.blocks_discarded == LENGTH >> 21);
	EXPECT(UvmDiscardBatch(NULL, 0, 0, NULL) == 0);
	EXPECT(UvmDiscardBatch(NULL, 1, 0, NULL) == UVMRUST_EINVALID);
	EXPECT(UvmDiscardBatch(halves, 2, 2, NULL) == UVMRUST_EINVALID);
	EXPECT(UvmDiscardBatch(wrong, 2, 0, &result) == UVMRUST_ENOTMANAGED);
	EXPECT(result.done == 1);
	EXPECT(UvmDiscard(p, SIZE_MAX) == UVMRUST_EINVALID);

	EXPECT(UvmRustDeviceUuid(1, gpu) == 0 && gpu[15] == 1);
	EXPECT(UvmRustDeviceUuid(7, gpu) == UVMRUST_ENODEVICE);
	EXPECT(UvmRustDeviceUuid(0, gpu) == 0);
	memset(p, 3, LENGTH);
	EXPECT(UvmDiscardAndPrefetch(p, LENGTH, gpu) == 0 && gone(p, 3));
	memset(p, 3, LENGTH);
	EXPECT(UvmDiscardAndPrefetchBatch(halves, 2, gpu) == 0 && gone(p, 3));

	/* In a stream: not before it runs. */
	memset(p, 4, LENGTH);
	EXPECT(UvmDiscardBatchAsync(halves, 2, 0, NULL) == 0 && all(p, 4));
	EXPECT(synchronize(NULL) == 0 && gone(p, 4));
	EXPECT(UvmDiscardBatchAsync(halves, 2, UVMRUST_LAZY, NULL) == 0);
	EXPECT(UvmPrefetchAsync(p, LENGTH, gpu, NULL) == 0);
	EXPECT(synchronize(NULL) == 0 && UvmRustStreamError() == 0);
	if (backend != UVMRUST_BACKEND_CUDA) {
		EXPECT(UvmDiscardBatchAsync(wrong, 2, 0, NULL) == 0);
		EXPECT(synchronize(NULL) == 0);
		EXPECT(UvmRustStreamError() == UVMRUST_ENOTMANAGED && UvmRustStreamError() == 0);
	}
}

int main(int argc, char **argv)
{
	int (*alloc)(uint64_t *, size_t, unsigned int);
	int (*synchronize)(void *);
	int (*init)(unsigned int), (*retain)(void **, int), (*set_current)(void *);
	void *context;
	int backend = argc > 1 ? atoi(argv[1]) : 0;
	uint64_t base = 0;
	unsigned char *p;

	*(void **)&alloc = cuda("cuMemAllocManaged");
	*(void **)&synchronize = cuda("cuStreamSynchronize");
	*(void **)&init = cuda("cuInit");
	*(void **)&retain = cuda("cuDevicePrimaryCtxRetain");
	*(void **)&set_current = cuda("cuCtxSetCurrent");
	if (!alloc || !synchronize || init(0) || retain(&context, 0) || set_current(context) ||
	    alloc(&base, LENGTH, 1)) {
		puts("preload the stub library");
		return 2;
	}
	p = (unsigned char *)(uintptr_t)base;
	memset(p, 7, LENGTH);
	printf("backend %s\n", UvmRustBackendName(UvmRustBackend()));
	EXPECT(UvmRustBackend() == backend);
	for (int e = 0; e >= UVMRUST_EBUSY; e--)
		EXPECT(strcmp(UvmRustStrError(e), "unknown error"));
	EXPECT(!strcmp(UvmRustStrError(1), "unknown error"));
	if (backend == UVMRUST_BACKEND_NONE)
		without(p);
	else
		with(p, backend, synchronize);
	buffers(backend, synchronize);
	return bad;
}
