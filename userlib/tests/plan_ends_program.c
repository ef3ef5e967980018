/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A CUDA program whose plan drops the last quarter of its range before each launch. $END names
 * what the program does to the range: CUDA frees it, or does not. Then the program has other memory
 * that is as large, and looks which of the two the plan drops: the range while it is there, and
 * nothing from then on.
 */
#include <string.h>

#include "cuda.h"

#define MIB ((uint64_t)1 << 20)
#define RANGE (16 * MIB)
#define LAST (4 * MIB)
/* A byte that neither a drop nor a kernel leaves. */
#define MINE 0x31

int cuCtxCreate_v2(void **, unsigned int, int);
int cuCtxDestroy_v2(void *);
int cuCtxDestroy(void *);
int cuCtxDetach(void *);
int cuDevicePrimaryCtxRelease_v2(int);
int cuDevicePrimaryCtxRelease(int);
int cuDevicePrimaryCtxReset_v2(int);
int cuDevicePrimaryCtxReset(int);
int cuGreenCtxCreate(void **, void *, int, unsigned int);
int cuGreenCtxDestroy(void *);
int cuLaunchKernelEx(const void *, struct kernel *, void **, void **);
int cuLaunchCooperativeKernel(struct kernel *, unsigned, unsigned, unsigned, unsigned, unsigned,
			      unsigned, unsigned, void *, void **);
void stub_destroy(void *);
void stub_place(void *);

static unsigned char *memory(void)
{
	unsigned char *p = managed(RANGE);

	memset(p, MINE, RANGE);
	return p;
}

/* Launches once, and says whether this was dropped; then all of it is as it was. */
static int drops(unsigned char *p)
{
	int dropped = 0;

	put(NULL, p, MIB, 1);
	MUST(cuCtxSynchronize());
	for (uint64_t i = RANGE - LAST; i < RANGE; i++)
		dropped |= p[i] != MINE;
	memset(p, MINE, RANGE);
	return dropped;
}

/* A plan's launch that is still to come when the last reference to the range's context goes. */
static void release_the_last(void)
{
	void *other, *stream;

	MUST(cuCtxCreate_v2(&other, 0, 0));
	MUST(cuStreamCreate(&stream, NON_BLOCKING));
	put(stream, managed(MIB), MIB, 1);
	MUST(cuDevicePrimaryCtxRelease_v2(0));
}

/* CUlaunchConfig. */
struct config {
	unsigned int grid[3], block[3], shared;
	void *stream, *attributes;
	unsigned int count;
};

/* Launches once in this way, which CUDA refuses. */
static void refuse(const char *how, unsigned char *p)
{
	static struct kernel kernel = { "put" };
	struct config config = { { 1, 1, 1 }, { 1, 1, 1 } };
	uint64_t length = MIB, value = 1;
	void *params[] = { &p, &length, &value };

	stub_fail(!strcmp(how, "graph") ? "cuGraphLaunch" : "launch", 1);
	if (!strcmp(how, "graph"))
		EXPECT(cuGraphLaunch((void *)0x1000, NULL));
	else if (!strcmp(how, "launch"))
		EXPECT(cuLaunchKernel(&kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	else if (!strcmp(how, "launch-ex"))
		EXPECT(cuLaunchKernelEx(&config, &kernel, params, NULL));
	else
		EXPECT(cuLaunchCooperativeKernel(&kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params));
	MUST(cuCtxSynchronize());
	memset(p, MINE, RANGE);
}

/* Has other memory where the range was, each of it too small to be one. */
static void in_its_place(unsigned char *range)
{
	stub_place(range);
	managed(RANGE - MIB);
	stub_place(range + RANGE - MIB);
	managed(MIB);
	memset(range, MINE, RANGE);
	EXPECT(!drops(range));
}

int main(void)
{
	const char *end = getenv("END");
	int refused = strstr("launch launch-ex cooperative graph", end) != NULL;
	int stays = !strcmp(end, "refused") || !strcmp(end, "other") || strstr(end, "held");
	unsigned char *range, *next;
	void *context, *own = NULL;

	use_device(0);
	if (strstr("destroyed destroyed-v1 detached unhooked", end))
		MUST(cuCtxCreate_v2(&own, 0, 0));
	range = memory();
	EXPECT(drops(range));

	if (!strcmp(end, "refused") || !strcmp(end, "unknown")) {
		stub_fail("cuMemFree_v2", 1);
		EXPECT(cuMemFree_v2((uintptr_t)range));
	} else if (!strcmp(end, "other")) {
		MUST(cuCtxCreate_v2(&context, 0, 0));
		MUST(cuCtxDestroy_v2(context));
	} else if (!strcmp(end, "held")) {
		MUST(cuDevicePrimaryCtxRetain(&context, 0));
		MUST(cuDevicePrimaryCtxRelease_v2(0));
	} else if (!strncmp(end, "green", 5)) {
		MUST(cuGreenCtxCreate(&own, NULL, 0, 1));
		if (!stays)
			MUST(cuDevicePrimaryCtxRelease_v2(0));
		MUST(cuGreenCtxDestroy(own));
		MUST(cuDevicePrimaryCtxRetain(&context, 0));
	} else if (!strcmp(end, "freed")) {
		MUST(cuMemFree_v2((uintptr_t)range));
	} else if (!strcmp(end, "destroyed")) {
		MUST(cuCtxDestroy_v2(own));
	} else if (!strcmp(end, "destroyed-v1")) {
		MUST(cuCtxDestroy(own));
	} else if (!strcmp(end, "detached")) {
		MUST(cuCtxDetach(own));
	} else if (!strcmp(end, "reset")) {
		MUST(cuDevicePrimaryCtxReset_v2(0));
	} else if (!strcmp(end, "reset-v1")) {
		MUST(cuDevicePrimaryCtxReset(0));
	} else if (!strcmp(end, "released-v1")) {
		MUST(cuDevicePrimaryCtxRelease(0));
		MUST(cuDevicePrimaryCtxRetain(&context, 0));
	} else if (!strcmp(end, "unhooked")) {
		stub_destroy(own);
		in_its_place(range);
		return failed;
	} else if (refused) {
		refuse(end, range);
	} else if (!strcmp(end, "released")) {
		release_the_last();
		return failed;
	} else {
		return 3;
	}
	next = memory();
	if (stays) {
		EXPECT(drops(range));
		EXPECT(!drops(next));
	} else {
		if (!strcmp(end, "unknown") || refused)
			EXPECT(!drops(range));
		EXPECT(!drops(next));
	}
	return failed;
}
