/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A program that maps memory by itself where its device can, in pieces of a reservation as PyTorch's
 * expandable segments, and else does without. Knows nothing of the preload.
 *
 *   mapping_program            uses it, and says whether other devices of the bus may access GPUs' memory
 *   mapping_program N          asks twice for memory in a place of kind N, of which there is none
 */
#include <dlfcn.h>
#include <string.h>

#include "cuda.h"

#define PIECE ((uint64_t)2 << 20)
#define PIECES 18
#define OUT_OF_MEMORY 2

/* CUmemAllocationProp */
struct props {
	int kind, handle_types, place, number;
	void *metadata;
	unsigned char flags[8];
};

/* CUmemAccessDesc */
struct access {
	int place, number, flags;
};

int cuDeviceGetAttribute(int *, int, int);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemAddressReserve(uint64_t *, size_t, size_t, uint64_t, unsigned long long);
int cuMemAddressFree(uint64_t, size_t);
int cuMemCreate(uint64_t *, size_t, const struct props *, unsigned long long);
int cuMemMap(uint64_t, size_t, size_t, uint64_t, unsigned long long);
int cuMemUnmap(uint64_t, size_t);
int cuMemSetAccess(uint64_t, size_t, const struct access *, size_t);
int cuMemRelease(uint64_t);

/* Of a device's memory, with a handle for other processes. */
static const struct props device = { 1, 1, 1, 0 };
static uint64_t reserved;

/* Whether the device maps memory: as a program asks that is linked, that loads CUDA, or as the runtime. */
static int maps(void)
{
	int (*loaded)(int *, int, int), (*got)(int *, int, int), answers[3], other;

	*(void **)&loaded = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuDeviceGetAttribute");
	MUST(cuGetProcAddress_v2("cuDeviceGetAttribute", (void **)&got, 12040, 0, NULL));
	MUST(cuDeviceGetAttribute(&answers[0], 102, 0));
	MUST(loaded(&answers[1], 102, 0));
	MUST(got(&answers[2], 102, 0));
	EXPECT(answers[0] == answers[1] && answers[1] == answers[2]);
	MUST(got(&other, 75, 0));
	EXPECT(other == 75);
	EXPECT(got(&other, 102, 99) == 101 && other == 75);
	return answers[0];
}

/* What it says of GPUDirect RDMA: by nv-p2p, by dma-buf, and of what the program maps. */
static void says_of_rdma(void)
{
	static const int asked[] = { 116, 124, 110 };
	int answer;

	for (int i = 0; i < 3; i++) {
		MUST(cuDeviceGetAttribute(&answer, asked[i], 0));
		printf("%d%c", answer, i < 2 ? ' ' : '\n');
	}
}

static uint64_t at(int index)
{
	return reserved + index * PIECE;
}

static void map(int index, uint64_t handle)
{
	struct access access = { 1, 0, 3 };

	MUST(cuMemMap(at(index), PIECE, 0, handle, 0));
	MUST(cuMemSetAccess(at(index), PIECE, &access, 1));
}

static void write_value(int index, uint64_t value)
{
	put(NULL, (void *)at(index), PIECE, value);
	MUST(cuCtxSynchronize());
}

static uint64_t value_of(int index)
{
	struct seen seen = { 0 };

	get(NULL, (void *)at(index), PIECE, &seen);
	MUST(cuCtxSynchronize());
	return seen.count == 1 ? seen.values[0] : 0;
}

static void segment(void)
{
	static const int left[] = { 0, 1, 3, 9, 17 };
	uint64_t handles[4];

	MUST(cuMemAddressReserve(&reserved, PIECES * PIECE, 0, 0, 0));
	for (int i = 0; i < 4; i++) {
		MUST(cuMemCreate(&handles[i], PIECE, &device, 0));
		map(i, handles[i]);
		write_value(i, i + 1);
	}
	/* What is released stays until it is not mapped any more. */
	MUST(cuMemRelease(handles[0]));
	MUST(cuMemRelease(handles[1]));
	for (int i = 0; i < 4; i++)
		EXPECT(value_of(i) == i + 1);
	MUST(cuMemUnmap(at(1), PIECE));
	MUST(cuMemCreate(&handles[1], PIECE, &device, 0));
	map(1, handles[1]);
	/* What is not released keeps what it holds, wherever it is mapped, and twice. */
	MUST(cuMemUnmap(at(2), PIECE));
	map(9, handles[2]);
	map(17, handles[2]);
	EXPECT(value_of(9) == 3 && value_of(17) == 3);
	write_value(17, 30);
	EXPECT(value_of(9) == 30);
	for (int i = 1; i < 4; i++)
		MUST(cuMemRelease(handles[i]));
	for (int i = 0; i < 5; i++)
		MUST(cuMemUnmap(at(left[i]), PIECE));
	MUST(cuMemAddressFree(reserved, PIECES * PIECE));
}

int main(int argc, char **argv)
{
	struct props props = device;
	uint64_t base, handle;

	use_device(0);
	says_of_rdma();
	if (argc > 1) {
		props.place = atoi(argv[1]);
		for (int i = 0; i < 2; i++) {
			stub_fail("cuMemCreate", 1);
			EXPECT(cuMemCreate(&handle, PIECE, &props, 0) == OUT_OF_MEMORY);
		}
	} else if (maps()) {
		segment();
	} else {
		MUST(cuMemAlloc_v2(&base, PIECE));
		MUST(cuMemFree_v2(base));
	}
	return failed;
}
