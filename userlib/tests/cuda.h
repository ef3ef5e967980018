/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the tests' programs use of CUDA's driver library; the stub's kernels. */
#ifndef CUDA_H
#define CUDA_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned int);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuCtxSynchronize(void);
int cuStreamCreate(void **, unsigned int);
int cuStreamSynchronize(void *);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamBeginCaptureToGraph(void *, void *, const void *, const void *, size_t, int);
int cuStreamEndCapture(void *, void **);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cuGraphLaunch(void *, void *);
int cuGraphDestroy(void *);
int cuGraphExecDestroy(void *);
int cuEventCreate(void **, unsigned int);
int cuEventRecord(void *, void *);
int cuStreamWaitEvent(void *, void *, unsigned int);
int cuMemAllocManaged(uint64_t *, size_t, unsigned int);
int cuMemFree_v2(uint64_t);
int cuMemPrefetchAsync(uint64_t, size_t, int, void *);
int cuMemPoolCreate(void **, const void *);
int cuMemAllocFromPoolAsync(uint64_t *, size_t, void *, void *);
struct kernel;
int cuLaunchKernel(struct kernel *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		   unsigned, void *, void **, void **);
unsigned int stub_violations(void);
unsigned int stub_managed(void);
void stub_initialise_uvm(void);
void stub_capture_before(unsigned int nth);
void stub_seed(uint64_t seed);
void stub_fail(const char *function, unsigned int nth);
void stub_evict(const void *p, size_t length);
void stub_body(void **graph);
void stub_green(int device, void **context, void **stream);

/* CU_STREAM_NON_BLOCKING */
#define NON_BLOCKING 1

/* What a kernel saw; as the stub has it (tests/stub/device.c). */
struct seen {
	uint32_t count;
	uint64_t values[16];
};

struct kernel {
	const char *name;
};

static int failed;

static inline void expect(int holds, const char *what, int line)
{
	if (!holds) {
		printf("line %d: not so: %s\n", line, what);
		failed = 1;
	}
}
#define EXPECT(x) expect((x), #x, __LINE__)

static inline void must(int code, const char *what, int line)
{
	if (code) {
		printf("line %d: %s gives %d\n", line, what, code);
		exit(2);
	}
}
#define MUST(x) must((x), #x, __LINE__)

static inline void launch(struct kernel *kernel, void *stream, void *p, uint64_t length,
			  uint64_t number)
{
	void *params[] = { &p, &length, &number };

	MUST(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* A kernel that writes `value`. */
static inline void put(void *stream, void *p, uint64_t length, uint64_t value)
{
	static struct kernel kernel = { "put" };

	launch(&kernel, stream, p, length, value);
}

/* A kernel that reads. */
static inline void get(void *stream, void *p, uint64_t length, struct seen *seen)
{
	static struct kernel kernel = { "get" };

	launch(&kernel, stream, p, length, (uint64_t)(uintptr_t)seen);
}

static inline void *managed(uint64_t length)
{
	uint64_t base = 0;

	MUST(cuMemAllocManaged(&base, length, 1));
	return (void *)(uintptr_t)base;
}

static inline void use_device(int device)
{
	void *context;

	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, device));
	MUST(cuCtxSetCurrent(context));
}

static inline int all_words(const void *p, uint64_t length, uint64_t value)
{
	const uint64_t *words = (const uint64_t *)p;

	for (uint64_t i = 0; i < length / 8; i++)
		if (words[i] != value)
			return 0;
	return 1;
}

#endif
